"""The early-stopping race, compiled: its cost follows the density ratio, not the pool's size N.

Exact for lattice pools, and for Gaussian pools with ``race_order="arrival"``, where target and proposal are
Gaussian: log λ of a candidate
is then at most a number known in closed form, so no arrival after ``exp(best score + bound)`` can win. A
candidate's sample and label are made only when it arrives. ``shared_rng.arrivals`` and
``shared_rng.selection`` are the definition that this file must equal, pick by pick.

One pass over a message costs a few dozen arrivals. Functions release the interpreter lock.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from shared_rng import arrivals, philox, variates
from shared_rng.errors import CodecError
from shared_rng.pool import Labels, bins_by_value
from shared_rng.selection import EMPTY_BIN_REASON, NO_PICK, Selection
from shared_rng.session import Session
from shared_rng.variates import Floats

_U = np.uint64
_MULTIPLIER_0, _MULTIPLIER_1 = _U(0xD2E7470EE14C6C93), _U(0xCA5A826395121157)
_WEYL_0, _WEYL_1 = _U(0x9E3779B97F4A7C15), _U(0xBB67AE8584CAA73B)
_POOL, _BINS = _U(philox.POOL_DOMAIN), _U(philox.BIN_DOMAIN)
_ARRIVALS, _PERMUTATIONS = _U(arrivals.ARRIVAL_DOMAIN), _U(arrivals.PERMUTATION_DOMAIN)
_SHUFFLE_LIMIT, _ROUNDS = arrivals.SHUFFLE_LIMIT, arrivals.ROUNDS
_CENTRE_TOP, _CENTRE_BOTTOM = (tuple(c) for c in variates.CENTRE)
_MIDDLE_TOP, _MIDDLE_BOTTOM = (tuple(c) for c in variates.MIDDLE)
_TAIL_TOP, _TAIL_BOTTOM = (tuple(c) for c in variates.TAIL)
_RACES = _U(philox.RACE_DOMAIN)
_LOG_RACE_SPAN = 41.0
"""log S lies between log 2^-53 and log(53 log 2), which are 40.4 apart; S = 0 has probability 2^-53."""
_SLACK = 1.0 + 1e-9
"""Keeps the stopping rule exact against rounding."""

Messages = Sequence[int] | npt.NDArray[np.uint64]
"""Message numbers, B of them."""

EMPTY_BIN = -1
ZERO_WEIGHTS = -2

_njit = njit(nogil=True, cache=True, error_model="numpy")


def _multiply_high_code(typing_context: Any, a: Any, b: Any) -> Any:
    """Upper 64 bits of the product of two unsigned 64-bit words."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide = ir.IntType(128)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        return builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


_multiply_high: Any = intrinsic(_multiply_high_code)


@_njit
def _block(key_0, key_1, block, message, domain):
    c0, c1, c2, c3 = block, message, domain, _U(0)
    for _ in range(10):
        high_0, low_0 = _multiply_high(_MULTIPLIER_0, c0), _MULTIPLIER_0 * c0
        high_1, low_1 = _multiply_high(_MULTIPLIER_1, c2), _MULTIPLIER_1 * c2
        c0, c1, c2, c3 = high_1 ^ c1 ^ key_0, low_1, high_0 ^ c3 ^ key_1, low_0
        key_0 += _WEYL_0
        key_1 += _WEYL_1
    return c0, c1, c2, c3


@_njit
def _word(key_0, key_1, index, message, domain):
    words = _block(key_0, key_1, index >> _U(2), message, domain)
    lane = index & _U(3)
    if lane == _U(0):
        return words[0]
    if lane == _U(1):
        return words[1]
    if lane == _U(2):
        return words[2]
    return words[3]


@_njit
def _fill(row, key_0, key_1, block, message, domain):
    row[0], row[1], row[2], row[3] = _block(key_0, key_1, block, message, domain)


@_njit
def _ratio(top, bottom, x):
    numerator, denominator = top[0], bottom[0]
    for power in range(1, 8):
        numerator = numerator * x + top[power]
        denominator = denominator * x + bottom[power]
    return numerator / denominator


