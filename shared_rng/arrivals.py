"""Races told in the order of arrival: when the n-th candidate arrives, and which one it is.

The N arrival times of one race are the order statistics of N independent Exp(1) variates: the gap before
arrival n (from 0) is Exp(1) / (N - n), from word n of the race's arrival domain. Arrival n is candidate
π(n) of a permutation that the race's permutation domain keys. S_i of candidate i is then again Exp(1) and
independent of the others, so GLS is unchanged; but whoever knows a bound on the importance weights can
stop early (``shared_rng.kernel``). This file is the readable definition, over all N candidates.

π is an exact Fisher–Yates shuffle up to N = 4096: step n swaps places n and n + floor(u·(N - n)), u being
the upper 53 bits of word n over 2^53. Above, it is a Feistel network on ceil(log2 N) bits, which needs no
memory: halves of ceil and floor of half the bits, eight rounds that take turns in changing the upper half
by a hash of the lower and the other way round, keyed by words 0 … 7; values of N or more are mapped again.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shared_rng import philox, variates
from shared_rng.session import Session
from shared_rng.variates import Floats

ARRIVAL_DOMAIN = 2**32
"""Race k takes its gaps from domain ARRIVAL_DOMAIN + k."""
PERMUTATION_DOMAIN = 2**33
"""Race k takes its permutation from domain PERMUTATION_DOMAIN + k."""
SHUFFLE_LIMIT = 4096
ROUNDS = 8

Indices = npt.NDArray[np.int64]


def arrival_times(session: Session, race: int, message: int) -> Floats:
    """Times of all N arrivals of one race, ascending: float64 [N]."""
    size = session.pool_size
    words = philox.words(session.seed, ARRIVAL_DOMAIN + race, message, 0, size)
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53
    gaps = -np.log(uniform) / np.arange(size, 0, -1)
    return np.cumsum(gaps)


def arrival_order(session: Session, race: int, message: int) -> Indices:
    """The candidates in the order of their arrival: int64 [N], a permutation."""
    size = session.pool_size
    domain = PERMUTATION_DOMAIN + race
    if size <= SHUFFLE_LIMIT:
        words = philox.words(session.seed, domain, message, 0, size)
        others = np.arange(size) + (variates.uniforms(words) * np.arange(size, 0, -1)).astype(np.int64)
        order = np.arange(size)
        for place, other in enumerate(others):
            order[place], order[other] = order[other], order[place]
        return order
    keys = philox.words(session.seed, domain, message, 0, ROUNDS)
    values = _feistel(np.arange(size, dtype=np.uint64), keys, (size - 1).bit_length())
    while (outside := values >= size).any():
        values[outside] = _feistel(values[outside], keys, (size - 1).bit_length())
    return values.astype(np.int64)


def race_log_times(session: Session, race: int, message: int) -> Floats:
    """log S_i of every candidate i of one race: float64 [N]."""
    log_times = np.empty(session.pool_size)
    with np.errstate(divide="ignore"):
        log_times[arrival_order(session, race, message)] = np.log(arrival_times(session, race, message))
    return log_times


def _feistel(values: philox.Words, keys: philox.Words, bits: int) -> philox.Words:
    low_bits = np.uint64(bits // 2)
    high_bits = np.uint64(bits) - low_bits
    low = values & ((np.uint64(1) << low_bits) - np.uint64(1))
    high = values >> low_bits
    for number, key in enumerate(keys):
        if number % 2 == 0:
            high = high ^ (_hash(low ^ key) >> (np.uint64(64) - high_bits))
        else:
            low = low ^ (_hash(high ^ key) >> (np.uint64(64) - low_bits))
    return high << low_bits | low


def _hash(values: philox.Words) -> philox.Words:
    """The finaliser of SplitMix64 (Steele et al., OOPSLA 2014): a bijection of 64-bit words."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))
