"""Gaussian source on a lattice, decoder's half: temperature, and a point of its own for every decoder."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from decoder.model import DecoderModel, Floats, Indices
from shared_rng import CodecError, Session
from shared_rng.lattice import TEMPERATURE, cell_answer

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
        self._cell_width = session.cell_width
        self._decoders = session.decoders
        self._index = index

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
        with np.errstate(over="ignore"):
            return np.asarray(-0.5 * np.square(samples[:, 0] - mean) / variance)

    def reconstruct(self, latents: Floats, side: Floats) -> Floats:
        """The decoder's answer in the picked cell: [B]."""
        return cell_answer(
            latents[:, 0],
            self._gain * side,
            self._cell_width,
            self._posterior_variance,
            self._index,
            self._decoders,
        )
