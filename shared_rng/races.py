"""Everything compiled: words and normals one at a time, and the races over lattice and i.i.d. pools.

``philox``, ``variates``, ``arrivals`` and ``selection`` are the readable definitions, over whole arrays and all N
candidates; picks are those of ``selection``.

**i.i.d. pools, races in the order of arrival.** log λ of a candidate is at most a bound known in closed form where
target and proposal are Gaussian, so no arrival after ``exp(best score + bound)`` wins. A candidate's sample and label
are made only when it arrives. **Lattices.** Only the points of a bin that are near the mean can win.

Arguments that are words or indices are unsigned 64-bit integers. All is in one file because compiled functions are
kept on disk until their own file changes: functions and constants of others are taken as they were. Touch this file
after changing a constant that it imports.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

from shared_rng import arrivals, philox, variates

_U = np.uint64
_CELLS = 1024
_EDGES = np.full(_CELLS + 1, np.inf)
"""Between ``_EDGES[j]`` and ``_EDGES[j + 1]`` lie the standard normals of words with upper bits j, rounding aside."""
_EDGES[0] = -np.inf
_EDGES[1:-1] = variates.inverse_normal_cdf(np.arange(1, _CELLS) / _CELLS)
_EDGES_SHIFT = _U(64 - 10)
"""What a word is shifted right by to give j."""

_MULTIPLIER_0, _MULTIPLIER_1 = _U(0xD2E7470EE14C6C93), _U(0xCA5A826395121157)
_WEYL_0, _WEYL_1 = _U(0x9E3779B97F4A7C15), _U(0xBB67AE8584CAA73B)
_CENTRE_TOP, _CENTRE_BOTTOM = (tuple(c) for c in variates.CENTRE)
_MIDDLE_TOP, _MIDDLE_BOTTOM = (tuple(c) for c in variates.MIDDLE)
_TAIL_TOP, _TAIL_BOTTOM = (tuple(c) for c in variates.TAIL)
_POOL, _BINS, _RACES = _U(philox.POOL_DOMAIN), _U(philox.BIN_DOMAIN), _U(philox.RACE_DOMAIN)
_ARRIVALS, _PERMUTATIONS = _U(arrivals.ARRIVAL_DOMAIN), _U(arrivals.PERMUTATION_DOMAIN)
_SHUFFLE_LIMIT, _ROUNDS = arrivals.SHUFFLE_LIMIT, arrivals.ROUNDS
_SLACK = 1.0 + 1e-9
"""Keeps the stopping rule exact against rounding."""
_MARGIN = 1e-6
"""The same for windows of normals, in standard deviations."""

_LOG_RACE_SPAN = 41.0
"""log S lies between log 2^-53 and log(53 log 2), which are 40.4 apart; S = 0 has probability 2^-53."""

EMPTY_BIN = -1
ZERO_WEIGHTS = -2
"""Picks of messages that fail."""

_compiled = njit(nogil=True, cache=True, error_model="numpy")
"""Functions release the interpreter lock; a division by zero gives what IEEE 754 says."""


def _multiply_code(typing_context: Any, a: Any, b: Any) -> Any:
    """Upper and lower 64 bits of the product of two unsigned 64-bit words, by one instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide, narrow = ir.IntType(128), ir.IntType(64)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), narrow)
        return cgutils.pack_array(builder, [high, builder.trunc(product, narrow)])

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), generate


_multiply: Any = intrinsic(_multiply_code)


@_compiled
def _block(key_0, key_1, number, message, domain):
    """The four words ``4 * number`` … of one message in one domain; see ``philox``."""
    c0, c1, c2, c3 = number, message, domain, _U(0)
    for _ in range(10):
        high_0, low_0 = _multiply(_MULTIPLIER_0, c0)
        high_1, low_1 = _multiply(_MULTIPLIER_1, c2)
        c0, c1, c2, c3 = high_1 ^ c1 ^ key_0, low_1, high_0 ^ c3 ^ key_1, low_0
        key_0 += _WEYL_0
        key_1 += _WEYL_1
    return c0, c1, c2, c3


