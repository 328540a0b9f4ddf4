"""Halves and crops: shapes, alignment, stable offsets, every side, grey and colour."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from encoder.image_task import ImageTask, Side, whole_sizes
from experiments import images
from experiments.datasets import CIFAR10
from experiments.images import MNIST
from shared_rng import ModelCard
from tests.models import refused

RAMP = np.arange(28 * 28).reshape(1, 28, 28).astype(np.uint8)

OFFSETS = {
    0: [14, 9, 11, 9, 3, 2, 7, 0, 8, 12, 8, 5],
    1: [3, 4, 7, 5, 1, 0, 5, 5, 12, 8, 13, 4],
    2: [13, 6, 0, 2, 6, 13, 3, 9, 6, 9, 12, 13],
}
"""Golden: other crops would be another data set, and published figures could not be compared."""


@pytest.mark.parametrize("decoder", OFFSETS)
def test_offsets_are_pinned(decoder: int) -> None:
    """And the first ones do not depend on how many are asked for."""
    for count in (12, 1000):
        rows, columns = MNIST.offsets(count, decoder)
        assert rows[:12].tolist() == OFFSETS[decoder]
        assert not columns.any()


def test_offsets_are_uniform() -> None:
    """All of 0 … 14 and no other, about equally often, independently for each decoder."""
    offsets = np.stack([MNIST.offsets(15000, decoder)[0] for decoder in range(3)])
    counts = np.stack([np.bincount(row, minlength=15) for row in offsets])
    assert counts.shape == (3, 15)
    # 1,000 expected, standard deviation 30.6; five of them.
    assert np.abs(counts - 1000).max() < 153
    for first, second in ((0, 1), (0, 2), (1, 2)):
        assert abs(np.corrcoef(offsets[first], offsets[second])[0, 1]) < 5 / np.sqrt(15000)


def test_sources_are_in_the_unit_range() -> None:
    extremes = np.zeros((1, 28, 28), dtype=np.uint8)
    extremes[0, 0, 14] = 255
    found = MNIST.sources(extremes)
    assert (found.shape, found.dtype) == ((1, 28, 14), np.float32)
    assert (found.min(), found.max(), found[0, 0, 0]) == (-1.0, 1.0, 1.0)


@pytest.mark.parametrize("offset", [0, 3, 14])
def test_crops_are_rows_of_left_halves(offset: int) -> None:
    found = MNIST.crops(RAMP, np.array([offset]), np.array([0]))
    assert (found.shape, found.dtype) == ((1, 14, 14), np.uint8)
    assert np.array_equal(found[0], RAMP[0, offset : offset + 14, :14])


def test_side_information() -> None:
    """Each digit with its own offset, in [-1, 1]; nothing of the source half is in it."""
    digits = images.bundled_digits(12)
    found = MNIST.side_information(digits, 1)
    assert (found.shape, found.dtype) == ((12, 14, 14), np.float32)
    for digit, side, offset in zip(digits, found, OFFSETS[1], strict=True):
        assert np.array_equal(np.rint((side + 1.0) * 127.5), digit[offset : offset + 14, :14])


def pixels(values: Any) -> Any:
    """[-1, 1] back to 8 bits."""
    return np.rint((values + 1.0) * 127.5)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(
    ("side", "source", "half"),
    [
        ("left", np.s_[:, :, 2:], np.s_[:, :, :2]),
        ("right", np.s_[:, :, :3], np.s_[:, :, 3:]),
        ("top", np.s_[:, 3:], np.s_[:, :3]),
        ("bottom", np.s_[:, :4], np.s_[:, 4:]),
    ],
)
def test_every_side(side: Side, source: Any, half: Any, channels: int) -> None:
    """Of 7×5 images: the source is all that the half is not, and every crop of the half can come."""
    task = ImageTask("own", 7, 5, channels, side, crop=2)
    shape = (400, 7, 5) if channels == 1 else (400, 7, 5, 3)
    pictures = np.arange(np.prod(shape)).reshape(shape).astype(np.uint8)
    expected = pictures[source]
    assert expected.shape[1:] == task.source_shape
    assert np.array_equal(pixels(task.sources(pictures)), expected)
    rows, columns = task.offsets(400, 1)
    crops = task.side_information(pictures, 1)
    assert crops.shape == (400, *task.side_shape)
    other = pictures[half]
    assert (set(rows), set(columns)) == (set(range(other.shape[1] - 1)), set(range(other.shape[2] - 1)))
    for picture, crop, row, column in zip(other, crops, rows, columns, strict=True):
        assert np.array_equal(pixels(crop), picture[row : row + 2, column : column + 2])
    drawn = task.draw_offsets(np.random.default_rng(1), (400, 2))
    assert (drawn[0].shape, set(drawn[1].ravel())) == ((400, 2), set(columns))


def test_architecture() -> None:
    """Colour is named, grey is not: cards without ``channels`` are grey."""
    sizes = {"source_height": 28, "source_width": 14, "side_height": 14, "side_width": 14}
    assert MNIST.architecture() == sizes
    sizes = {"source_height": 32, "source_width": 16, "side_height": 16, "side_width": 16}
    assert CIFAR10.architecture() == sizes | {"channels": 3}
    assert ImageTask("own", 28, 28, side="top").architecture()["side"] == "top"


@pytest.mark.parametrize(
    ("change", "operand", "expected"),
    [
        ({"channels": 2}, "channels", "1 (grey) or 3 (colour)"),
        ({"side": "middle"}, "side", "left, right, top or bottom"),
        ({"height": 1}, "image size", "at least 2×2"),
        ({"crop": 0}, "crop", "1 … 14, inside the 28×14 half"),
        ({"crop": 15}, "crop", "1 … 14, inside the 28×14 half"),
    ],
)
def test_tasks_that_cannot_be(change: dict[str, Any], operand: str, expected: str) -> None:
    with refused(operand, expected=expected):
        ImageTask(**({"name": "own", "height": 28, "width": 28} | change))


@pytest.mark.parametrize(
    "task", [MNIST, CIFAR10, ImageTask("odd", 9, 6, 3, "bottom", 3), ImageTask("odd", 6, 9, 1, "left", 4)]
)
def test_task_of_a_card(task: ImageTask) -> None:
    """A card knows the sizes that its images may have, and how they are split."""
    card = ModelCard("vae", task.architecture(), {}, None, bytes(32))
    assert (task.height, task.width) in whole_sizes(card)
    assert ImageTask.of_card(card, task.height, task.width) == replace(task, name="images")
    with refused("image size", f"{task.height}×{task.width + 2}", "twice the model's"):
        ImageTask.of_card(card, task.height, task.width + 2)
    with refused("crops of the model", expected="square"):
        ImageTask.of_card(replace(card, architecture=card.architecture | {"side_width": 2}), task.height, task.width)


@pytest.mark.parametrize(
    ("task", "sizes"),
    [
        (ImageTask("own", 6, 10, 1, "left", 4), {(6, 10), (6, 9)}),
        (ImageTask("own", 10, 6, 3, "bottom", 4), {(10, 6), (9, 6)}),
        (ImageTask("own", 6, 8, 1, "right", 4), {(6, 8)}),
        (ImageTask("own", 8, 6, 1, "top", 4), {(8, 6)}),
        (MNIST, {(28, 28)}),
    ],
)
def test_sizes_of_whole_images(task: ImageTask, sizes: set[tuple[int, int]]) -> None:
    """Those whose smaller half holds a crop; the images of each can be split."""
    card = ModelCard("vae", task.architecture(), {}, None, bytes(32))
    assert set(whole_sizes(card)) == sizes
    for size in sizes:
        assert ImageTask.of_card(card, *size).source_shape == task.source_shape
