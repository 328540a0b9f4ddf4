"""List sampling of letters: two random distributions, no message, K = 1 … 20 decoders.

The match probability of GLS is exact here. Given Y = j with the winning time S_j = s, one decoder's own race
has S_j^(k) = s and the others S_j^(k) = x > s, x - s ~ Exp(1). All other letters satisfy
S_i^(k) = s q_i / q_j + Exp(1), so decoder k picks j with probability exp(-s G(x / s)),
G(v) = Σ_{i≠j} (v p_i / p_j - q_i / q_j)_+. Therefore

    P(match, Y = j) = ∫ K e^(-K s / q_j) [1 - (1 - e^(-s G(1))) (1 - h(s))^(K - 1)] ds,
    h(s) = s ∫_1^∞ exp(-s (v - 1) - s G(v)) dv,

where h has a closed form, G being piecewise linear.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import numpy as np

from experiments.bounds import list_matching_bound
from experiments.distortion import standard_error
from experiments.gaussian import Floats
from experiments.results import Record

PAIRS = 100
LETTERS = 10
DECODERS = tuple(range(1, 21))
SEED = 1

_STEP = 0.25
_LOG_TIMES = np.arange(-36.0, 4.5, _STEP)
"""log of K s / q_j. The integrand is analytic in it and vanishes at both ends, so plain sums are exact to 1e-12."""


def random_pairs(pairs: int, letters: int, seed: int) -> tuple[Floats, Floats]:
    """Distributions q and p, uniform on the simplex, each [pairs, letters]."""
    generator = np.random.Generator(np.random.Philox(seed))
    q, p = generator.dirichlet(np.ones(letters), size=(2, pairs))
    return q, p


def match_probability(q: Floats, p: Floats, decoders: Sequence[int]) -> Floats:
    """Probability that Y is among the picks of K decoders, for each K: [len(decoders)].

    Args:
        q: [N], the encoder's distribution, positive.
        p: [N], that of every decoder, positive.
        decoders: the values of K.
    """
    total = np.zeros(len(decoders))
    scaled = np.exp(_LOG_TIMES)
    for j in range(len(q)):
        others = np.arange(len(q)) != j
        a, b = p[others] / p[j], q[others] / q[j]
        start = np.maximum(a - b, 0.0).sum()
        # v - 1 + G(v) is linear between these corners; those of letters that count from v = 1 on lie there.
        corners = np.maximum(b / a, 1.0)
        order = np.argsort(corners)
        corners = np.concatenate(([1.0], corners[order]))
        slopes = 1.0 + np.concatenate(([0.0], np.cumsum(a[order])))
        exponents = start + np.concatenate(([0.0], np.cumsum(np.diff(corners) * slopes[:-1])))
        for place, k in enumerate(decoders):
            s = scaled * q[j] / k
            falls = np.exp(-np.outer(s, exponents))
            other_race = ((falls - np.pad(falls[:, 1:], ((0, 0), (0, 1)))) / slopes).sum(axis=1)
            missed = -np.expm1(-s * start) * (1.0 - other_race) ** (k - 1)
            total[place] += q[j] * (scaled * np.exp(-scaled) * (1.0 - missed)).sum() * _STEP
    return total


def run_toy() -> list[Record]:
    """Means over 100 random pairs, a record a K.

    With communication, one decoder can match with probability 1 - d_TV(p, q), the maximal coupling.
    """
    q, p = random_pairs(PAIRS, LETTERS, SEED)
    started = time.perf_counter()
    pairs = list(zip(q, p, strict=True))
    exact = np.array([match_probability(*pair, DECODERS) for pair in pairs])
    bound = np.array([[list_matching_bound(*pair, k) for k in DECODERS] for pair in pairs])
    optimum = float(np.minimum(p, q).sum(axis=1).mean())
    seconds = time.perf_counter() - started
    return [
        Record(
            source="toy",
            coupling="gls",
            decoders=k,
            bins=1,
            bits=0,
            messages=0,
            pool_size=LETTERS,
            match_probability=float(exact[:, place].mean()),
            match_probability_sem=standard_error(exact[:, place]),
            match_bound_lemma=float(bound[:, place].mean()),
            match_bound_lemma_sem=standard_error(bound[:, place]),
            match_optimum=optimum if k == 1 else None,
            failed_messages=0,
            payload_bytes=0,
            seconds=round(seconds / len(DECODERS), 3),
        )
        for place, k in enumerate(DECODERS)
    ]
