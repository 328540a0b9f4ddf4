"""MNIST halves: the right half is the source, random crops of the left half the side information.

arXiv 2506.05632, appendix D.4: crops of 14×14 from the left half (28×14), one a decoder, so the crop's
row offset is uniform in 0 … 14. Pixels are in [-1, 1].
"""

from __future__ import annotations

import gzip
from importlib import resources
from pathlib import Path

import numpy as np
import numpy.typing as npt

from encoder.files import read_idx, to_unit_range
from shared_rng import CodecError, philox

Images = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]

SIDE = 28
HALF = 14
CROP = 14
HELD_OUT = 5000
"""The last training digits are kept for choices that are made after training."""

_CACHE = Path.home() / ".cache" / "gumbelcast"
_CROP_SEED = 0x63726F7073
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
        CodecError: the files are missing and cannot be downloaded, or no IDX files.
    """
    split = f"{'train' if train else 't10k'}-images-idx3-ubyte"
    path = (folder or _CACHE) / "MNIST" / "raw" / split
    if not path.is_file() and folder is None:
        _download(_CACHE, train=train)
    if not path.is_file():
        raise CodecError("MNIST", f"no file {path}", "--data DIR with MNIST/raw as torchvision lays it out")
    return read_idx(path.read_bytes(), str(path))


def _download(folder: Path, *, train: bool) -> None:
    from torchvision.datasets import MNIST

    try:
        MNIST(str(folder), train=train, download=True)
    except (OSError, RuntimeError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        expected = "a network, or --data DIR with the files in DIR/MNIST/raw"
        raise CodecError("MNIST download", reason, expected) from error


def sources(digits: Images) -> Floats:
    """Right halves in [-1, 1]: [B, 28, 14]."""
    return to_unit_range(digits[:, :, HALF:])


def crop(digits: Images, offsets: npt.NDArray[np.int64]) -> Images:
    """The 14×14 crop of each left half from row ``offsets`` [B] on: uint8 [B, 14, 14]."""
    rows = offsets[:, None] + np.arange(CROP)
    return digits[np.arange(len(digits))[:, None], rows, :HALF]


def crop_offsets(count: int, decoder: int) -> npt.NDArray[np.int64]:
    """Row offset of decoder ``decoder``'s crop of each of the first ``count`` digits, in 0 … 14: [count]."""
    words = philox.words(_CROP_SEED, decoder, 0, 0, count)
    return (words % np.uint64(SIDE - CROP + 1)).astype(np.int64)


def side_information(digits: Images, decoder: int) -> Floats:
    """Decoder ``decoder``'s side information for each digit, in [-1, 1]: [B, 14, 14]."""
    return to_unit_range(crop(digits, crop_offsets(len(digits), decoder)))
