"""The race that stops early, compiled: candidates in the order of arrival, until none to come can win.

log λ of a candidate is at most a bound known in closed form where target and proposal are Gaussian, so no arrival
after ``exp(best score + bound)`` wins, and a candidate's sample and label are made only when it arrives. Picks are
those of ``shared_rng.selection`` over all N candidates, which is the definition.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math

import numpy as np

from shared_rng import arrivals, philox
from shared_rng.compiled import (
    EDGES,
    EDGES_SHIFT,
    U,
    block,
    compiled,
    feistel,
    normal,
    uniform,
    uniform_above_zero,
    word,
)

_POOL, _BINS = U(philox.POOL_DOMAIN), U(philox.BIN_DOMAIN)
_ARRIVALS, _PERMUTATIONS = U(arrivals.ARRIVAL_DOMAIN), U(arrivals.PERMUTATION_DOMAIN)
_SHUFFLE_LIMIT, _ROUNDS = arrivals.SHUFFLE_LIMIT, arrivals.ROUNDS
_SLACK = 1.0 + 1e-9
"""Keeps the stopping rule exact against rounding."""
_MARGIN = 1e-6
"""The same for windows of normals, in standard deviations."""

EMPTY_BIN = -1
ZERO_WEIGHTS = -2


@compiled
def _bound(mean, variance, pool_variance):
    """Supremum of one coordinate's part of log λ: m² / (2 (v - s)), or infinity where there is none."""
    spread = pool_variance - variance
    if spread > 0.0:
        return mean * mean / (2.0 * spread)
    return np.inf if spread < 0.0 or mean != 0.0 else 0.0


@compiled
def _window(mean, variance, pool_variance, scale, headroom):
    """Standard normals outside of which a first coordinate takes more than ``headroom`` from the bound on log λ."""
    spread = pool_variance - variance
    if spread <= 0.0:
        return -np.inf, np.inf
    centre = mean * pool_variance / spread
    radius = math.sqrt(2.0 * headroom * variance * pool_variance / spread)
    margin = _MARGIN + 2.0**-16 / scale
    return (centre - radius) / scale - margin, (centre + radius) / scale + margin


@compiled
def _times(clock, left, words):
    """Times of the next four of ``left`` arrivals after ``clock``; infinite where there is none."""
    first = clock - math.log(uniform_above_zero(words[0])) / left
    second = first - math.log(uniform_above_zero(words[1])) / (left - 1) if left > 1 else np.inf
    third = second - math.log(uniform_above_zero(words[2])) / (left - 2) if left > 2 else np.inf
    fourth = third - math.log(uniform_above_zero(words[3])) / (left - 3) if left > 3 else np.inf
    return first, second, third, fourth


@compiled
def _shuffle(order, swapped, race, place, value, size):
    """The candidate at ``place`` of a race's order of arrival, by one step of Fisher and Yates; 0 after the last."""
    if place >= size:
        return U(0)
    other = place + np.int64(uniform(value) * (size - place))
    candidate = order[race, other]
    swapped[race, place] = other
    order[race, other] = order[race, place]
    order[race, place] = candidate
    return U(candidate)


@compiled
def arrival_race(key_0, key_1, messages, size, first_race, races, bits, labels, mean, variance, pool_variance):
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
    total_bits = U(0)
    while (U(1) << total_bits) < U(size):
        total_bits += U(1)
    keys = np.empty((races, _ROUNDS), np.uint64)
    clocks, arrived = np.empty(races), np.empty(races, np.int64)
    sample = np.empty(dimension)
    whole_pool = bits > 0 and (1 << bits) == size
    domain, stride = (_BINS, U(1)) if bits > 0 else (_POOL, U(dimension))
    for b in range(count):
        message = messages[b]
        bound = 0.0
        for d in range(dimension):
            bound += _bound(mean[b, d], variance[b, d], pool_variance)
        best, pick, limit, in_bin = np.inf, np.int64(EMPTY_BIN), np.inf, False
        for k in range(races):
            arrived[k], clocks[k] = 0, 0.0
            for half in range(0 if shuffled else _ROUNDS // 4):
                words = block(key_0, key_1, U(half), message, _PERMUTATIONS + U(first_race + k))
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
            race, n = U(first_race + k), arrived[k]
            times = _times(clock, size - n, block(key_0, key_1, U(n >> 2), message, _ARRIVALS + race))
            if shuffled:
                words = block(key_0, key_1, U(n >> 2), message, _PERMUTATIONS + race)
                candidates = (
                    _shuffle(order, swapped, k, n, words[0], size),
                    _shuffle(order, swapped, k, n + 1, words[1], size),
                    _shuffle(order, swapped, k, n + 2, words[2], size),
                    _shuffle(order, swapped, k, n + 3, words[3], size),
                )
            else:
                row = keys[k, 0], keys[k, 1], keys[k, 2], keys[k, 3], keys[k, 4], keys[k, 5], keys[k, 6], keys[k, 7]
                candidates = feistel(U(n), row, U(size), total_bits)
            arrived[k] = min(n + 4, size)
            clocks[k] = times[3] if arrived[k] < size else np.inf
            values = (
                word(key_0, key_1, candidates[0] * stride, message, domain),
                word(key_0, key_1, candidates[1] * stride, message, domain),
                word(key_0, key_1, candidates[2] * stride, message, domain),
                word(key_0, key_1, candidates[3] * stride, message, domain),
            )
            for lane in range(4):
                time, candidate, value = times[lane], candidates[lane], values[lane]
                if time >= limit or time == np.inf:
                    break
                visits[b] += 1
                if bits > 0:
                    label = candidate if whole_pool else value >> U(64 - bits)
                    if label != U(labels[b]):
                        continue
                    value = word(key_0, key_1, candidate * U(dimension), message, _POOL)
                in_bin = True
                cell = value >> EDGES_SHIFT
                if EDGES[cell + U(1)] < low or EDGES[cell] > high:
                    continue
                total = 0.0
                for d in range(dimension):
                    if d > 0:
                        value = word(key_0, key_1, candidate * U(dimension) + U(d), message, _POOL)
                    sample[d] = normal(value, scale)
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
