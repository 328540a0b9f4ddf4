"""Whole images, of which a task makes sources and crops: a folder of pictures, or one file of arrays."""

from __future__ import annotations

import lzma
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from encoder.files import read_idx, read_picture
from encoder.image_task import Images
from shared_rng import CodecError, load_npy

_ARRAY_NAMES = ("train_images", "images")
_ARCHIVE = "a readable .npz file"
# What reading a damaged, encrypted or oddly packed archive raises, and a header that asks for more than there is.
_DAMAGED = (
    EOFError, MemoryError, OSError, RuntimeError, SyntaxError, ValueError, lzma.LZMAError, zipfile.BadZipFile,
    zlib.error,
)  # fmt: skip


@dataclass(frozen=True)
class WantedImages:
    """What images must be.

    Attributes:
        option: of the command line that names them.
        sizes: height and width; all images are of one of these.
        reason: where the sizes come from, for errors.
        channels: 1 (grey), 3 (grey images get three equal channels), or None for either, as the images are.
    """

    option: str
    sizes: tuple[tuple[int, int], ...]
    reason: str
    channels: int | None = None

    def __str__(self) -> str:
        """The sizes, for an error."""
        return f"{' or '.join(f'{height}×{width}' for height, width in self.sizes)}, {self.reason}"


def read_images(path: Path, wanted: WantedImages) -> Images:
    """All images of a folder (pictures, in the order of their names) or of a ``.npz``, ``.npy`` or IDX file.

    Args:
        path: the folder or file. A ``.npz`` file holds an array ``train_images`` or ``images``.
        wanted: what they must be.

    Returns:
        uint8 [B, height, width], or [B, height, width, 3]: as soon as one image has colours, if both may be.

    Raises:
        CodecError: there is nothing to read, or an image is of another size or unreadable, or in colour where it must
            be grey; it names the file.
    """
    if path.is_dir():
        return _folder(path, wanted)
    if not path.is_file():
        raise CodecError(
            wanted.option, f"no file or folder {path}", "a folder of pictures, or a .npz, .npy or IDX file"
        )
    suffix = path.suffix.lower()
    if suffix == ".npz":
        images = read_archive(path, *_ARRAY_NAMES)
    elif suffix == ".npy":
        images = load_npy(path, wanted.option)
    else:
        images = read_idx(path.read_bytes(), str(path))
    grey, colour = [(*size,) for size in wanted.sizes], [(*size, 3) for size in wanted.sizes]
    shapes = grey if wanted.channels == 1 else grey + colour
    if images.dtype != np.uint8 or images.shape[1:] not in shapes:
        expected = " or ".join(f"[B, {', '.join(map(str, shape))}]" for shape in shapes)
        raise CodecError(str(path), f"{images.dtype} {list(images.shape)}", f"uint8 {expected}, {wanted.reason}")
    return in_colour(images) if wanted.channels == 3 and images.ndim == 3 else images


def in_colour(images: Images) -> Images:
    """Grey images [..., height, width] with three equal channels: [..., height, width, 3]."""
    return np.repeat(images[..., None], 3, axis=-1)


def _folder(path: Path, wanted: WantedImages) -> Images:
    files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    if not files:
        raise CodecError(str(path), "an empty folder", "pictures")
    pictures: list[Images] = []
    for file in files:
        picture = read_picture(file)
        size = picture.shape[:2]
        if size not in wanted.sizes:
            raise CodecError(str(file), f"{size[0]}×{size[1]} pixels", wanted)
        if pictures and size != pictures[0].shape[:2]:
            first = "×".join(map(str, pictures[0].shape[:2]))
            raise CodecError(str(file), f"{size[0]}×{size[1]} pixels", f"{first}, as {files[0].name} has")
        if wanted.channels == 1 and picture.ndim == 3:
            raise CodecError(str(file), "a colour image", "a grey image, since the model's sources are grey")
        pictures.append(picture)
    if wanted.channels != 3 and all(picture.ndim == 2 for picture in pictures):
        return np.stack(pictures)
    return np.stack([picture if picture.ndim == 3 else in_colour(picture) for picture in pictures])


def read_archive(path: Path, *names: str) -> npt.NDArray[Any]:
    """The array of a ``.npz`` file that has the first of some names that is there.

    Raises:
        CodecError: the file cannot be read, or has no such array.
    """
    # Checked first: numpy.load would take other kinds of file for arrays or pickles.
    if not zipfile.is_zipfile(path):
        raise CodecError(str(path), "no archive, or a damaged one", _ARCHIVE)
    try:
        # Opened here, since numpy.load leaves a damaged file open.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            for name in names:
                if name in archive.files:
                    return np.asarray(archive[name])
            given = f"arrays {', '.join(archive.files)}"
    except _DAMAGED as error:
        raise CodecError(str(path), str(error), _ARCHIVE) from error
    raise CodecError(str(path), given, f"an array {' or '.join(names)}")
