"""Checks that arrays pass at the boundary of either end: batches, and the files they come from."""

from __future__ import annotations

import math
import tokenize
from pathlib import Path
from typing import Any, BinaryIO, Literal

import numpy as np
import numpy.typing as npt

from shared_rng.errors import CodecError

PIXEL_LIMIT = 1.0
"""Pixels of images, which are rows of two axes or, in colour, of three, lie in [-1, 1]; scalars have no range."""


def checked_batch(
    name: str, values: npt.NDArray[np.floating], row_shape: tuple[int, ...], first_message: int
) -> npt.NDArray[np.float64]:
    """A batch as float64 [B, *row_shape] with B at least 1, every value finite and every pixel in [-1, 1].

    Args:
        name: what the values are, for the error.
        values: the batch.
        row_shape: shape of one row.
        first_message: message number of the first row.

    Raises:
        CodecError: the shape is wrong, or a value is NaN, infinite or out of range; the first message at fault is
            named.
    """
    checked = np.asarray(values, dtype=np.float64)
    if checked.ndim != 1 + len(row_shape) or checked.shape[1:] != row_shape or len(checked) == 0:
        expected = ", ".join(["B >= 1", *map(str, row_shape)])
        raise CodecError(name, f"shape {checked.shape}", f"shape ({expected})")
    finite = np.isfinite(checked).reshape(len(checked), -1).all(axis=1)
    if not finite.all():
        row = int(np.argmin(finite))
        raise CodecError(f"{name}, row {row} (message {first_message + row})", "NaN or infinity", "finite values")
    if len(row_shape) > 1:
        outside = np.abs(checked) > PIXEL_LIMIT
        if outside.any():
            row, *pixel = (int(place) for place in np.argwhere(outside)[0])
            operand = f"{name}, row {row} (message {first_message + row}), pixel {tuple(pixel)}"
            raise CodecError(operand, checked[row, *pixel], f"pixels in [{-PIXEL_LIMIT:g}, {PIXEL_LIMIT:g}]")
    return checked


def load_npy(path: Path, name: str, mmap_mode: Literal["r"] | None = None) -> npt.NDArray[Any]:
    """The array of a ``.npy`` file.

    Args:
        path: the file.
        name: what it holds, for the error.
        mmap_mode: ``r`` to leave it on disk.

    Raises:
        CodecError: the file is missing, no ``.npy`` file of numbers, or shorter than its shape says.
    """
    expected = "a .npy file of numbers"
    if not path.is_file():
        raise CodecError(name, f"no file {path}", expected)
    with path.open("rb") as stream:
        magic = stream.read(6)
    # Checked first: numpy.load would take other kinds of file for pickles or archives.
    if magic != b"\x93NUMPY":
        raise CodecError(str(path), f"a file that begins with {magic.hex() or 'nothing'}", expected)
    try:
        with path.open("rb") as stream:
            _require_complete(path, stream)
        array: npt.NDArray[Any] = np.load(path, mmap_mode=mmap_mode, allow_pickle=False)
    except CodecError:
        raise
    except (ValueError, EOFError, SyntaxError, tokenize.TokenError) as error:
        raise CodecError(str(path), str(error), expected) from error
    return array


def _require_complete(path: Path, stream: BinaryIO) -> None:
    """Compare the shape with the file's length: NumPy would make room for all of it first."""
    version = np.lib.format.read_magic(stream)
    if version not in ((1, 0), (2, 0)):
        raise CodecError(str(path), f".npy version {version[0]}.{version[1]}", "version 1.0 or 2.0")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(stream)
    expected, held = math.prod(shape) * dtype.itemsize, path.stat().st_size - stream.tell()
    if not dtype.hasobject and held < expected:
        raise CodecError(str(path), f"{held} bytes", f"a .npy file with {expected} for {dtype} of shape {shape}")
