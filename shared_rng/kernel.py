"""Races of Gaussian targets and proposals: a message costs what its density ratio asks, whatever N is.

Exact for lattice pools, and for Gaussian pools with ``race_order="arrival"``: picks are those of
``shared_rng.selection`` over all N candidates. ``shared_rng.races`` is the compiled work, which releases the
interpreter lock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared_rng.errors import CodecError
from shared_rng.pool import Labels
from shared_rng.races import EMPTY_BIN, ZERO_WEIGHTS, arrival_race, candidate_labels, lattice_race
from shared_rng.selection import EMPTY_BIN_REASON, NO_PICK, Selection
from shared_rng.session import Session
from shared_rng.variates import Floats

_U = np.uint64
Messages = Sequence[int] | npt.NDArray[np.uint64]
"""Message numbers, B of them."""


def _keys(session: Session) -> tuple[np.uint64, np.uint64]:
    return _U(session.seed & (2**64 - 1)), _U(session.seed >> 64)


def _messages(messages: Messages) -> npt.NDArray[np.uint64]:
    if isinstance(messages, range):
        return np.arange(len(messages), dtype=np.uint64) + _U(messages.start)
    return np.array(messages, dtype=np.uint64)


@dataclass(frozen=True)
class RaceResult:
    """Winners of a batch, as :class:`shared_rng.selection.Selection`, with what the race saw.

    Attributes:
        selection: the picks and failures.
        samples: float64 [B, D], the picked candidates; NaN where the message failed.
        visits: int64 [B], arrivals that were looked at, all races together.
    """

    selection: Selection
    samples: Floats
    visits: npt.NDArray[np.int64]


def serves(session: Session) -> bool:
    """Whether the races of a session, with Gaussian targets and proposals, can be run here."""
    return session.pool_kind == "lattice" or session.race_order == "arrival"


def encoder_race(
    session: Session, messages: Messages, mean: Floats, variance: Floats, labels: Labels | None = None
) -> RaceResult:
    """Y of each message for a Gaussian target, as :func:`shared_rng.selection.encoder_select` finds it.

    Args:
        session: a session with a lattice pool, or with a Gaussian pool and ``race_order="arrival"``.
        messages: B message numbers.
        mean: [B, D] of p_{W|A}.
        variance: [B, D] of p_{W|A}.
        labels: uint32 [B], the bins to which the picks are confined, or None for the whole pool.
    """
    if labels is not None:
        return _run(session, messages, 0, session.races, session.bits, labels, mean, variance)
    unused = np.zeros(len(messages), dtype=np.uint32)
    return _run(session, messages, 0, session.races, 0, unused, mean, variance)


def decoder_race(
    session: Session, decoder: int, messages: Messages, labels: Labels, mean: Floats, variance: Floats
) -> RaceResult:
    """X^(k) of each message for a Gaussian proposal, as :func:`shared_rng.selection.decoder_select` finds it.

    Args:
        session: a session with a lattice pool, or with a Gaussian pool and ``race_order="arrival"``.
        decoder: k, 0 … K - 1.
        messages: B message numbers.
        labels: uint32 [B], the messages received.
        mean: [B, D] of p_{W|T}.
        variance: [B, D] of p_{W|T}.
    """
    return _run(session, messages, session.race_of(decoder), 1, session.bits, labels, mean, variance)


def _run(
    session: Session,
    messages: Messages,
    first_race: int,
    races: int,
    bits: int,
    labels: Labels,
    mean: Floats,
    variance: Floats,
) -> RaceResult:
    shape = (len(messages), session.latent_dimension)
    for name, array in (("mean", mean), ("variance", variance)):
        if array.shape != shape:
            raise CodecError(name, f"shape {array.shape}", f"shape {shape}")
    if session.pool_kind == "lattice":
        picks, samples, visits = lattice_race(
            *_keys(session),
            _messages(messages),
            session.pool_size,
            session.cell_width,
            first_race,
            races,
            session.bins if bits else 1,
            labels,
            np.ascontiguousarray(mean[:, 0]),
            np.ascontiguousarray(variance[:, 0]),
        )
        return _result(messages, picks, samples, visits)
    picks, samples, visits = arrival_race(
        *_keys(session),
        _messages(messages),
        session.pool_size,
        first_race,
        races,
        bits,
        session.binning == "modulo",
        labels,
        np.ascontiguousarray(mean),
        np.ascontiguousarray(variance),
        session.pool_variance,
    )
    return _result(messages, picks, samples, visits)


def _result(
    messages: Messages, picks: npt.NDArray[np.int64], samples: Floats, visits: npt.NDArray[np.int64]
) -> RaceResult:
    reasons = {EMPTY_BIN: EMPTY_BIN_REASON, ZERO_WEIGHTS: "all importance weights are zero"}
    failures = {int(messages[int(b)]): reasons[int(picks[b])] for b in np.flatnonzero(picks < 0)}
    return RaceResult(Selection(np.maximum(picks, NO_PICK), failures), samples, visits)


def labels_of(session: Session, messages: Messages, candidates: npt.NDArray[np.int64]) -> Labels:
    """Bin label of one candidate a message: uint32 [B]."""
    if session.binning == "modulo":
        return (candidates % session.bins).astype(np.uint32)
    labels: Labels = candidate_labels(*_keys(session), _messages(messages), candidates, session.bits)
    return labels
