"""Gaussian source, decoder's half (arXiv 2506.05632, appendix D.3), in closed form."""

from __future__ import annotations

import numpy as np

from decoder.model import Floats, Indices
from shared_rng import CodecError, ModelCard


class GaussianDecoderModel:
    """A ~ N(0, v), W = A + N(0, s²), T = A + N(0, σ²); v, s², σ² are the card's three variances.

    p_{W|T}(·|t) = N(c·t, v·(1 - c) + s²) with c = v / (v + σ²). An infinite σ² (JSON ``Infinity``) is a
    decoder without side information: then c = 0 and p_{W|T} = p_W. Side information is a scalar, [B].
    """

    latent_dimension = 1
    side_shape: tuple[int, ...] = ()

    def __init__(self, card: ModelCard) -> None:
        prior, noise = card.number("prior_variance"), card.number("noise_variance")
        side = card.number("side_variance")
        for name, value in (("prior_variance", prior), ("noise_variance", noise)):
            if not 0 < value < float("inf"):
                raise CodecError(f"card architecture.{name}", value, "a finite number above 0")
        if not side > 0:
            raise CodecError("card architecture.side_variance", side, "a number above 0, or Infinity for none")
        self.digest = card.digest
        self.pool_variance = prior + noise
        self._gain = prior / (prior + side)
        self._variance = prior * (1.0 - self._gain) + noise
        precision = 1.0 / prior + 1.0 / noise + 1.0 / side
        self._latent_gain = 1.0 / noise / precision
        self._side_gain = 1.0 / side / precision

    def log_weights(self, side: Floats, samples: Floats, rows: Indices) -> Floats:
        """See :meth:`decoder.model.DecoderModel.log_weights`."""
        u = samples[:, 0]
        mean = (self._gain * side)[rows]
        # Side information far out of range overflows to weights of zero, which the selection reports.
        with np.errstate(over="ignore"):
            return np.asarray(0.5 * (u * u / self.pool_variance - np.square(u - mean) / self._variance))

    def reconstruct(self, latents: Floats, side: Floats) -> Floats:
        """Linear MMSE estimate of A from (W, T) as if the picked sample were W: [B]."""
        return np.asarray(self._latent_gain * latents[:, 0] + self._side_gain * side)
