"""Gaussian source on a lattice, decoder's half: temperature, and a point of its own for every decoder.

The picked point is the centre of a cell of width w in which the source lies if the pick is right. A single
decoder answers with the mean of its posterior N(c·t, σp²) truncated to the cell. Of K > 1 decoders, decoder
k answers with the (k + ½) / K quantile of N(c·t, 3 σp²) truncated to the cell, so that K answers share it
(the factor 3 is Bennett's point density f^(1/3)).
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from decoder.model import DecoderModel, Floats, Indices
from shared_rng import CodecError, Session
from shared_rng.lattice import POINT_SPREAD, TEMPERATURE, upper_tail
from shared_rng.variates import inverse_normal_cdf

if TYPE_CHECKING:
    from decoder.gaussian import GaussianDecoderModel


class LatticeDecoderModel:
    """Decoder k of one lattice session."""

    latent_dimension = 1
    side_shape: tuple[int, ...] = ()
    pool_variance = float("inf")

    def __init__(self, model: GaussianDecoderModel, session: Session, index: int) -> None:
        """Take the source's variances from its model.

        Raises:
            CodecError: the model has no side information.
        """
        if not math.isfinite(model.side_variance):
            raise CodecError("card architecture.side_variance", model.side_variance, "a finite one for a lattice")
        self.digest = model.digest
        self._gain = model.gain
        self._posterior_variance = model.posterior_variance
        self._half_width = session.cell_width / 2.0
        self._decoders = session.decoders
        self._share = (index + 0.5) / session.decoders

    def for_session(self, session: Session, index: int) -> DecoderModel:
        """Itself: it is bound to its session already."""
        return self

    def proposal(self, side: Floats) -> tuple[Floats, Floats]:
        """Mean c·t and variance τ·σp² (the temperature τ multiplies log S, or divides the weight), each [B, 1]."""
        mean = (self._gain * side)[:, None]
        return mean, np.full_like(mean, TEMPERATURE * self._posterior_variance)

    def log_weights(self, side: Floats, samples: Floats, rows: Indices) -> Floats:
        """See :meth:`decoder.model.DecoderModel.log_weights`; the lattice is flat."""
        mean, variance = (array[rows, 0] for array in self.proposal(side))
        return np.asarray(-0.5 * np.square(samples[:, 0] - mean) / variance)

    def reconstruct(self, latents: Floats, side: Floats) -> Floats:
        """The decoder's point in the picked cell: [B]; see the module."""
        mean = self._gain * side
        spread = math.sqrt(self._posterior_variance * (1.0 if self._decoders == 1 else POINT_SPREAD))
        # Mirrored so that the cell lies in the lower tail, where the normal CDF keeps its precision.
        sign = np.where(latents[:, 0] > mean, -1.0, 1.0)
        centre = sign * (latents[:, 0] - mean)
        low, high = (centre - self._half_width) / spread, (centre + self._half_width) / spread
        below, above = upper_tail(-low), upper_tail(-high)
        with np.errstate(invalid="ignore", divide="ignore"):
            if self._decoders == 1:
                density = np.exp(-0.5 * low * low) - np.exp(-0.5 * high * high)
                inside = density / math.sqrt(2.0 * math.pi) / (above - below)
            else:
                share = np.where(sign > 0, self._share, 1.0 - self._share)
                inside = inverse_normal_cdf(np.clip(below + share * (above - below), 1e-300, 1.0 - 1e-16))
        # Beyond about 37 standard deviations nothing is left of the normal: the edge nearest to the mean.
        inside = np.where(above - below > 0.0, np.clip(inside, low, high), high)
        return np.asarray(mean + sign * inside * spread)
