"""The lattice recipe for a Gaussian source: structured common randomness without a knob to tune.

Everything follows from K, L_max and the side information. With A ~ N(0, 1) and T = A + N(0, σ²), a decoder
sees A as N(c₁·t, σp²) with c₁ = 1 / (1 + σ²) and σp² = σ²·c₁. The pool is a dithered lattice of cell width
w whose labels repeat every L_max points, with period c = w·L_max: a decoder that is off by less than c / 2
finds the encoder's cell. The width balances the error inside a cell, which K decoders split between them,
against the error of all K being in a wrong cell.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numba import vectorize

from shared_rng.errors import CodecError
from shared_rng.variates import Floats, inverse_normal_cdf

Aim = Literal["mse", "mean_db"]

TARGET_SPREAD = 0.02
"""Standard deviation of the encoder's target N(a, ·), in cell widths: nearly a quantiser."""
TEMPERATURE = 0.1
"""What the logarithm of a decoder's race is multiplied by; 1 would be plain GLS."""
POINT_SPREAD = 3.0
"""Decoders' points are quantiles of a normal of this many times the posterior variance (Bennett's f^⅓)."""
RANGE = 6.0
"""The lattice covers this many standard deviations of the source to either side."""

_NODES = 401
_PERIODS = np.geomspace(2.5, 25.0, 2000)
"""Periods that are tried, in standard deviations σp of the source given the side information."""
_EDGE_GAIN = 1.7
_MEAN_DB_SHARE = 0.45


@dataclass(frozen=True)
class Lattice:
    """What a session needs: the distance of neighbouring points and how many there are."""

    cell_width: float
    pool_size: int


def lattice_for(decoders: int, bins: int, prior_variance: float, side_variance: float, aim: Aim = "mse") -> Lattice:
    """Cell width and size of the lattice.

    The period c minimises ``c² / (12 K² L²) + (c / (K L))² E[pf - pf^K] + c² E[pf^K]`` with
    ``pf(a) = Q((c/2 - a(1 - c₁)) / s) + Q((c/2 + a(1 - c₁)) / s)``, ``s = σ c₁`` and a ~ N(0, 1), for a
    source of unit variance; it is then widened by 1 + 1.7 / (K L²). For ``mean_db``, the mean over messages
    of the squared error in dB, a wrong cell costs little more than a right one gains, and .45 of that period
    is within .1 dB of the best at K = 1 and 4, L_max = 2, 8 and 64.

    Args:
        decoders: K.
        bins: L_max.
        prior_variance: variance of the source.
        side_variance: variance of the side information's noise, finite.
        aim: the distortion to keep small, ``mse`` or ``mean_db``.

    Raises:
        CodecError: K or L_max is below 1, or a variance is not a finite number above 0.
    """
    for count, number in (("decoders", decoders), ("bins", bins)):
        if number < 1:
            raise CodecError(count, number, "at least 1")
    for name, value in (("prior_variance", prior_variance), ("side_variance", side_variance)):
        if not 0 < value < float("inf"):
            raise CodecError(name, value, "a finite number above 0 for a lattice")
    ratio = side_variance / prior_variance
    gain = 1.0 / (1.0 + ratio)
    spread = math.sqrt(ratio) * gain
    nodes = np.linspace(-9.0, 9.0, _NODES)
    weights = np.exp(-0.5 * nodes**2)
    weights /= weights.sum()
    shift = nodes[:, None] * (1.0 - gain)
    periods = _PERIODS * math.sqrt(ratio * gain)
    half = periods / 2.0
    fails = np.minimum(upper_tail((half - shift) / spread) + upper_tail((half + shift) / spread), 1.0)
    any_wrong, all_wrong = weights @ fails, weights @ fails**decoders
    inside = periods / (decoders * bins)
    cost = inside**2 / 12.0 + inside**2 * (any_wrong - all_wrong) + periods**2 * all_wrong
    period = float(periods[np.argmin(cost)]) * (1.0 + _EDGE_GAIN / (decoders * bins**2))
    width = period * (_MEAN_DB_SHARE if aim == "mean_db" else 1.0) / bins
    pool_size = max(bins, 2 * math.ceil(RANGE / width) + 2)
    # Single precision: libraries whose exponentials differ in the last bit open the same session for the same source.
    return Lattice(float(np.float32(width * math.sqrt(prior_variance))), pool_size)


def cell_answer(
    centre: Floats, mean: Floats, cell_width: float, posterior_variance: float, index: int, decoders: int
) -> Floats:
    """What decoder ``index`` of K answers once it has picked a cell: any shape, that of ``centre``.

    The cell of width w holds the source if the pick is right. A single decoder answers with the mean of its
    posterior N(m, σp²) truncated to the cell. Of K > 1 decoders, decoder k answers with the (k + ½) / K
    quantile of N(m, 3 σp²) truncated to the cell, so that K answers share it.

    Args:
        centre: the picked points; NaN where a message failed.
        mean: m = c₁·t, the posterior means.
        cell_width: w.
        posterior_variance: σp².
        index: k, 0 … K - 1.
        decoders: K.
    """
    spread = math.sqrt(posterior_variance * (1.0 if decoders == 1 else POINT_SPREAD))
    # Mirrored so that the cell lies in the lower tail, where the normal CDF keeps its precision.
    sign = np.where(centre > mean, -1.0, 1.0)
    place = sign * (centre - mean)
    low, high = (place - cell_width / 2.0) / spread, (place + cell_width / 2.0) / spread
    below, above = upper_tail(-low), upper_tail(-high)
    with np.errstate(invalid="ignore", divide="ignore"):
        if decoders == 1:
            density = np.exp(-0.5 * low * low) - np.exp(-0.5 * high * high)
            inside = density / math.sqrt(2.0 * math.pi) / (above - below)
        else:
            share = (index + 0.5) / decoders
            quantile = below + np.where(sign > 0, share, 1.0 - share) * (above - below)
            inside = inverse_normal_cdf(np.clip(quantile, 1e-300, 1.0 - 1e-16))
    # Beyond about 37 standard deviations nothing is left of the normal: the edge nearest to the mean.
    inside = np.where(above - below > 0.0, np.clip(inside, low, high), high)
    return np.asarray(mean + sign * inside * spread)


def _scalar_erfc(x: float) -> float:
    return math.erfc(x)


@functools.cache
def _erfc() -> Callable[[Floats], Floats]:
    """erfc of arrays, any shape. Made at the first call, since half a second is much for programs without lattices.

    Threads whose calls are the first each make one: of a shared one, numba would warn that it is compiled twice.
    """
    made: Callable[[Floats], Floats] = vectorize(["float64(float64)"], cache=True)(_scalar_erfc)
    return made


def upper_tail(x: Floats) -> Floats:
    """Q(x) = P(N(0, 1) > x), same shape."""
    return np.asarray(0.5 * _erfc()(x / math.sqrt(2.0)))
