"""The Gaussian source of arXiv 2506.05632, appendix D.3, and the schemes that code it.

A ~ N(0, 1) and T_k = A + N(0, 0.5). A scheme says how a session is opened; to add one, write that function
and give it a name in ``SCHEMES``.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from decoder import DecoderModel, load_decoder_model
from encoder import EncoderModel, load_encoder_model
from shared_rng import CodecError, ModelCard, Session
from shared_rng.card import model_digest
from shared_rng.lattice import lattice_for

Floats = npt.NDArray[np.floating]
Flags = npt.NDArray[np.bool_]

PRIOR_VARIANCE = 1.0
SIDE_VARIANCE = 0.5
POSTERIOR_VARIANCE = PRIOR_VARIANCE * SIDE_VARIANCE / (PRIOR_VARIANCE + SIDE_VARIANCE)
"""Variance of A given one T: the distortion without any message, 1/3."""
POOL_SIZE = 2**15
VARIANCES = (0.01, 0.008, 0.006, 0.005, 0.003, 0.002, 0.001)
"""The paper's grid of s²."""


GaussianCoupling = Literal["gls", "baseline"]
COUPLINGS: tuple[GaussianCoupling, ...] = ("gls", "baseline")
CellCoupling = Literal["gls", "baseline", "none"]


@dataclass(frozen=True)
class Cell:
    """One point of a table: a scheme's name, a coupling (``none`` without common randomness), K and L_max."""

    scheme: str
    coupling: CellCoupling
    decoders: int
    bins: int

    @property
    def session_coupling(self) -> GaussianCoupling:
        """The coupling of the cell's session.

        Raises:
            CodecError: the cell has none.
        """
        if self.coupling == "none":
            raise CodecError("coupling", "none", "gls or baseline for a session")
        return self.coupling

    def __str__(self) -> str:
        return f"{self.scheme}, {self.coupling}, K = {self.decoders}, {self.bins.bit_length() - 1} bits"


@dataclass(frozen=True)
class Scheme:
    """One way of coding the source.

    Attributes:
        title: what plots call it.
        independent_pool: whether candidates are i.i.d. draws of p_W and labels uniform, as in the paper.
            Then s² is to be chosen, proposition 4 holds and the paper's figures are comparable.
        session: opens a session for a cell, a model's card and a seed.
    """

    title: str
    independent_pool: bool
    session: Callable[[Cell, ModelCard, int], Session]


def gaussian_card(noise_variance: float) -> ModelCard:
    """A ~ N(0, 1), W = A + N(0, noise_variance), T = A + N(0, 0.5)."""
    architecture = {
        "prior_variance": PRIOR_VARIANCE,
        "noise_variance": noise_variance,
        "side_variance": SIDE_VARIANCE,
    }
    return ModelCard("gaussian", architecture, {}, None, model_digest("gaussian", architecture, None))


def draw(seed: int, count: int, decoders: int) -> tuple[Floats, list[Floats]]:
    """Sources [count] and side information, K arrays [count]."""
    generator = np.random.Generator(np.random.Philox(seed))
    sources = generator.standard_normal(count)
    sides = [sources + np.sqrt(SIDE_VARIANCE) * generator.standard_normal(count) for _ in range(decoders)]
    return sources, sides


def open_cell(cell: Cell, noise: float | None, seed: int) -> tuple[Session, EncoderModel, DecoderModel]:
    """The session of a cell and both halves of its model.

    Args:
        cell: what to open.
        noise: s² of p_{W|A}; None for a scheme that has none.
        seed: of the common randomness.
    """
    # A card always has an s²; where the scheme sets the target itself, no number depends on which.
    card = gaussian_card(VARIANCES[0] if noise is None else noise)
    session = SCHEMES[cell.scheme].session(cell, card, seed)
    return session, load_encoder_model(card), load_decoder_model(card)


def _iid_session(cell: Cell, card: ModelCard, seed: int) -> Session:
    return Session(
        seed=seed,
        pool_size=POOL_SIZE,
        bins=cell.bins,
        decoders=cell.decoders,
        model_digest=card.digest,
        pool_variance=PRIOR_VARIANCE + card.number("noise_variance"),
        race_order="arrival",
        coupling=cell.session_coupling,
    )


# Finding the width integrates over the source, which takes longer than coding a thousand messages.
_lattice = functools.cache(lattice_for)


def _lattice_session(cell: Cell, card: ModelCard, seed: int) -> Session:
    lattice = _lattice(cell.decoders, cell.bins, PRIOR_VARIANCE, SIDE_VARIANCE)
    return Session(
        seed=seed,
        pool_size=lattice.pool_size,
        bins=cell.bins,
        decoders=cell.decoders,
        model_digest=card.digest,
        pool_kind="lattice",
        cell_width=lattice.cell_width,
        coupling=cell.session_coupling,
    )


def _narrow_session(cell: Cell, card: ModelCard, seed: int) -> Session:
    lattice = _lattice(cell.decoders, cell.bins, PRIOR_VARIANCE, SIDE_VARIANCE, "mean_db")
    return dataclasses.replace(
        _lattice_session(cell, card, seed), pool_size=lattice.pool_size, cell_width=lattice.cell_width
    )


SCHEMES = {
    "iid": Scheme("i.i.d. pool (the paper's)", True, _iid_session),
    "lattice": Scheme("lattice pool", False, _lattice_session),
    "narrow": Scheme("narrow lattice, for mean_db", False, _narrow_session),
}
