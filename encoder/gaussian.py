"""Gaussian source, encoder's half (arXiv 2506.05632, appendix D.3): p_{W|A} = N(a, s²), in closed form."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from encoder.model import Floats, target_log_weights
from encoder.search import LatticeSearch
from shared_rng import ModelCard, Session
from shared_rng.lattice import TARGET_SPREAD


@dataclass(frozen=True)
class GaussianEncoderModel:
    """A ~ N(0, prior_variance), W = A + N(0, noise_variance). Sources are scalars, [B].

    On a lattice the target is N(a, (0.02 w)²) with the cell width w, whatever the card's noise variance. The
    side information's variance is used by encoder search, and by whoever opens a session.
    """

    digest: bytes
    noise_variance: float
    pool_variance: float
    prior_variance: float
    side_variance: float
    latent_dimension: int = 1
    source_shape: tuple[int, ...] = ()
    side: str = ""
    region_bins: bool = False

    @classmethod
    def from_card(cls, card: ModelCard) -> GaussianEncoderModel:
        """The encoder's half of a Gaussian card.

        Raises:
            CodecError: a variance is missing or out of range.
        """
        prior, noise, side = card.variances()
        return cls(card.digest, noise, prior + noise, prior, side)

    def for_session(self, session: Session) -> GaussianEncoderModel:
        """See :meth:`encoder.model.EncoderModel.for_session`."""
        session.require(model_digest=self.digest, latent_dimension=1)
        if session.pool_kind == "lattice":
            spread = TARGET_SPREAD * session.cell_width
            return replace(self, noise_variance=spread * spread, pool_variance=float("inf"))
        session.require(pool_kind="gaussian", pool_variance=self.pool_variance)
        return self

    def search(self, session: Session, nodes: int) -> LatticeSearch:
        """See :meth:`encoder.model.EncoderModel.search`."""
        return LatticeSearch(session, self.prior_variance, self.side_variance, nodes)

    def target(self, sources: Floats) -> tuple[Floats, Floats]:
        """Mean a and variance of p_{W|A}, each [B, 1]."""
        mean = sources[:, None]
        return mean, np.full_like(mean, self.noise_variance)

    def log_weights(self, sources: Floats, samples: Floats) -> Floats:
        """See :meth:`encoder.model.EncoderModel.log_weights`."""
        return target_log_weights(*self.target(sources), samples, self.pool_variance)
