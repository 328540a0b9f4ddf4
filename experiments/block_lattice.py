"""Vector quantisation over eight source samples a message: what a longer block is worth (no coupling).

The fine lattice has one scalar cell of width w a sample, or is E8; the coarse lattice is L_max·E8, so that a
message of 8·log2(L_max) bits names one of L_max^8 cosets. A decoder takes the point of its coset nearest to
its posterior means. E8 packs better than the integers (Conway and Sloane, chapter 4), so the coarse lattice
can be finer at the same risk. With cubic cells, K decoders share each sample's cell as in the scalar recipe.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from experiments.references import Sampled
from shared_rng import CodecError
from shared_rng.lattice import cell_answer

Floats = npt.NDArray[np.float64]

DIMENSION = 8
_E8_SECOND_MOMENT = 0.0716821
"""Normalised second moment of E8's Voronoi cell, whose volume is 1."""


_SOURCE_SPREAD = 1.3
_NOISE_SPREAD = 1.5
"""Variances of what is drawn, relative to what is meant, so that rare errors of a whole period are seen."""


def nearest_d8(points: Floats) -> Floats:
    """Nearest point of D8, the integer vectors with an even sum: [B, 8]."""
    rounded = np.rint(points)
    error = points - rounded
    worst = np.abs(error).argmax(axis=1)
    rows = np.arange(len(points))
    flipped = rounded.copy()
    flipped[rows, worst] += np.where(error[rows, worst] >= 0.0, 1.0, -1.0)
    odd = rounded.sum(axis=1) % 2.0 == 1.0
    return np.where(odd[:, None], flipped, rounded)


def nearest_e8(points: Floats) -> Floats:
    """Nearest point of E8 = D8 ∪ (D8 + ½): [B, 8]."""
    whole, half = nearest_d8(points), nearest_d8(points - 0.5) + 0.5
    closer = np.square(points - whole).sum(axis=1) <= np.square(points - half).sum(axis=1)
    return np.where(closer[:, None], whole, half)


def block_quantiser(
    decoders: int, bins: int, period: float, side_variance: float, blocks: int, seed: int, *, cubic: bool
) -> Sampled:
    """Nested lattices on blocks of eight samples A ~ N(0, 1), side information T = A + N(0, σ²).

    Args:
        decoders: K; with E8 cells only 1, since K answers share a cubic cell.
        bins: L_max, so that the rate is log2(L_max) bits a sample.
        period: edge of the coarse lattice's scaling, L_max times the fine lattice's, in units of the source.
        side_variance: σ².
        blocks: number of blocks.
        seed: of sources, side information and dithers.
        cubic: whether the fine lattice is cubic instead of E8.

    Raises:
        CodecError: more than one decoder with E8 cells, or an odd L_max with cubic ones.
    """
    if decoders > 1 and not cubic:
        raise CodecError("decoders", decoders, "1 with E8 cells")
    if cubic and bins % 2:
        raise CodecError("bins", bins, "an even number, or L_max·E8 is no sublattice of the cubic lattice")
    generator = np.random.Generator(np.random.Philox(seed))
    standard = generator.standard_normal((blocks, DIMENSION))
    sources = math.sqrt(_SOURCE_SPREAD) * standard
    weights = _density_ratio(standard, _SOURCE_SPREAD)
    # Uniform over a whole number of E8's periods (2 in every coordinate).
    dither = 2.0 * generator.uniform(size=sources.shape)
    width = period / bins
    gain = 1.0 / (1.0 + side_variance)
    posterior = side_variance * gain
    sent = np.rint(sources / width + dither) if cubic else nearest_e8(sources / width + dither)
    best = np.full(sources.shape, np.inf)
    for k in range(decoders):
        standard = generator.standard_normal(sources.shape)
        weights = weights * _density_ratio(standard, _NOISE_SPREAD)
        side = sources + math.sqrt(side_variance * _NOISE_SPREAD) * standard
        place = gain * side / width + dither
        picked = (sent + bins * nearest_e8((place - sent) / bins) - dither) * width
        if cubic:
            answer = cell_answer(picked, gain * side, width, posterior, k, decoders)
        else:
            noise = _E8_SECOND_MOMENT * width * width
            answer = (picked / noise + gain * side / posterior) / (1.0 / noise + 1.0 / posterior)
        best = np.minimum(best, np.square(answer - sources))
    return Sampled(best, math.log2(bins), weights)


def _density_ratio(standard: Floats, spread: float) -> Floats:
    """N(0, I) over N(0, spread · I) at √spread times standard normals [B, 8]: [B]."""
    exponent = -0.5 * (spread - 1.0) * np.square(standard).sum(axis=1)
    return np.asarray(spread ** (0.5 * DIMENSION) * np.exp(exponent))