@_njit
def _normal(word, scale):
    """See ``variates.normals``."""
    probability = (np.float64(word >> _U(12)) + 0.5) * 2.0**-52
    offset = probability - 0.5
    if abs(offset) <= 0.425:
        quantile = offset * _ratio(_CENTRE_TOP, _CENTRE_BOTTOM, 0.180625 - offset * offset)
    else:
        r = math.sqrt(-math.log(min(probability, 1.0 - probability)))
        if r <= 5.0:
            quantile = _ratio(_MIDDLE_TOP, _MIDDLE_BOTTOM, r - 1.6)
        else:
            quantile = _ratio(_TAIL_TOP, _TAIL_BOTTOM, r - 5.0)
        quantile = math.copysign(quantile, offset)
    return np.rint(quantile * scale * 65536.0) * 2.0**-16


@_njit
def _hash(value):
    value = (value ^ (value >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> _U(27))) * _U(0x94D049BB133111EB)
    return value ^ (value >> _U(31))


@_njit
def _feistel(value, keys, low_bits, high_bits):
    low = value & ((_U(1) << low_bits) - _U(1))
    high = value >> low_bits
    for number in range(0, _ROUNDS, 2):
        high ^= _hash(low ^ keys[number]) >> (_U(64) - high_bits)
        low ^= _hash(high ^ keys[number + 1]) >> (_U(64) - low_bits)
    return high << low_bits | low


@_njit
def _log_weight(key_0, key_1, message, index, mean, variance, pool_variance, scale, sample):
    """log λ of one candidate, whose coordinates go into ``sample``."""
    total = 0.0
    for d in range(len(mean)):
        word = _word(key_0, key_1, index * _U(len(mean)) + _U(d), message, _POOL)
        u = _normal(word, scale)
        sample[d] = u
        total += (u - mean[d]) * (u - mean[d]) / variance[d] - u * u / pool_variance
    return -0.5 * total


@_njit
def _bound(mean, variance, pool_variance):
    """Supremum of log λ over all of space: Σ m² / (2 (v - s)), or infinity where there is none."""
    total = 0.0
    for d in range(len(mean)):
        spread = pool_variance - variance[d]
        if spread > 0.0:
            total += mean[d] * mean[d] / (2.0 * spread)
        elif spread < 0.0 or mean[d] != 0.0:
            return np.inf
    return total


