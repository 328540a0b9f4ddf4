"""Standard errors and bootstrap intervals of known distributions."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.distortion import mean_interval, standard_error


def exponentials(count: int, seed: int) -> np.ndarray:
    return np.random.Generator(np.random.Philox(seed)).exponential(size=count)


@pytest.mark.parametrize("count", [2000, 25_000])
def test_interval_of_many_values_is_the_normal_one(count: int) -> None:
    """Above 10,000 values they are resampled in groups, which must not change the width."""
    values = exponentials(count, 1)
    low, high = mean_interval(values, 2)
    half = 1.96 * standard_error(values)
    # Percentiles of 1,000 resamples scatter by about 4 % of the half width each.
    assert values.mean() - low == pytest.approx(half, rel=0.15)
    assert high - values.mean() == pytest.approx(half, rel=0.15)


def test_interval_covers_the_mean_as_often_as_it_says() -> None:
    intervals = [mean_interval(exponentials(200, 100 + n), n) for n in range(200)]
    covered = np.mean([low < 1.0 < high for low, high in intervals])
    # 95 % less the known loss of about 1 % of the percentile bootstrap of a skewed mean, ± 4 standard errors.
    assert 0.94 - 4 * math.sqrt(0.94 * 0.06 / 200) < covered < 1.0
    below = np.mean([high < 1.0 for _, high in intervals])
    assert below < 0.12


def test_interval_is_seeded_and_of_the_sample() -> None:
    values = exponentials(500, 3)
    assert mean_interval(values, 4) == mean_interval(values, 4)
    assert mean_interval(values, 4) != mean_interval(values, 5)
    assert mean_interval(np.full(30_000, 2.5), 6) == (2.5, 2.5)


def test_rare_large_values_widen_the_interval() -> None:
    """Three misses in 30,000: the interval spans what their Poisson count does, 0 or 1 to about 7."""
    values = np.full(30_000, 1e-4)
    values[[11, 5000, 29_999]] = 1.0
    low, high = mean_interval(values, 7)
    assert low <= 1e-4 + 1 / 30_000
    assert 6 / 30_000 <= high - 1e-4 <= 8 / 30_000
