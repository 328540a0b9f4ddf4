"""A user's own images to train on: a folder of pictures, or one file of arrays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from encoder.files import read_idx, read_picture
from experiments.datasets import read_archive
from experiments.image_task import Images
from shared_rng import CodecError, load_npy

_ARRAY_NAMES = ("train_images", "images")


def load_user_images(path: Path, height: int, width: int) -> Images:
    """All images of a folder (pictures, in the order of their names) or of a ``.npz``, ``.npy`` or IDX file.

    Args:
        path: the folder or file. A ``.npz`` file holds an array ``train_images`` or ``images``.
        height: that every image has.
        width: that every image has.

    Returns:
        uint8 [B, height, width], or [B, height, width, 3] as soon as one image has colours.

    Raises:
        CodecError: there is nothing to read, or an image is of another size or unreadable; it names the file.
    """
    if path.is_dir():
        return _folder(path, height, width)
    if not path.is_file():
        raise CodecError("--images", f"no file or folder {path}", "a folder of pictures, or a .npz, .npy or IDX file")
    if path.suffix == ".npz":
        images = read_archive(path, *_ARRAY_NAMES)
    elif path.suffix == ".npy":
        images = load_npy(path, "--images")
    else:
        images = read_idx(path.read_bytes(), str(path))
    shapes = ((height, width), (height, width, 3))
    if images.dtype != np.uint8 or images.shape[1:] not in shapes:
        expected = f"uint8 [B, {height}, {width}] or [B, {height}, {width}, 3], as --size has it"
        raise CodecError(str(path), f"{images.dtype} {list(images.shape)}", expected)
    return images


def _folder(path: Path, height: int, width: int) -> Images:
    files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    if not files:
        raise CodecError(str(path), "an empty folder", "pictures")
    pictures = []
    for file in files:
        picture = read_picture(file)
        if picture.shape[:2] != (height, width):
            given = f"{picture.shape[0]}×{picture.shape[1]} pixels"
            raise CodecError(str(file), given, f"{height}×{width}, as --size has it")
        pictures.append(picture)
    if all(picture.ndim == 2 for picture in pictures):
        return np.stack(pictures)
    return np.stack([p if p.ndim == 3 else np.repeat(p[:, :, None], 3, axis=2) for p in pictures])
