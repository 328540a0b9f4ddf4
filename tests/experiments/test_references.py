"""References: known values of nested quantisers, E8, minimal random coding and the entropy-coded quantiser."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from experiments.block_lattice import block_quantiser, nearest_e8
from experiments.bounds import wyner_ziv_db
from experiments.common_point import Setting, run_setting
from experiments.distortion import standard_error
from experiments.gaussian import Cell
from experiments.optimised_tables import optimised_tables
from experiments.reference_cells import REFERENCES, installed, measure_reference
from experiments.references import (
    entropy_coded_quantiser,
    minimal_random_coding,
    nested_integrated,
    nested_quantiser,
)
from experiments.report import gaussian_row
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
    assert 10.0 * math.log10(scalar.mse / blocks.mse) > 1.0
    assert blocks.bits == scalar.bits == 3.0


def test_block_weights_stand_for_the_densities() -> None:
    """Sources and noise are drawn wider than meant: weights of mean 1, and the mean squared error of a wide period.

    With a period of 12 standard deviations nothing goes wrong, and a cubic cell's error is w²/12, less what the
    posterior knows inside the cell (the truncated normal's variance, here below by at most 2 %).
    """
    width = 12.0 / math.sqrt(3.0) / 32
    sampled = block_quantiser(1, 32, 32 * width, 0.5, 20000, 6, cubic=True)
    assert abs(sampled.weights.mean() - 1.0) < 4.0 * standard_error(sampled.weights)
    error = standard_error(sampled.terms)
    assert 0.98 * width**2 / 12.0 - 4.0 * error < sampled.mse < width**2 / 12.0 + 4.0 * error


@pytest.mark.parametrize(("decoders", "bins"), [(1, 4), (4, 2)])
def test_nested_quantiser_integrated_and_sampled_agree(decoders: int, bins: int) -> None:
    sampled = nested_quantiser(decoders, bins, 0.5, 200000, 7)
    found = nested_integrated(decoders, bins, 0.5, 4000, 8)
    error = math.hypot(standard_error(sampled.terms), found.sem)
    assert abs(sampled.mse - found.mse) < 4.0 * error
    assert error < 0.05 * found.mse
    assert sampled.missed_messages > 50


def test_optimised_tables_gain_over_the_nested_quantiser() -> None:
    """By .3 dB at K = 1 and .6 dB at K = 2, 1 bit, as measured, and they stay above the limit."""
    for decoders, gain in ((1, 0.25), (2, 0.5)):
        nested = nested_integrated(decoders, 2, 0.5, 1000, 11)
        found = optimised_tables(decoders, 2, 1000, 12)
        assert nested.mse_db - found.mse_db > gain
        assert found.mse_db > wyner_ziv_db(1.0, decoders)


def test_private_races_are_worth_decibels_where_the_rule_is_common() -> None:
    """2.0 dB or more at K = 4, 3 bits (3.9 measured), and nothing at K = 1, where both are the same scheme."""
    setting = Setting(4.0, 0.1, 0.5)
    private, shared = (run_setting(4, 8, kind, setting, 400, 9) for kind in (False, True))
    assert shared.mse_db - private.mse_db > 2.0 + 3.0 * math.hypot(private.sem_db, shared.sem_db)
    one = [run_setting(1, 8, kind, setting, 50, 9) for kind in (False, True)]
    assert one[0] == one[1]


@pytest.mark.parametrize("scheme", [name for name in REFERENCES if installed(name)])
def test_every_reference_makes_a_record(scheme: str) -> None:
    reference = REFERENCES[scheme]
    cell = Cell(scheme, reference.couplings[0], 2 if 2 in reference.decoders else 1, 8)
    record = measure_reference(cell, 800, 10)
    assert (record.scheme, record.coupling, record.bits) == (scheme, cell.coupling, 3)
    # Each has one of the two figures of mse_db, far below what no message gives at this K, but for random coding.
    best = record.mse_db if record.mse_db_integrated is None else record.mse_db_integrated
    assert best is not None
    assert -40.0 < best < (-6.0 if scheme == "random" else -13.0)
    gaussian_row(record)


def test_blocks_refuse() -> None:
    with refused("decoders"):
        block_quantiser(2, 8, 4.0, 0.5, 10, 3, cubic=False)
    with refused("bins"):
        block_quantiser(1, 3, 4.0, 0.5, 10, 3, cubic=True)


def test_minimal_random_coding_is_far_from_the_rate_distortion_function() -> None:
    """One candidate more a bit helps, but 6 bits stay above D = 2^-12."""
    errors = [minimal_random_coding(bins, 0.02, 20000, 4).mse for bins in (4, 16, 64)]
    assert errors[0] > errors[1] > errors[2] > 2.0**-12


def test_entropy_coded_quantiser_is_a_quarter_bit_off() -> None:
    """At high rate a uniform quantiser with ideal coding costs 1.53 dB, ¼ bit (Gish and Pierce, 1968)."""
    pytest.importorskip("constriction")
    found = entropy_coded_quantiser(0.125, 100000, 5)
    gap = 10.0 * math.log10(found.mse * 4.0**found.bits)
    assert gap == pytest.approx(1.53, abs=0.1)
    with refused("step"):
        entropy_coded_quantiser(0.0, 10, 5)
