"""Races of Gaussian targets and proposals, compiled: a message costs what its density ratio asks, whatever N is.

Exact for lattice pools, where only the nearest points of a bin can win, and for Gaussian pools with
``race_order="arrival"`` (``shared_rng.early_stop``). ``shared_rng.selection`` over all N candidates is the
definition that the picks must equal. Functions release the interpreter lock.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared_rng import philox
from shared_rng.compiled import U, compiled, uniform, uniform_above_zero, word
from shared_rng.early_stop import EMPTY_BIN, ZERO_WEIGHTS, arrival_race
from shared_rng.errors import CodecError
from shared_rng.pool import Labels, bins_by_value
from shared_rng.selection import EMPTY_BIN_REASON, NO_PICK, Selection
from shared_rng.session import Session
from shared_rng.variates import Floats

_POOL, _BINS, _RACES = U(philox.POOL_DOMAIN), U(philox.BIN_DOMAIN), U(philox.RACE_DOMAIN)
Messages = Sequence[int] | npt.NDArray[np.uint64]
"""Message numbers, B of them."""

_LOG_RACE_SPAN = 41.0
"""log S lies between log 2^-53 and log(53 log 2), which are 40.4 apart; S = 0 has probability 2^-53."""


@compiled
def _lattice_race(key_0, key_1, messages, size, width, first_race, races, bins, labels, mean, variance):
    """Winner among all points of a lattice (bins 1, labels 0) or those of a bin, earliest of ``races`` races."""
    count = len(mean)
    picks = np.empty(count, np.int64)
    samples = np.full((count, 1), np.nan)
    visits = np.zeros(count, np.int64)
    for b in range(count):
        message = messages[b]
        value = word(key_0, key_1, U(0), message, _POOL)
        dither = uniform(value)
        label = np.int64(labels[b])
        last = label + (size - 1 - label) // bins * bins
        # Nearest point of the bin, then all that are not too far behind it for any race to make up.
        place = mean[b] / width + size // 2 - 0.5 + dither
        steps = min(max(np.rint((place - label) / bins), 0.0), np.float64((last - label) // bins))
        nearest = (np.float64(label) + steps * bins - place) * width
        reach = math.sqrt(nearest * nearest + 2.0 * variance[b] * _LOG_RACE_SPAN) / width
        low = max(math.ceil((place - reach - label) / bins), 0.0)
        high = min(math.floor((place + reach - label) / bins), np.float64((last - label) // bins))
        best, pick = np.inf, ZERO_WEIGHTS
        step = low
        while step <= high:
            candidate = label + np.int64(step) * bins
            earliest = U(0)
            for k in range(races):
                race = _RACES + U(first_race + k)
                earliest = max(earliest, word(key_0, key_1, U(candidate), message, race))
            u = (np.float64(candidate - size // 2) + 0.5 - dither) * width
            score = (
                math.log(-math.log(uniform_above_zero(earliest))) + 0.5 * (u - mean[b]) * (u - mean[b]) / variance[b]
            )
            visits[b] += 1
            if score < best:
                best, pick = score, candidate
                samples[b, 0] = u
            step += 1.0
        picks[b] = pick
    return picks, samples, visits


@compiled
def _labels(key_0, key_1, messages, candidates, bits):
    labels = np.empty(len(messages), np.uint32)
    for b in range(len(messages)):
        value = word(key_0, key_1, U(candidates[b]), messages[b], _BINS)
        labels[b] = value >> U(64 - bits)
    return labels


def _keys(session: Session) -> tuple[np.uint64, np.uint64]:
    return U(session.seed & (2**64 - 1)), U(session.seed >> 64)


def _messages(messages: Messages) -> npt.NDArray[np.uint64]:
    if isinstance(messages, range):
        return np.arange(len(messages), dtype=np.uint64) + U(messages.start)
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
        picks, samples, visits = _lattice_race(
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
    if bins_by_value(session):
        return (candidates % session.bins).astype(np.uint32)
    labels: Labels = _labels(*_keys(session), _messages(messages), candidates, session.bits)
    return labels
