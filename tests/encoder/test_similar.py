"""Similar images: exact neighbours whatever the batch, fixed crops, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from encoder import similar
from encoder.image_task import ImageTask
from encoder.similar import SimilarImages, read_search_images
from shared_rng import ModelCard
from tests.models import gaussian_card, refused, uniforms

TASK = ImageTask("own", height=6, width=10, side="left", crop=4)
IMAGES = np.floor(256 * uniforms(90 * 60)).astype(np.uint8).reshape(90, 6, 10)
SOURCES = TASK.sources(np.floor(256 * uniforms(20 * 60, 2)).astype(np.uint8).reshape(20, 6, 10)).astype(np.float64)
CARD = ModelCard("vae", TASK.architecture(), {}, None, bytes(32))


def brute_force(sources: np.ndarray, images: np.ndarray, count: int) -> np.ndarray:
    pixels = np.rint((sources + 1.0) * 127.5).astype(np.int64).reshape(len(sources), -1)
    halves = images[:, :, 5:].astype(np.int64).reshape(len(images), -1)
    distances = np.square(pixels[:, None] - halves).sum(axis=2)
    return np.argsort(distances, axis=1, kind="stable")[:, :count]


@pytest.mark.parametrize("pairs", [1, 150, 2**21])
def test_nearest(monkeypatch: pytest.MonkeyPatch, pairs: int) -> None:
    """Exactly those of a scan in integers, in any chunks; of equals the first; a batch of one as a batch of many."""
    monkeypatch.setattr(similar, "_PAIRS", pairs)
    images = np.concatenate([IMAGES, IMAGES[:30]])
    found = SimilarImages(TASK, images)
    expected = brute_force(SOURCES, images, 7)
    assert np.array_equal(found.nearest(SOURCES, 7), expected)
    assert np.array_equal(np.concatenate([found.nearest(SOURCES[b : b + 1], 7) for b in range(20)]), expected)
    assert found.nearest(SOURCES[:2], 120).shape == (2, 120)


def test_large_sources_are_compared_exactly() -> None:
    """Where products of pixels do not fit into single precision together; extremes, one pixel apart."""
    task = ImageTask("large", height=64, width=64, channels=3, side="left", crop=8)
    images = np.zeros((6, 64, 64, 3), dtype=np.uint8)
    images[3:] = 255
    images[1, 0, 63, 0], images[4, 63, 63, 2] = 1, 254
    found = SimilarImages(task, images).nearest(task.sources(images[[1, 4]]).astype(np.float64), 3)
    assert found.tolist() == [[1, 0, 2], [4, 3, 5]]


def test_crops_are_those_of_the_task() -> None:
    """Decoder k's crop of an image is always the same one."""
    numbers = np.array([[3, 80, 3], [0, 1, 2]])
    crops = SimilarImages(TASK, IMAGES).crops(numbers, 3)
    assert crops.shape == (2, 3, 3, 4, 4)
    for k in range(3):
        assert np.array_equal(crops[:, :, k], TASK.side_information(IMAGES, k)[numbers])


def test_what_is_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", IMAGES)
    assert read_search_images(CARD, None, 0) is None
    assert read_search_images(gaussian_card(), None, 24) is None
    found = read_search_images(CARD, tmp_path / "a.npy", 90)
    assert found is not None
    assert np.array_equal(found.nearest(SOURCES, 3), brute_force(SOURCES, IMAGES, 3))


def test_refusals(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", IMAGES)
    np.save(tmp_path / "wide.npy", np.zeros((90, 6, 12), dtype=np.uint8))
    np.save(tmp_path / "colour.npy", np.zeros((90, 6, 10, 3), dtype=np.uint8))
    with refused("--search", "8 without --search-images", "--search-images with images"):
        read_search_images(CARD, None, 8)
    with refused("--search-images", "a.npy without --search", "the number of similar images"):
        read_search_images(CARD, tmp_path / "a.npy", 0)
    with refused("--search-images", "with a gaussian model", "a model of images"):
        read_search_images(gaussian_card(), tmp_path / "a.npy", 8)
    with refused("a.npy", "90 images", "at least 91"):
        read_search_images(CARD, tmp_path / "a.npy", 91)
    with refused("--search-images", "no file or folder"):
        read_search_images(CARD, tmp_path / "absent", 8)
    for name in ("wide.npy", "colour.npy"):
        with refused(name, "uint8", "uint8 [B, 6, 10] or [B, 6, 9], for the model's sources"):
            read_search_images(CARD, tmp_path / name, 8)
