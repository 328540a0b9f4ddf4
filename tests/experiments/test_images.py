"""Digits: the bundled ones, those of a folder, and what is said when data is missing."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torchvision.datasets

from experiments import images
from tests.models import refused


def test_bundled_digits() -> None:
    """1,000 test digits, pinned; fewer are the first of them."""
    digits = images.bundled_digits(1000)
    assert (digits.shape, digits.dtype) == ((1000, 28, 28), np.uint8)
    assert hashlib.sha256(digits.tobytes()).hexdigest() == (
        "7185a4f5272ad30b570eefeba02b9b2e8df301e55a174a34fc14b032acf68b2d"
    )
    assert np.array_equal(images.bundled_digits(7), digits[:7])


@pytest.mark.parametrize("count", [0, -1, 1001])
def test_as_many_as_there_are(count: int) -> None:
    with refused("digits", str(count), "1 … 1000"):
        images.bundled_digits(count)


def write_split(folder: Path, name: str, count: int, cut: int = 0) -> None:
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    header = b"\0\0\x08\x03" + np.array([count, 28, 28], dtype=">u4").tobytes()
    (raw / f"{name}-images-idx3-ubyte").write_bytes(header + bytes(count * 784 - cut))


@pytest.mark.parametrize(("name", "train"), [("train", True), ("t10k", False)])
def test_digits_of_a_folder(tmp_path: Path, name: str, train: bool) -> None:
    """As torchvision lays it out; the other split is not there."""
    write_split(tmp_path, name, 3)
    assert images.mnist_digits(tmp_path, train=train).shape == (3, 28, 28)
    other = "t10k" if train else "train"
    path = tmp_path / "MNIST" / "raw" / f"{other}-images-idx3-ubyte"
    with refused("MNIST", f"no file {path}", "--data DIR with MNIST/raw"):
        images.mnist_digits(tmp_path, train=not train)


def test_digits_of_a_damaged_file(tmp_path: Path) -> None:
    write_split(tmp_path, "train", 3, cut=1)
    with refused("train-images-idx3-ubyte", "2367 bytes", "2368 bytes for 3 images"):
        images.mnist_digits(tmp_path, train=True)


@pytest.mark.parametrize("shape", [(2, 32, 32), (2, 28), (2, 28, 28, 1)])
def test_digits_of_another_size(tmp_path: Path, shape: tuple[int, ...]) -> None:
    """The file is named."""
    write_split(tmp_path, "train", 3)
    path = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    header = bytes([0, 0, 8, len(shape)]) + np.array(shape, dtype=">u4").tobytes()
    path.write_bytes(header + bytes(int(np.prod(shape))))
    with refused(str(path)):
        images.mnist_digits(tmp_path, train=True)


class Downloads:
    """Takes the place of torchvision's data set; writes the split, or fails."""

    def __init__(self, error: Exception | None) -> None:
        self.error = error
        self.calls: list[tuple[str, bool, bool]] = []

    def __call__(self, folder: str, *, train: bool, download: bool) -> None:
        self.calls.append((folder, train, download))
        if self.error is not None:
            raise self.error
        write_split(Path(folder), "train" if train else "t10k", 2)


def downloads(monkeypatch: pytest.MonkeyPatch, cache: Path, error: Exception | None = None) -> Downloads:
    fake: Any = Downloads(error)
    monkeypatch.setattr(torchvision.datasets, "MNIST", fake)
    monkeypatch.setattr(images, "CACHE", cache)
    return fake  # type: ignore[no-any-return]


def test_a_folder_that_lacks_the_files_is_no_reason_to_download(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who names a folder means that folder."""
    fake = downloads(monkeypatch, tmp_path / "cache")
    with refused("MNIST", "no file", "--data DIR"):
        images.mnist_digits(tmp_path / "nowhere", train=True)
    assert fake.calls == []


def test_download_happens_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The split that is asked for, into the cache; afterwards it is there."""
    fake = downloads(monkeypatch, tmp_path)
    assert [len(images.mnist_digits(None, train=False)) for _ in range(2)] == [2, 2]
    assert fake.calls == [(str(tmp_path), False, True)]


@pytest.mark.parametrize(
    ("error", "given"),
    [
        (RuntimeError("Error downloading images.gz:\nTried a, got:\n<1>\nTried b, got:\n<2>\n"), "images.gz: <2>"),
        (OSError("<urlopen error [Errno -3] Temporary failure>"), "Temporary failure"),
        (ConnectionResetError(), "ConnectionResetError"),
    ],
)
def test_download_without_a_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, given: str
) -> None:
    """One line that says what to do."""
    downloads(monkeypatch, tmp_path, error)
    with refused("MNIST download", given, "a network, or --data DIR with the files in DIR/MNIST/raw"):
        images.mnist_digits(None, train=True)
