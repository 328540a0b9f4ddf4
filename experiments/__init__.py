"""Experiments: data, training, sweeps, plots, reports and the demo; the only room that sees both ends."""
