"""Checks of a batch at the boundary: shape, finite values, the range of pixels, and who is named."""

from __future__ import annotations

import numpy as np
import pytest

from shared_rng import checked_batch
from tests.models import refused


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_accepted(dtype: str) -> None:
    """Pixels at both ends of the range in every type; scalars have no range."""
    pixels = np.array([[[0, 1], [1, 0]]]).astype(dtype)
    assert checked_batch("sources", pixels, (2, 2), 0).dtype == np.float64
    assert np.array_equal(checked_batch("sources", -pixels.astype(np.float64), (2, 2), 0), -pixels.astype(np.float64))
    assert checked_batch("sources", np.array([200, 0]).astype(dtype), (), 0).tolist() == [200.0, 0.0]


@pytest.mark.parametrize("shape", [(0, 2, 2), (2, 2), (3, 2, 1), (1, 2, 2, 1)])
def test_shapes(shape: tuple[int, ...]) -> None:
    with refused("sources", f"shape {shape}", "shape (B >= 1, 2, 2)"):
        checked_batch("sources", np.zeros(shape), (2, 2), 0)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite(value: float) -> None:
    """Named before the range, by row and message, in images and scalars."""
    pixels = np.zeros((3, 2, 2))
    pixels[0] = 7.0
    pixels[1, 0, 1] = value
    with refused("sources, row 1 (message 6)", "NaN or infinity", "finite values"):
        checked_batch("sources", pixels, (2, 2), 5)
    with refused("sources, row 0 (message 5)", "NaN or infinity", "finite values"):
        checked_batch("sources", np.array([value]), (), 5)


@pytest.mark.parametrize("colours", [(), (3,)])
@pytest.mark.parametrize("value", [np.nextafter(1.0, 2.0), np.nextafter(-1.0, -2.0), 255.0, -1e300])
def test_pixels_out_of_range(value: float, colours: tuple[int, ...]) -> None:
    """The first one is named with its row, message and place; there is no tolerance: 8-bit pixels map exactly."""
    pixels = np.zeros((4, 2, 3, *colours))
    pixels[2, 1, 0] = value
    pixels[3] = 9.0
    place = str((1, 0, *(0 for _ in colours)))
    with refused(f"side information, row 2 (message 12), pixel {place}", str(value), "pixels in [-1, 1]"):
        checked_batch("side information", pixels, (2, 3, *colours), 10)
