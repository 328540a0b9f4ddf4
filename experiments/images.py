"""MNIST digits: those that come with the package, and torchvision's download."""

from __future__ import annotations

import gzip
from importlib import resources
from pathlib import Path

import numpy as np

from encoder.files import read_idx
from encoder.image_task import Images, ImageTask
from shared_rng import CodecError

MNIST = ImageTask("mnist", height=28, width=28, side="left", crop=14)
"""The right half (28×14) from 14×14 crops of the left half, so a crop's row is in 0 … 14."""

CACHE = Path.home() / ".cache" / "gumbelcast"
BUNDLED = "mnist-test-1000-images-idx3-ubyte.gz"
"""The bundled digits are numbers 0, 10, 20 … of the 10,000 test digits."""


def bundled_digits(count: int) -> Images:
    """The first ``count`` of the 1,000 MNIST test digits that come with the package: uint8 [count, 28, 28].

    Raises:
        CodecError: the count is not in 1 … 1000.
    """
    digits = read_idx(gzip.decompress(resources.files("experiments").joinpath("data", BUNDLED).read_bytes()), BUNDLED)
    if not 1 <= count <= len(digits):
        raise CodecError("digits", count, f"1 … {len(digits)}")
    return digits[:count]


def mnist_digits(folder: Path | None, *, train: bool) -> Images:
    """All digits of one split: uint8 [60000 or 10000, 28, 28].

    Args:
        folder: a data folder as torchvision lays it out; None for torchvision's own download, kept in
            ``~/.cache/gumbelcast``.
        train: the training split or the test split.

    Raises:
        CodecError: the files are missing and cannot be downloaded, or no IDX files of such images.
    """
    split = f"{'train' if train else 't10k'}-images-idx3-ubyte"
    path = (folder or CACHE) / "MNIST" / "raw" / split
    if not path.is_file() and folder is None:
        _download(CACHE, train=train)
    if not path.is_file():
        raise CodecError("MNIST", f"no file {path}", "--data DIR with MNIST/raw as torchvision lays it out")
    digits = read_idx(path.read_bytes(), str(path))
    if digits.dtype != np.uint8 or digits.ndim != 3 or digits.shape[1:] != (28, 28):
        raise CodecError(str(path), f"{digits.dtype} {list(digits.shape)}", "uint8 [B, 28, 28]")
    return digits


def _download(folder: Path, *, train: bool) -> None:
    from torchvision.datasets import MNIST

    try:
        MNIST(str(folder), train=train, download=True)
    except (OSError, RuntimeError) as error:
        expected = "a network, or --data DIR with the files in DIR/MNIST/raw"
        raise CodecError("MNIST download", reason_of(error), expected) from error


def reason_of(error: Exception) -> str:
    """Why a download failed, in one line: what torchvision says first, and what the last address answered."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) < 2:
        return lines[0] if lines else type(error).__name__
    return f"{lines[0].rstrip(':')}: {lines[-1]}"
