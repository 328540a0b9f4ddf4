"""Gaussian source, decoder's half (arXiv 2506.05632, appendix D.3), in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from decoder.lattice import LatticeDecoderModel
from decoder.model import DecoderModel, Floats, Indices
from shared_rng import ModelCard, Session


@dataclass(frozen=True)
class GaussianDecoderModel:
    """A ~ N(0, v), W = A + N(0, s²), T = A + N(0, σ²); v, s², σ² are the card's three variances.

    p_{W|T}(·|t) = N(c·t, v·(1 - c) + s²) with c = v / (v + σ²). An infinite σ² (JSON ``Infinity``) is a
    decoder without side information: then c = 0 and p_{W|T} = p_W. Side information is a scalar, [B].
    """

    digest: bytes
    prior_variance: float
    noise_variance: float
    side_variance: float
    latent_dimension: int = 1
    side_shape: tuple[int, ...] = ()

    @classmethod
    def from_card(cls, card: ModelCard) -> GaussianDecoderModel:
        """The decoder's half of a Gaussian card.

        Raises:
            CodecError: a variance is missing or out of range.
        """
        return cls(card.digest, *card.variances())

    @property
    def pool_variance(self) -> float:
        """Variance of p_W."""
        return self.prior_variance + self.noise_variance

    @property
    def gain(self) -> float:
        """c of E[A|t] = c·t."""
        return self.prior_variance / (self.prior_variance + self.side_variance)

    @property
    def posterior_variance(self) -> float:
        """Variance of A given t."""
        return self.prior_variance * (1.0 - self.gain)

    def for_session(self, session: Session, index: int) -> DecoderModel:
        """See :meth:`decoder.model.DecoderModel.for_session`."""
        session.require(model_digest=self.digest, latent_dimension=1)
        if session.pool_kind == "lattice":
            return LatticeDecoderModel(self, session, index)
        session.require(pool_kind="gaussian", pool_variance=self.pool_variance)
        return self

    def proposal(self, side: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of p_{W|T}, each [B, 1]."""
        mean = (self.gain * side)[:, None]
        return mean, np.full_like(mean, self.posterior_variance + self.noise_variance)

    def log_weights(self, side: Floats, samples: Floats, rows: Indices) -> Floats:
        """See :meth:`decoder.model.DecoderModel.log_weights`."""
        u = samples[:, 0]
        mean, variance = (array[rows, 0] for array in self.proposal(side))
        # Side information far out of range overflows to weights of zero, which the selection reports.
        with np.errstate(over="ignore"):
            return np.asarray(0.5 * (u * u / self.pool_variance - np.square(u - mean) / variance))

    def reconstruct(self, latents: Floats, side: Floats) -> Floats:
        """Linear MMSE estimate of A from (W, T) as if the picked sample were W: [B]."""
        precision = 1.0 / self.prior_variance + 1.0 / self.noise_variance + 1.0 / self.side_variance
        weighted = latents[:, 0] / self.noise_variance + side / self.side_variance
        return np.asarray(weighted / precision)