@_compiled
def _word(key_0, key_1, index, message, domain):
    """Word ``index`` of one message in one domain."""
    words = _block(key_0, key_1, index >> _U(2), message, domain)
    lane = index & _U(3)
    if lane == _U(0):
        return words[0]
    if lane == _U(1):
        return words[1]
    if lane == _U(2):
        return words[2]
    return words[3]


@_compiled
def _uniform(value):
    """Uniform on [0, 1); see ``variates.uniforms``."""
    return np.float64(value >> _U(11)) * 2.0**-53


@_compiled
def _uniform_above_zero(value):
    """Uniform on (0, 1], whose negative logarithm is an exponential."""
    return (np.float64(value >> _U(11)) + 1.0) * 2.0**-53


@_compiled
def _ratio(top, bottom, x):
    numerator, denominator = top[0], bottom[0]
    for power in range(1, 8):
        numerator = numerator * x + top[power]
        denominator = denominator * x + bottom[power]
    return numerator / denominator


@_compiled
def _normal(value, scale):
    """Normal of standard deviation ``scale``; see ``variates.normals``."""
    probability = (np.float64(value >> _U(12)) + 0.5) * 2.0**-52
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


@_compiled
def _hash(value):
    value = (value ^ (value >> _U(30))) * _U(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> _U(27))) * _U(0x94D049BB133111EB)
    return value ^ (value >> _U(31))


@_compiled
def _feistel_round(changed, by, key, shift):
    return (
        changed[0] ^ (_hash(by[0] ^ key) >> shift),
        changed[1] ^ (_hash(by[1] ^ key) >> shift),
        changed[2] ^ (_hash(by[2] ^ key) >> shift),
        changed[3] ^ (_hash(by[3] ^ key) >> shift),
    )


@_compiled
def _feistel_four(values, keys, low_bits, high_bits):
    """Map four values, all in one step of each round, so that the processor overlaps them."""
    mask = (_U(1) << low_bits) - _U(1)
    low = values[0] & mask, values[1] & mask, values[2] & mask, values[3] & mask
    high = values[0] >> low_bits, values[1] >> low_bits, values[2] >> low_bits, values[3] >> low_bits
    for number in range(0, arrivals.ROUNDS, 2):
        high = _feistel_round(high, low, keys[number], _U(64) - high_bits)
        low = _feistel_round(low, high, keys[number + 1], _U(64) - low_bits)
    return (
        high[0] << low_bits | low[0],
        high[1] << low_bits | low[1],
        high[2] << low_bits | low[2],
        high[3] << low_bits | low[3],
    )


@_compiled
def _feistel(first, keys, size, bits):
    """Candidates of the arrivals ``first`` … ``first + 3`` of a pool of ``size``, of which ``bits`` is ceil(log2).

    There are none after the last arrival: those values mean nothing. See ``arrivals.arrival_order``.
    """
    low_bits = bits >> _U(1)
    last = size - _U(1)
    start = min(first, last), min(first + _U(1), last), min(first + _U(2), last), min(first + _U(3), last)
    values = _feistel_four(start, keys, low_bits, bits - low_bits)
    while max(values) >= size:
        again = _feistel_four(values, keys, low_bits, bits - low_bits)
        values = (
            again[0] if values[0] >= size else values[0],
            again[1] if values[1] >= size else values[1],
            again[2] if values[2] >= size else values[2],
            again[3] if values[3] >= size else values[3],
        )
    return values


@_compiled
def _bound(mean, variance, pool_variance):
    """Supremum of one coordinate's part of log λ: m² / (2 (v - s)), or infinity where there is none."""
    spread = pool_variance - variance
    if spread > 0.0:
        return mean * mean / (2.0 * spread)
    return np.inf if spread < 0.0 or mean != 0.0 else 0.0


@_compiled
def _window(mean, variance, pool_variance, scale, headroom):
    """Standard normals outside of which a first coordinate takes more than ``headroom`` from the bound on log λ."""
    spread = pool_variance - variance
    if spread <= 0.0:
        return -np.inf, np.inf
    centre = mean * pool_variance / spread
    radius = math.sqrt(2.0 * headroom * variance * pool_variance / spread)
    margin = _MARGIN + 2.0**-16 / scale
    return (centre - radius) / scale - margin, (centre + radius) / scale + margin


