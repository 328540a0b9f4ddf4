"""Exponential, normal and bin-label variates, each a function of one 64-bit word.

Labels are exact integers. Normals are snapped to a grid of 2^-16, so that libraries whose logarithms
differ in the last bits give the same pool. Exponentials stay float64 and are used through their logarithm.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from shared_rng.philox import Words

Floats = npt.NDArray[np.float64]

GRID = 2.0**-16
"""Spacing of the grid on which pool samples lie."""

# Rational approximations of the inverse normal CDF, Wichura (1988), algorithm AS 241, PPND16.
# Coefficients run from the highest power down.
CENTRE = (
    [2509.0809287301226727, 33430.575583588128105, 67265.770927008700853, 45921.953931549871457,
     13731.693765509461125, 1971.5909503065514427, 133.14166789178437745, 3.387132872796366608],
    [5226.495278852854561, 28729.085735721942674, 39307.89580009271061, 21213.794301586595867,
     5394.1960214247511077, 687.1870074920579083, 42.313330701600911252, 1.0],
)  # fmt: skip
MIDDLE = (
    [7.7454501427834140764e-4, 0.0227238449892691845833, 0.24178072517745061177, 1.27045825245236838258,
     3.64784832476320460504, 5.7694972214606914055, 4.6303378461565452959, 1.42343711074968357734],
    [1.05075007164441684324e-9, 5.475938084995344946e-4, 0.0151986665636164571966, 0.14810397642748007459,
     0.68976733498510000455, 1.6763848301838038494, 2.05319162663775882187, 1.0],
)  # fmt: skip
TAIL = (
    [2.01033439929228813265e-7, 2.71155556874348757815e-5, 0.0012426609473880784386, 0.026532189526576123093,
     0.29656057182850489123, 1.7848265399172913358, 5.4637849111641143699, 6.6579046435011037772],
    [2.04426310338993978564e-15, 1.4215117583164458887e-7, 1.8463183175100546818e-5, 7.868691311456132591e-4,
     0.0148753612908506148525, 0.13692988092273580531, 0.59983220655588793769, 1.0],
)  # fmt: skip


def _polynomial(coefficients: list[float], x: Floats) -> Floats:
    value = x * coefficients[0]
    for coefficient in coefficients[1:-1]:
        value += coefficient
        value *= x
    value += coefficients[-1]
    return value


def _ratio(coefficients: tuple[list[float], list[float]], x: Floats) -> Floats:
    value = _polynomial(coefficients[0], x)
    value /= _polynomial(coefficients[1], x)
    return value


def inverse_normal_cdf(probability: Floats) -> Floats:
    """Standard normal quantile of a probability strictly between 0 and 1, same shape (AS 241)."""
    offset = probability - 0.5
    result = offset * _ratio(CENTRE, 0.180625 - offset * offset)
    outer = np.abs(offset) > 0.425
    outer_offset = offset[outer]
    outer_probability = probability[outer]
    r = np.sqrt(-np.log(np.minimum(outer_probability, 1.0 - outer_probability)))
    quantile = _ratio(MIDDLE, r - 1.6)
    tail = r > 5.0
    quantile[tail] = _ratio(TAIL, r[tail] - 5.0)
    result[outer] = np.copysign(quantile, outer_offset)
    return result


def normals(words: Words, variance: float) -> Floats:
    """N(0, variance) variates on the grid of 2^-16, one a word, same shape.

    The word's upper 52 bits give a uniform at the middle of its interval, so 0 and 1 cannot occur.
    """
    uniform = ((words >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    scaled = inverse_normal_cdf(uniform) * np.sqrt(variance)
    return np.asarray(np.rint(scaled / GRID) * GRID, dtype=np.float64)


def uniforms(words: Words) -> Floats:
    """Uniforms on [0, 1) from the upper 53 bits of each word, same shape."""
    return np.asarray((words >> np.uint64(11)).astype(np.float64) * 2.0**-53)


def log_exponentials(words: Words) -> Floats:
    """log S of S ~ Exp(1), one a word, same shape.

    S = -log(u) with u = (upper 53 bits + 1) / 2^53 in (0, 1]. S = 0 has probability 2^-53 and gives -inf.
    """
    uniform = ((words >> np.uint64(11)).astype(np.float64) + 1.0) * 2.0**-53
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(-np.log(uniform)), dtype=np.float64)


def labels(words: Words, bits: int) -> npt.NDArray[np.uint32]:
    """Bin labels: the upper ``bits`` bits of each word (1 … 16), same shape."""
    return (words >> np.uint64(64 - bits)).astype(np.uint32)
