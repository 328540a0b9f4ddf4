"""Source samples from files: ``.npy`` arrays, IDX image files (also gzip), and images."""

from __future__ import annotations

import gzip
import io
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image, UnidentifiedImageError

from shared_rng import CodecError, load_npy

MAX_PIXELS = 2**25
"""Pixels of one image file."""
_AFFORDABLE = f"an image of at most {MAX_PIXELS} pixels"
_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_DEEP = ("I", "F")
"""Modes of pictures with more than 8 bits a channel, which Pillow would clip."""
# What Pillow's readers raise at damaged files.
_DAMAGED = (
    ArithmeticError, AttributeError, EOFError, LookupError, OSError, RuntimeError, SyntaxError, TypeError, UserWarning,
    ValueError, struct.error, zlib.error,
)  # fmt: skip
MAX_UNPACKED = 2**30
"""Bytes of an unpacked gzip file."""

_IDX_IMAGES = b"\x00\x00\x08\x03"


def read_idx(data: bytes, name: str) -> npt.NDArray[np.uint8]:
    """Images of an IDX file: uint8 [B, height, width].

    Raises:
        CodecError: it is no IDX file of 8-bit images, or its length does not belong to its header.
    """
    if data[:4] != _IDX_IMAGES or len(data) < 16:
        raise CodecError(name, f"a file that begins with {data[:4].hex() or 'nothing'}", "IDX images, 00000803")
    count, height, width = (int(n) for n in np.frombuffer(data[4:16], dtype=">u4"))
    if len(data) != 16 + count * height * width:
        raise CodecError(name, f"{len(data)} bytes", f"{16 + count * height * width} bytes for {count} images")
    return np.frombuffer(data, dtype=np.uint8, offset=16).reshape(count, height, width)


def to_unit_range(pixels: npt.NDArray[np.uint8]) -> npt.NDArray[np.float32]:
    """8-bit pixels → [-1, 1] in single precision, same shape."""
    return (pixels.astype(np.float64) / 127.5 - 1.0).astype(np.float32)


def read_sources(path: Path, source_shape: tuple[int, ...], side: str = "left") -> npt.NDArray[np.floating]:
    """Source samples of one file: float32 or float64 [B, *source_shape].

    A ``.npy`` file holds one sample a row. 8-bit pixels are mapped to [-1, 1], and an image that is larger than
    a source, but not across, is cut at ``side``, so that whole digits can be sent. A grey image serves a model of
    colour images, with three equal channels; a colour image is refused by a grey model.

    Raises:
        CodecError: the file is missing, of no known kind, or its samples have another shape.
    """
    if not path.is_file():
        raise CodecError("source file", path, "an existing .npy, IDX or image file")
    samples = _read(path, colour=len(source_shape) == 3)
    if samples.dtype == np.uint8 and source_shape:
        samples = to_unit_range(samples)
        if len(source_shape) in (2, 3) and samples.ndim == 1 + len(source_shape):
            samples = without(side, samples, *source_shape[:2])
    if samples.dtype.kind != "f" or samples.dtype.itemsize not in (4, 8):
        raise CodecError(str(path), f"dtype {samples.dtype}", "float32, float64 or uint8")
    if samples.ndim != 1 + len(source_shape) or samples.shape[1:] != source_shape:
        raise CodecError(str(path), f"samples of shape {samples.shape[1:]}", f"samples of shape {source_shape}")
    return samples.astype(samples.dtype.newbyteorder("="))


def without(side: str, images: npt.NDArray[Any], height: int, width: int) -> npt.NDArray[Any]:
    """What is left of images [B, H, W, ...] when they are cut at one side to the source's height or width."""
    if side in ("left", "right"):
        return images[:, :, -width:] if side == "left" else images[:, :, :width]
    return images[:, -height:] if side == "top" else images[:, :height]


def _read(path: Path, *, colour: bool) -> npt.NDArray[Any]:
    if path.suffix == ".npy":
        return np.asarray(load_npy(path, "source file"))
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
                data = stream.read(MAX_UNPACKED + 1)
        except (OSError, EOFError, zlib.error) as error:
            raise CodecError(str(path), str(error), "a complete gzip file") from error
        if len(data) > MAX_UNPACKED:
            raise CodecError(str(path), f"more than {MAX_UNPACKED} bytes unpacked", "a smaller file")
    if data[:4] == _IDX_IMAGES:
        return read_idx(data, str(path))
    picture = read_picture(path)
    if colour:
        return picture[None] if picture.ndim == 3 else np.repeat(picture[None, :, :, None], 3, axis=3)
    if picture.ndim == 3:
        raise CodecError(str(path), "a colour image", "a grey image, since the model's sources are grey")
    return picture[None]


def read_picture(path: Path) -> npt.NDArray[np.uint8]:
    """One image file: uint8 [height, width], or [height, width, 3] where its colours are not all grey.

    Raises:
        CodecError: it is no image, damaged, or too large.
    """
    # Pillow warns of damage where it could go on, and of large images when it has read their size; ours is the limit.
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)
        try:
            with Image.open(path, formats=_FORMATS) as image:
                return _pixels(image, path)
        except CodecError:
            raise
        except UnidentifiedImageError as error:
            raise CodecError(str(path), "an unknown kind of file", "a .npy, IDX or image file") from error
        except Image.DecompressionBombError as error:
            raise CodecError(str(path), str(error), _AFFORDABLE) from error
        except _DAMAGED as error:
            raise CodecError(str(path), f"no readable image ({error})", "a .npy, IDX or image file") from error


def _pixels(image: Image.Image, path: Path) -> npt.NDArray[np.uint8]:
    if image.width * image.height > MAX_PIXELS:
        raise CodecError(str(path), f"{image.width}×{image.height} pixels", _AFFORDABLE)
    if image.mode.startswith(_DEEP):
        raise CodecError(str(path), f"pixels of mode {image.mode}", "8 bits a channel")
    colours = np.asarray(image.convert("RGB"))
    if (colours == colours[:, :, :1]).all():
        return np.asarray(image.convert("L"))
    return colours
