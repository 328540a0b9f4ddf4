"""The torch networks of image models, built from a model card, and their weights.

A module is a source of a card: ``vae`` (with ``mixture``) and ``codebook`` hold the networks of both ends, so that
whoever trains them, codes with them or simulates the other end has the same ones.
"""
