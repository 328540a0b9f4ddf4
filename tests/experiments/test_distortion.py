"""Distortion from hand-computed arrays: best of K, both image conventions, paired gains."""

from __future__ import annotations

import math

import numpy as np
import pytest

from experiments.coding import Outcome
from experiments.distortion import (
    best_squared_errors,
    compare_with_baseline,
    image_record,
    standard_error,
)
from tests.models import make_session

NAN = math.nan
SESSION = make_session(pool_size=64, bins=8, decoders=2)

# Three messages of 1×2 pixels, two decoders; squared errors a pixel, by hand, beside each.
SOURCES = np.array([[[0.0, 1.0]], [[-1.0, -1.0]], [[0.5, 0.0]]])
RECONSTRUCTIONS = np.array(
    [
        [[[0.0, 0.0]], [[1.0, 1.0]], [[0.5, 0.5]]],  # 0.5, 4.0, 0.125
        [[[1.0, 1.0]], [[0.0, -1.0]], [[NAN, NAN]]],  # 0.5, 0.5, 0.125 as if it were (0, 0)
    ]
)
OUTCOME = Outcome(
    encoder_picks=np.array([5, 6, 7]),
    decoder_picks=np.array([[5, 1, 2], [5, 6, -1]]),
    reconstructions=RECONSTRUCTIONS,
    payload_bytes=2,
)


def test_best_of_decoders() -> None:
    """Message by message, over all pixels of one reconstruction; a failed one counts as mid-grey."""
    assert best_squared_errors(SOURCES, RECONSTRUCTIONS).tolist() == [0.5, 0.5, 0.125]
    assert best_squared_errors(SOURCES, RECONSTRUCTIONS[:1]).tolist() == [0.5, 4.0, 0.125]
    assert best_squared_errors(SOURCES, RECONSTRUCTIONS[1:]).tolist() == [0.5, 0.5, 0.125]


def test_best_is_not_mixed_from_pixels() -> None:
    """Each of two decoders has one pixel right: no decoder has both."""
    reconstructions = np.array([[[[0.0, 0.0]]], [[[2.0, 1.0]]]])
    assert best_squared_errors(SOURCES[:1], reconstructions).tolist() == [0.5]


def test_best_of_scalars() -> None:
    """Sources without pixels; a failed message counts as the prior mean."""
    found = best_squared_errors(np.array([1.0, -2.0]), np.array([[0.5, NAN], [3.0, 1.0]]))
    assert found.tolist() == [0.25, 4.0]


def test_image_conventions() -> None:
    """Errors a pixel in [-1, 1] of the half: halved for the paper's blank half, quartered for [0, 1] pixels."""
    record = image_record("mnist", SESSION, OUTCOME, np.array([0.5, 0.5, 0.125]), 1.23456)
    assert record.mse_paper == pytest.approx(0.1875)
    assert record.mse == pytest.approx(0.09375)
    assert record.psnr_db == pytest.approx(10.280287)
    # Sample deviation 0.2165064, over √3, halved.
    assert record.mse_paper_sem == pytest.approx(0.0625)
    assert (record.mean_db, record.mse_db, record.noise_variances) == (None, None, None)


def test_counts() -> None:
    """Match: the encoder's pick at one decoder at least. Failure: at one decoder at least."""
    record = image_record("mnist", SESSION, OUTCOME, np.array([0.5, 0.5, 0.125]), 1.23456)
    assert OUTCOME.matched.tolist() == [True, True, False]
    assert record.match_probability == pytest.approx(2 / 3)
    assert (record.failed_messages, record.messages, record.payload_bytes) == (1, 3, 2)
    cell = record.source, record.coupling, record.decoders, record.bins, record.bits, record.pool_size
    assert cell == ("mnist", "gls", 2, 8, 3, 64)
    assert record.seconds == pytest.approx(1.235)


def test_paired_difference() -> None:
    """Baseline less GLS on the same messages, in the paper's convention; its error is that of the differences."""
    gls, baseline = np.array([0.5, 0.5, 0.125]), np.array([0.9, 0.7, 0.725])
    record = compare_with_baseline(image_record("mnist", SESSION, OUTCOME, gls, 1.0), gls, baseline)
    assert record.baseline_minus_gls == pytest.approx(0.2)  # (0.4 + 0.2 + 0.6) / 3 / 2
    assert record.baseline_minus_gls_sem == pytest.approx(0.1 / math.sqrt(3))
    assert record.mse_paper == pytest.approx(0.1875)
    worse = compare_with_baseline(record, baseline, gls)
    assert worse.baseline_minus_gls == pytest.approx(-0.2)


@pytest.mark.parametrize(("values", "expected"), [([2.0, 2.0], 0.0), ([0.0, 2.0], 1.0)])
def test_standard_error(values: list[float], expected: float) -> None:
    assert standard_error(np.array(values)) == pytest.approx(expected)