@_njit
def _race(key_0, key_1, messages, size, first_race, races, bits, labels, mean, variance, pool_variance):
    """Winner of the earliest of ``races`` merged races among all candidates (bits 0) or those of a bin."""
    count, dimension = mean.shape
    picks = np.empty(count, np.int64)
    samples = np.full((count, dimension), np.nan)
    visits = np.zeros(count, np.int64)
    scale = math.sqrt(pool_variance)
    shuffled = size <= _SHUFFLE_LIMIT
    places = size if shuffled else 0
    order = np.empty((races, places), np.int64)
    for k in range(races):
        for i in range(places):
            order[k, i] = i
    swapped = np.empty((races, places), np.int64)
    total_bits = _U(0)
    while (_U(1) << total_bits) < _U(size):
        total_bits += _U(1)
    low_bits = total_bits >> _U(1)
    high_bits = total_bits - low_bits
    keys = np.empty((races, _ROUNDS), np.uint64)
    gaps = np.empty((races, 4), np.uint64)
    steps = np.empty((races, 4), np.uint64)
    times = np.empty(races)
    arrived = np.empty(races, np.int64)
    sample = np.empty(dimension)
    whole_pool = (bits == 0) or (1 << bits) == size
    for b in range(count):
        message = messages[b]
        bound = _bound(mean[b], variance[b], pool_variance)
        best, pick, limit, in_bin = np.inf, EMPTY_BIN, np.inf, False
        for k in range(races):
            arrived[k] = 0
            _fill(gaps[k], key_0, key_1, _U(0), message, _ARRIVALS + _U(first_race + k))
            times[k] = -math.log((np.float64(gaps[k, 0] >> _U(11)) + 1.0) * 2.0**-53) / size
            if not shuffled:
                for half in range(_ROUNDS // 4):
                    domain = _PERMUTATIONS + _U(first_race + k)
                    _fill(keys[k, 4 * half : 4 * half + 4], key_0, key_1, _U(half), message, domain)
        while True:
            k = 0
            for other in range(1, races):
                if times[other] < times[k]:
                    k = other
            time = times[k]
            if time >= limit or time == np.inf:
                break
            n = arrived[k]
            if shuffled:
                if n & 3 == 0:
                    _fill(steps[k], key_0, key_1, _U(n >> 2), message, _PERMUTATIONS + _U(first_race + k))
                other_place = n + np.int64(np.float64(steps[k, n & 3] >> _U(11)) * 2.0**-53 * (size - n))
                swapped[k, n] = other_place
                candidate = order[k, other_place]
                order[k, other_place] = order[k, n]
                order[k, n] = candidate
            else:
                value = _feistel(_U(n), keys[k], low_bits, high_bits)
                while value >= _U(size):
                    value = _feistel(value, keys[k], low_bits, high_bits)
                candidate = np.int64(value)
            visits[b] += 1
            if bits == 0:
                here = True
            elif whole_pool:
                here = candidate == labels[b]
            else:
                word = _word(key_0, key_1, _U(candidate), message, _BINS)
                here = (word >> _U(64 - bits)) == _U(labels[b])
            if here:
                in_bin = True
                log_weight = _log_weight(
                    key_0, key_1, message, _U(candidate), mean[b], variance[b], pool_variance, scale, sample
                )
                score = np.log(time) - log_weight
                if score < best or (score == best and candidate < pick and best < np.inf):
                    best, pick = score, candidate
                    samples[b] = sample
                    limit = math.exp(best + bound) * _SLACK
            n += 1
            arrived[k] = n
            if n == size:
                times[k] = np.inf
            else:
                if n & 3 == 0:
                    _fill(gaps[k], key_0, key_1, _U(n >> 2), message, _ARRIVALS + _U(first_race + k))
                uniform = (np.float64(gaps[k, n & 3] >> _U(11)) + 1.0) * 2.0**-53
                times[k] = time - math.log(uniform) / (size - n)
        picks[b] = pick if pick >= 0 or not in_bin else ZERO_WEIGHTS
        if shuffled:
            for k in range(races):
                for n in range(arrived[k] - 1, -1, -1):
                    other_place = swapped[k, n]
                    order[k, n], order[k, other_place] = order[k, other_place], order[k, n]
    return picks, samples, visits


@_njit
def _lattice_race(key_0, key_1, messages, size, width, first_race, races, bins, labels, mean, variance):
    """Winner among all points of a lattice (bins 1, labels 0) or those of a bin, earliest of ``races`` races."""
    count = len(mean)
    picks = np.empty(count, np.int64)
    samples = np.full((count, 1), np.nan)
    visits = np.zeros(count, np.int64)
    for b in range(count):
        message = messages[b]
        word = _word(key_0, key_1, _U(0), message, _POOL)
        dither = np.float64(word >> _U(11)) * 2.0**-53
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
            earliest = _U(0)
            for k in range(races):
                race = _U(_RACES) + _U(first_race + k)
                earliest = max(earliest, _word(key_0, key_1, _U(candidate), message, race))
            u = (np.float64(candidate - size // 2) + 0.5 - dither) * width
            uniform = (np.float64(earliest >> _U(11)) + 1.0) * 2.0**-53
            score = np.log(-np.log(uniform)) + 0.5 * (u - mean[b]) * (u - mean[b]) / variance[b]
            visits[b] += 1
            if score < best:
                best, pick = score, candidate
                samples[b, 0] = u
            step += 1.0
        picks[b] = pick
    return picks, samples, visits


@_njit
def _labels(key_0, key_1, messages, candidates, bits):
    labels = np.empty(len(messages), np.uint32)
    for b in range(len(messages)):
        word = _word(key_0, key_1, _U(candidates[b]), messages[b], _BINS)
        labels[b] = word >> _U(64 - bits)
    return labels


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
    picks, samples, visits = _race(
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
