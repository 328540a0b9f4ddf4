"""References: known values of nested quantisers, E8, minimal random coding and the entropy-coded quantiser."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from experiments.block_lattice import block_quantiser, nearest_e8
from experiments.distortion import standard_error
from experiments.references import entropy_coded_quantiser, minimal_random_coding, nested_quantiser
from tests.models import refused


def test_nearest_e8_point_is_the_nearest() -> None:
    """Against all 240 shortest vectors: no neighbour of the found point is nearer."""
    points = np.random.default_rng(1).uniform(-3.0, 3.0, (200, 8))
    found = nearest_e8(points)
    doubled = np.rint(2.0 * found)
    assert np.allclose(doubled, 2.0 * found)
    assert np.all((doubled % 2 == doubled[:, :1] % 2) & (doubled.sum(axis=1, keepdims=True) % 4 == 0))
    axes, signs = np.eye(8), (1, -1)
    pairs = itertools.combinations(range(8), 2)
    whole = [s * axes[i] + t * axes[j] for i, j in pairs for s in signs for t in signs]
    half = [np.array(s) / 2.0 for s in itertools.product((1, -1), repeat=8) if math.prod(s) == 1]
    neighbours = np.array(whole + half)
    assert len(neighbours) == 240
    own = np.square(points - found).sum(axis=1)
    others = np.square(points[:, None] - found[:, None] - neighbours).sum(axis=2)
    assert np.all(own[:, None] <= others + 1e-12)


def test_second_moment_of_e8() -> None:
    """.0716821 a coordinate (Conway and Sloane), within four standard errors."""
    points = 2.0 * np.random.default_rng(2).uniform(size=(40000, 8))
    moments = np.square(points - nearest_e8(points)).mean(axis=1)
    assert abs(moments.mean() - 0.0716821) < 4.0 * standard_error(moments)


def test_blocks_beat_the_scalar_quantiser_at_one_decoder() -> None:
    """At 3 bits, by more than 1 dB with cubic cells (periods of 6.7 and 7.4 standard deviations)."""
    blocks = block_quantiser(1, 8, 6.7 / math.sqrt(3.0), 0.5, 20000, 3, cubic=True)
    scalar = nested_quantiser(1, 8, 0.5, 160000, 3)
    assert 10.0 * math.log10(scalar.errors.mean() / blocks.errors.mean()) > 1.0
    assert blocks.bits == scalar.bits == 3.0


def test_blocks_refuse() -> None:
    with refused("decoders"):
        block_quantiser(2, 8, 4.0, 0.5, 10, 3, cubic=False)
    with refused("bins"):
        block_quantiser(1, 3, 4.0, 0.5, 10, 3, cubic=True)


def test_minimal_random_coding_is_far_from_the_rate_distortion_function() -> None:
    """One candidate more a bit helps, but 6 bits stay above D = 2^-12."""
    errors = [minimal_random_coding(bins, 0.02, 20000, 4).errors.mean() for bins in (4, 16, 64)]
    assert errors[0] > errors[1] > errors[2] > 2.0**-12


def test_entropy_coded_quantiser_is_a_quarter_bit_off() -> None:
    """At high rate a uniform quantiser with ideal coding costs 1.53 dB, ¼ bit (Gish and Pierce, 1968)."""
    pytest.importorskip("constriction")
    found = entropy_coded_quantiser(0.125, 100000, 5)
    gap = 10.0 * math.log10(found.errors.mean() * 4.0**found.bits)
    assert gap == pytest.approx(1.53, abs=0.1)
    with refused("step"):
        entropy_coded_quantiser(0.0, 10, 5)
