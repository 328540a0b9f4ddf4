"""Trained models, data only: one folder a model, with a JSON card."""