@_compiled
def _times(clock, left, words):
    """Times of the next four of ``left`` arrivals after ``clock``; infinite where there is none."""
    first = clock - math.log(_uniform_above_zero(words[0])) / left
    second = first - math.log(_uniform_above_zero(words[1])) / (left - 1) if left > 1 else np.inf
    third = second - math.log(_uniform_above_zero(words[2])) / (left - 2) if left > 2 else np.inf
    fourth = third - math.log(_uniform_above_zero(words[3])) / (left - 3) if left > 3 else np.inf
    return first, second, third, fourth


@_compiled
def _shuffle(order, swapped, race, place, value, size):
    """The candidate at ``place`` of a race's order of arrival, by one step of Fisher and Yates; 0 after the last."""
    if place >= size:
        return _U(0)
    other = place + np.int64(_uniform(value) * (size - place))
    candidate = order[race, other]
    swapped[race, place] = other
    order[race, other] = order[race, place]
    order[race, place] = candidate
    return _U(candidate)


@_compiled
def arrival_race(key_0, key_1, messages, size, first_race, races, bits, modulo, labels, mean, variance, pool_variance):
    """Winner of the earliest of ``races`` merged races among all candidates (bits 0) or those of a bin.

    Arrivals are made four at a time, and the race whose last one is earliest goes on.

    Args:
        key_0: lower half of the seed.
        key_1: upper half.
        messages: uint64 [B].
        size: N.
        first_race: number of the first race.
        races: how many.
        bits: R where one bin is looked at, or 0.
        modulo: whether labels are candidates mod L_max, instead of random.
        labels: uint32 [B], its label.
        mean: [B, D] of target or proposal.
        variance: [B, D].
        pool_variance: of each coordinate of the pool.

    Returns:
        Picks (or ``EMPTY_BIN`` or ``ZERO_WEIGHTS``), int64 [B]; their samples [B, D], NaN where there is none; and
        arrivals that were looked at, int64 [B].
    """
    count, dimension = mean.shape
    picks = np.empty(count, np.int64)
    samples = np.full((count, dimension), np.nan)
    visits = np.zeros(count, np.int64)
    scale = math.sqrt(pool_variance)
    shuffled = size <= _SHUFFLE_LIMIT
    order = np.empty((races, size if shuffled else 0), np.int16)
    for k in range(races):
        for i in range(order.shape[1]):
            order[k, i] = i
    swapped = np.empty_like(order)
    total_bits = _U(0)
    while (_U(1) << total_bits) < _U(size):
        total_bits += _U(1)
    keys = np.empty((races, _ROUNDS), np.uint64)
    clocks, arrived = np.empty(races), np.empty(races, np.int64)
    sample = np.empty(dimension)
    domain, stride = (_BINS, _U(1)) if bits > 0 else (_POOL, _U(dimension))
    for b in range(count):
        message = messages[b]
        bound = 0.0
        for d in range(dimension):
            bound += _bound(mean[b, d], variance[b, d], pool_variance)
        best, pick, limit, in_bin = np.inf, np.int64(EMPTY_BIN), np.inf, False
        for k in range(races):
            arrived[k], clocks[k] = 0, 0.0
            for half in range(0 if shuffled else _ROUNDS // 4):
                words = _block(key_0, key_1, _U(half), message, _PERMUTATIONS + _U(first_race + k))
                for lane in range(4):
                    keys[k, 4 * half + lane] = words[lane]
        while True:
            k = 0
            for other in range(1, races):
                if clocks[other] < clocks[k]:
                    k = other
            clock = clocks[k]
            if clock >= limit or clock == np.inf:
                break
            # Whoever arrives from now on must have a weight of clock / limit of the greatest, at least.
            low, high = -np.inf, np.inf
            if limit < np.inf and clock > 0.0:
                low, high = _window(mean[b, 0], variance[b, 0], pool_variance, scale, math.log(limit / clock))
            race, n = _U(first_race + k), arrived[k]
            times = _times(clock, size - n, _block(key_0, key_1, _U(n >> 2), message, _ARRIVALS + race))
            if shuffled:
                words = _block(key_0, key_1, _U(n >> 2), message, _PERMUTATIONS + race)
                candidates = (
                    _shuffle(order, swapped, k, n, words[0], size),
                    _shuffle(order, swapped, k, n + 1, words[1], size),
                    _shuffle(order, swapped, k, n + 2, words[2], size),
                    _shuffle(order, swapped, k, n + 3, words[3], size),
                )
            else:
                row = keys[k, 0], keys[k, 1], keys[k, 2], keys[k, 3], keys[k, 4], keys[k, 5], keys[k, 6], keys[k, 7]
                candidates = _feistel(_U(n), row, _U(size), total_bits)
            arrived[k] = min(n + 4, size)
            clocks[k] = times[3] if arrived[k] < size else np.inf
            values = (
                _word(key_0, key_1, candidates[0] * stride, message, domain),
                _word(key_0, key_1, candidates[1] * stride, message, domain),
                _word(key_0, key_1, candidates[2] * stride, message, domain),
                _word(key_0, key_1, candidates[3] * stride, message, domain),
            )
            for lane in range(4):
                time, candidate, value = times[lane], candidates[lane], values[lane]
                if time >= limit or time == np.inf:
                    break
                visits[b] += 1
                if bits > 0:
                    label = candidate & ((_U(1) << _U(bits)) - _U(1)) if modulo else value >> _U(64 - bits)
                    if label != _U(labels[b]):
                        continue
                    value = _word(key_0, key_1, candidate * _U(dimension), message, _POOL)
                in_bin = True
                cell = value >> _EDGES_SHIFT
                if _EDGES[cell + _U(1)] < low or _EDGES[cell] > high:
                    continue
                total = 0.0
                for d in range(dimension):
                    if d > 0:
                        value = _word(key_0, key_1, candidate * _U(dimension) + _U(d), message, _POOL)
                    sample[d] = _normal(value, scale)
                    distance = sample[d] - mean[b, d]
                    total += distance * distance / variance[b, d] - sample[d] * sample[d] / pool_variance
                score = math.log(time) + 0.5 * total
                if score < best or (score == best and np.int64(candidate) < pick and best < np.inf):
                    best, pick = score, np.int64(candidate)
                    for d in range(dimension):
                        samples[b, d] = sample[d]
                    limit = math.exp(best + bound) * _SLACK
        picks[b] = pick if pick >= 0 or not in_bin else ZERO_WEIGHTS
        for k in range(races if shuffled else 0):
            for place in range(arrived[k] - 1, -1, -1):
                other = swapped[k, place]
                order[k, place], order[k, other] = order[k, other], order[k, place]
    return picks, samples, visits


@_compiled
def lattice_race(key_0, key_1, messages, size, width, first_race, races, bins, labels, mean, variance):
    """Winner among all points of a lattice (bins 1, labels 0) or those of a bin, earliest of ``races`` races."""
    count = len(mean)
    picks = np.empty(count, np.int64)
    samples = np.full((count, 1), np.nan)
    visits = np.zeros(count, np.int64)
    for b in range(count):
        message = messages[b]
        value = _word(key_0, key_1, _U(0), message, _POOL)
        dither = _uniform(value)
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
                race = _RACES + _U(first_race + k)
                earliest = max(earliest, _word(key_0, key_1, _U(candidate), message, race))
            u = (np.float64(candidate - size // 2) + 0.5 - dither) * width
            score = (
                math.log(-math.log(_uniform_above_zero(earliest))) + 0.5 * (u - mean[b]) * (u - mean[b]) / variance[b]
            )
            visits[b] += 1
            if score < best:
                best, pick = score, candidate
                samples[b, 0] = u
            step += 1.0
        picks[b] = pick
    return picks, samples, visits


@_compiled
def candidate_labels(key_0, key_1, messages, candidates, bits):
    """Random label of one candidate a message: uint32 [B]."""
    labels = np.empty(len(messages), np.uint32)
    for b in range(len(messages)):
        value = _word(key_0, key_1, _U(candidates[b]), messages[b], _BINS)
        labels[b] = value >> _U(64 - bits)
    return labels
