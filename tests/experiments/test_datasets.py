"""Data sets by name: CIFAR-10 from an archive or torchvision's files, and what is said when they are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision.datasets

from experiments import images
from experiments.datasets import CIFAR10, load_images, task_of
from experiments.images import MNIST
from tests.models import refused, uniforms

PICTURES = np.floor(256 * uniforms(4 * 3072)).astype(np.uint8).reshape(4, 32, 32, 3)


def test_tasks() -> None:
    assert (task_of("mnist"), task_of("cifar10")) == (MNIST, CIFAR10)
    assert (CIFAR10.source_shape, CIFAR10.side_shape) == ((32, 16, 3), (16, 16, 3))
    with refused("data set", "'fashion'", "mnist, cifar10, or --images"):
        load_images("fashion", None, train=True)


def test_archive(tmp_path: Path) -> None:
    """Each split is an array of its own."""
    np.savez(tmp_path / "cifar10.npz", train_images=PICTURES, test_images=PICTURES[:2])
    assert np.array_equal(load_images("cifar10", tmp_path, train=True), PICTURES)
    assert np.array_equal(load_images("cifar10", tmp_path, train=False), PICTURES[:2])


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two(tmp_path: Path, count: int) -> None:
    """Figures of one image have no standard error."""
    np.savez(tmp_path / "cifar10.npz", train_images=PICTURES[:count], test_images=PICTURES[:count])
    for train, split in ((True, "training"), (False, "test")):
        with refused(f"cifar10, {split} images", str(count), "at least 2"):
            load_images("cifar10", tmp_path, train=train)


@pytest.mark.parametrize(
    ("arrays", "given", "expected"),
    [
        ({"train_images": PICTURES.astype(float)}, "float64", "uint8 [B, 32, 32, 3]"),
        ({"train_images": PICTURES[:, :16]}, "(4, 16, 32, 3)", "uint8 [B, 32, 32, 3]"),
        ({"images": PICTURES}, "arrays images", "an array train_images"),
    ],
)
def test_archive_of_something_else(tmp_path: Path, arrays: dict[str, Any], given: str, expected: str) -> None:
    np.savez(tmp_path / "cifar10.npz", **arrays)
    with refused(str(tmp_path / "cifar10.npz"), given, expected):
        load_images("cifar10", tmp_path, train=True)


def test_missing_files(tmp_path: Path) -> None:
    """Who names a folder means that folder: nothing is downloaded."""
    with refused(f"CIFAR-10 in {tmp_path}", expected="cifar-10-batches-py"):
        load_images("cifar10", tmp_path, train=True)


@pytest.mark.parametrize("folder", [True, False])
def test_torchvision_reads_its_own_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: bool) -> None:
    """From the folder, or downloaded into the cache where none is named."""
    calls = []

    class Fake:
        data = PICTURES

        def __init__(self, root: str, *, train: bool, download: bool) -> None:
            calls.append((root, train, download))

    monkeypatch.setattr(torchvision.datasets, "CIFAR10", Fake)
    monkeypatch.setattr(images, "CACHE", tmp_path / "cache")
    found = load_images("cifar10", tmp_path if folder else None, train=False)
    assert np.array_equal(found, PICTURES)
    assert calls == [(str(tmp_path if folder else tmp_path / "cache"), False, not folder)]
