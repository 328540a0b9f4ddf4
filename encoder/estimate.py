"""Variances of a Gaussian source and its side information, from a sample of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared_rng import CodecError, checked_batch

_MEAN_SHARE = 0.1
"""A mean of this many standard deviations is no zero mean any more: it adds a hundredth to the variance."""
_ERRORS = 4.0

Samples = npt.NDArray[np.floating]


@dataclass(frozen=True)
class Estimate:
    """What a sample says.

    Attributes:
        prior_variance: of the source.
        side_variance: of t - a, the mean over all side information, or None without any.
        side_variances: of t - a for each name of side information.
    """

    prior_variance: float
    side_variance: float | None
    side_variances: dict[str, float]


def estimate(readings: Samples, sides: Mapping[str, Samples]) -> Estimate:
    """Sample variances of source readings [B] and of the noise of side information [B] taken with them.

    Args:
        readings: samples of the source A, whose model is N(0, prior_variance).
        sides: by name, samples of T = A + N(0, side_variance) of the same moments.

    Raises:
        CodecError: there are fewer than two readings, they are not finite or do not vary, a mean is far from
            zero, or side information has another length.
    """
    source = checked_batch("readings", readings, (), 0)
    if len(source) < 2:
        raise CodecError("readings", len(source), "at least 2")
    prior = _variance("readings", source)
    variances = {}
    for name, rows in sides.items():
        side = checked_batch(name, rows, (), 0)
        if len(side) != len(source):
            raise CodecError(name, f"{len(side)} rows", f"one a reading, {len(source)}")
        variances[name] = _variance(f"{name} less readings", side - source)
    mean = float(np.mean(list(variances.values()))) if variances else None
    return Estimate(prior, mean, variances)


def _variance(name: str, values: npt.NDArray[np.float64]) -> float:
    """Sample variance of values [B] whose mean is zero within a tenth of their standard deviation."""
    variance = float(values.var(ddof=1))
    if not variance > 0.0:
        raise CodecError(name, f"{len(values)} times {values[0]:g}", "values that vary")
    mean, deviation = float(values.mean()), variance**0.5
    if abs(mean) > deviation * (_MEAN_SHARE + _ERRORS / len(values) ** 0.5):
        given = f"mean {mean:g} with standard deviation {deviation:g}"
        raise CodecError(name, given, "a mean near 0: subtract a constant that both ends know")
    return variance
