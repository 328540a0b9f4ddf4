"""Gaussian source, encoder's half (arXiv 2506.05632, appendix D.3): p_{W|A} = N(a, s²), in closed form."""

from __future__ import annotations

import numpy as np

from encoder.model import Floats
from shared_rng import CodecError, ModelCard


class GaussianEncoderModel:
    """A ~ N(0, prior_variance), W = A + N(0, noise_variance). Sources are scalars, [B]."""

    latent_dimension = 1
    source_shape: tuple[int, ...] = ()

    def __init__(self, card: ModelCard) -> None:
        prior, self.noise_variance = card.number("prior_variance"), card.number("noise_variance")
        for name, value in (("prior_variance", prior), ("noise_variance", self.noise_variance)):
            if not 0 < value < float("inf"):
                raise CodecError(f"card architecture.{name}", value, "a finite number above 0")
        self.pool_variance = prior + self.noise_variance
        self.digest = card.digest

    def target(self, sources: Floats) -> tuple[Floats, Floats]:
        """Mean a and variance s² of p_{W|A}, each [B, 1]."""
        mean = sources[:, None]
        return mean, np.full_like(mean, self.noise_variance)
