"""Variates: each the right function of its word, also of the extreme ones."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from shared_rng.philox import Words, words
from shared_rng.variates import GRID, Floats, inverse_normal_cdf, labels, log_exponentials, normals
from tests.models import SEED

EDGES = [0.075, np.nextafter(0.075, 0), 0.925, np.nextafter(0.925, 1), math.exp(-25), 1 - math.exp(-25)]
PROBABILITIES = {
    "centre": np.concatenate([np.linspace(0.0751, 0.9249, 999), 0.5 + np.array([0.0, -1e-9, 1e-15])]),
    "middle": np.concatenate([np.logspace(-10.8, -1.13, 500), 1 - np.logspace(-10.8, -1.13, 500)]),
    "tail": np.concatenate([np.logspace(-300, -10.9, 500), 1 - np.logspace(-15.9, -10.9, 500)]),
    "edges of branches": np.array(EDGES),
    "extremes": np.array([1e-300, 5e-324, 2.0**-53, 1 - 2.0**-53]),
}
# Statistics of 100,000 words of one fixed place; sqrt(n) times a Kolmogorov-Smirnov distance passes 1.95
# with probability 0.001.
COUNT = 100_000
KOLMOGOROV_LIMIT = 1.95 / math.sqrt(COUNT)


def word(*values: int) -> Words:
    return np.array(values, dtype=np.uint64)


def ulps(found: Floats, expected: Floats) -> float:
    return float((np.abs(found - expected) / np.spacing(np.abs(expected))).max())


@pytest.mark.parametrize("probability", PROBABILITIES.values(), ids=PROBABILITIES)
def test_inverse_normal_cdf(probability: Floats) -> None:
    """The standard library has the same algorithm, SciPy another; that one was up to 6 ulp away when measured."""
    found = inverse_normal_cdf(probability)
    same = np.array([NormalDist().inv_cdf(float(p)) for p in probability])
    assert ulps(found, same) <= 2
    assert ulps(found, special.ndtri(probability)) <= 12


def test_inverse_normal_cdf_keeps_the_shape_and_its_argument() -> None:
    table = np.linspace(0.001, 0.999, 24).reshape(2, 3, 4)
    before = table.copy()
    assert np.array_equal(inverse_normal_cdf(table).reshape(-1), inverse_normal_cdf(table.reshape(-1)))
    assert np.array_equal(table, before)


@pytest.mark.parametrize("variance", [1.0, 1.003, 0.25, 7.5])
def test_normals_lie_on_the_grid(variance: float) -> None:
    steps = normals(words(SEED, 90, 0, 0, 5000), variance) / GRID
    assert GRID == 2.0**-16
    assert np.array_equal(steps, np.rint(steps))
    # About 65,000 grid points a unit: hardly any two of 5000 are equal, so none was lost.
    assert len(np.unique(steps)) > 4500


@pytest.mark.parametrize("variance", [1.0, 0.25, 7.5])
def test_normals_by_scipy(variance: float) -> None:
    """Snapped to the next grid point, so half a step away from the unsnapped value at most."""
    some = words(SEED, 91, 0, 0, 5000)
    uniform = [(int(w) // 2**12 + 0.5) / 2**52 for w in some]
    assert (
        np.abs(normals(some, variance) - stats.norm.ppf(uniform, scale=math.sqrt(variance))).max() <= GRID / 2 + 1e-12
    )


def test_extreme_normals() -> None:
    low, high = normals(word(0, 2**64 - 1), 1.0)
    assert high == -low == round(NormalDist().inv_cdf(2.0**-53) * -65536) / 65536
    assert 8.2 < high < 8.3


@given(st.integers(0, 2**64 - 1))
def test_normals_are_symmetric(value: int) -> None:
    mirrored = normals(word(value, 2**64 - 1 - value), 1.003)
    assert mirrored[0] == -mirrored[1]


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_monotone(one: int, other: int) -> None:
    """A larger word is a larger normal and an earlier arrival: the encoder takes minima of races on words."""
    both = word(min(one, other), max(one, other))
    assert np.diff(normals(both, 1.0))[0] >= 0
    assert log_exponentials(both)[0] >= log_exponentials(both)[1]


@pytest.mark.parametrize("variance", [1.0, 0.25])
def test_distribution_of_normals(variance: float) -> None:
    found = stats.kstest(normals(words(SEED, 92, 3, 0, COUNT), variance), stats.norm(scale=math.sqrt(variance)).cdf)
    assert found.statistic < KOLMOGOROV_LIMIT


def test_distribution_of_exponentials() -> None:
    found = stats.kstest(np.exp(log_exponentials(words(SEED, 93, 3, 0, COUNT))), stats.expon.cdf)
    assert found.statistic < KOLMOGOROV_LIMIT


@pytest.mark.parametrize(
    ("value", "exponential"),
    [
        (0, 53 * math.log(2)),
        (2**11 - 1, 53 * math.log(2)),
        (2**63 - 1, math.log(2)),
        (2**64 - 1 - 2**11, -math.log1p(-(2.0**-53))),
        (2**64 - 1, 0.0),
        (2**64 - 2**11, 0.0),
    ],
)
def test_extreme_exponentials(value: int, exponential: float) -> None:
    """The last bits are not used, the smallest above zero is 2^-53, and zero is -inf without a warning."""
    expected = math.log(exponential) if exponential else -math.inf
    assert log_exponentials(word(value))[0] == pytest.approx(expected, rel=1e-14)


def test_exponentials_keep_the_shape() -> None:
    table = words(SEED, 94, 0, 0, 24).reshape(2, 3, 4)
    assert np.array_equal(log_exponentials(table).reshape(-1), log_exponentials(table.reshape(-1)))


@pytest.mark.parametrize("bits", range(1, 17))
def test_labels_are_the_top_bits(bits: int) -> None:
    some = np.concatenate([word(0, 2**64 - 1, 2**63, 2**63 - 1), words(SEED, 95, 0, 0, 60)]).reshape(8, 8)
    found = labels(some, bits)
    assert found.dtype == np.uint32
    assert found.tolist() == [[int(w) >> (64 - bits) for w in row] for row in some]


@pytest.mark.parametrize("bits", [1, 4, 6])
def test_labels_are_uniform(bits: int) -> None:
    """Chi-square, at the limit that fair labels pass with probability 0.999."""
    counts = np.bincount(labels(words(SEED, 96, 0, 0, COUNT), bits), minlength=2**bits)
    assert stats.chisquare(counts).statistic < stats.chi2.ppf(0.999, 2**bits - 1)
