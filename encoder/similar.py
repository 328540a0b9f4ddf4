"""Images that are similar to a source: what the encoder knows of side information that it does not see."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import numpy.typing as npt

from encoder.files import to_unit_range
from encoder.image_task import Images, ImageTask, whole_sizes
from encoder.model import Floats
from encoder.whole_images import WantedImages, read_images
from shared_rng import CodecError, ModelCard

Numbers = npt.NDArray[np.int64]

OPTION = "--search-images"
_GREY = 128
_EXACT = 1024
"""Coordinates of which a dot product of numbers in -128 … 127 is exact in single precision, whatever its order."""
_AT_ONCE = 4096
"""Images that are cut at a time."""
_PAIRS = 2**21
"""Pairs of a source and an image that are compared at a time."""


class SimilarImages:
    """Whole images of a task, their halves that are like sources, and their crops.

    Distances are those of 8-bit pixels, in integers: neighbours depend on no batch and no processor.
    """

    def __init__(self, task: ImageTask, images: Images) -> None:
        """Keep images [n, height, width] or [n, height, width, 3], and five bytes more a pixel of their sources."""
        self._task = task
        self._images = images
        self._halves = np.empty((len(images), math.prod(task.source_shape)), dtype=np.float32)
        self._norms = np.empty(len(images), dtype=np.int64)
        for start in range(0, len(images), _AT_ONCE):
            rows = slice(start, start + _AT_ONCE)
            self._halves[rows] = _centred(task.sources(images[rows]))
            self._norms[rows] = np.square(self._halves[rows]).sum(axis=1, dtype=np.float64)
        self._offsets: dict[int, tuple[Numbers, Numbers]] = {}

    def __len__(self) -> int:
        """Number of images."""
        return len(self._images)

    def nearest(self, sources: Floats, count: int) -> Numbers:
        """The ``count`` images whose halves are nearest to each of sources [B, ...], the lowest of equals: [B, count].

        Squared distances over all pixels, nearest first.
        """
        wanted, size = _centred(sources), max(count, _PAIRS // len(sources))
        best = np.empty((len(sources), 0), dtype=np.int64)
        for start in range(0, len(self), size):
            rows = slice(start, start + size)
            distances = self._norms[rows] - 2 * _products(wanted, self._halves[rows])
            # Distance and number in one integer, so that a partition finds the lowest numbers of equals.
            keys = distances * len(self) + np.arange(len(self))[rows]
            best = np.concatenate((best, keys), axis=1)
            if best.shape[1] > count:
                best = np.partition(best, count - 1, axis=1)[:, :count]
        return np.sort(best, axis=1) % len(self)

    def crops(self, numbers: Numbers, decoders: int) -> Floats:
        """What K decoders would see of some images [B, J], each image with fixed crops: [B, J, K, *side_shape]."""
        flat = numbers.ravel()
        found = []
        for k in range(decoders):
            if k not in self._offsets:
                self._offsets[k] = self._task.offsets(len(self), k)
            rows, columns = self._offsets[k]
            found.append(self._task.crops(self._images[flat], rows[flat], columns[flat]))
        crops = to_unit_range(np.stack(found, axis=1)).astype(np.float64)
        return crops.reshape(*numbers.shape, decoders, *self._task.side_shape)


def _centred(sources: npt.NDArray[np.floating]) -> npt.NDArray[np.float32]:
    """8-bit pixels less 128 of sources [B, ...] in [-1, 1], flat: integers in -128 … 127."""
    pixels = np.rint((sources.reshape(len(sources), -1) + 1.0) * 127.5) - _GREY
    return np.asarray(np.clip(pixels, -_GREY, _GREY - 1), dtype=np.float32)


def _products(left: npt.NDArray[np.float32], right: npt.NDArray[np.float32]) -> Numbers:
    """Exact dot products of integers, left [B, A] with right [n, A]: [B, n]."""
    total = np.zeros((len(left), len(right)), dtype=np.int64)
    for start in range(0, left.shape[1], _EXACT):
        part = slice(start, start + _EXACT)
        total += (left[:, part] @ right[:, part].T).astype(np.int64)
    return total


def read_search_images(card: ModelCard, path: Path | None, search: int) -> SimilarImages | None:
    """What a model's encoder searches with, as ``--search`` and ``--search-images`` have it; None for no images.

    Args:
        card: the model's.
        path: a folder of pictures, or a ``.npz``, ``.npy`` or IDX file, of whole images.
        search: similar images a source, J, or 0.

    Raises:
        CodecError: an image model searches without images, or images are given where nothing searches with them;
            there are too few, or one does not fit the model; the file is named.
    """
    if path is None:
        if search and card.source != "gaussian":
            raise CodecError("--search", f"{search} without {OPTION}", f"{OPTION} with images of the model's kind")
        return None
    if card.source == "gaussian":
        raise CodecError(OPTION, f"{path} with a gaussian model", "a model of images")
    if not search:
        raise CodecError(OPTION, f"{path} without --search", "--search with the number of similar images a source")
    channels = 3 if len(card.image_shape("source")) == 3 else 1
    images = read_images(path, WantedImages(OPTION, whole_sizes(card), "for the model's sources", channels))
    if len(images) < search:
        raise CodecError(str(path), f"{len(images)} images", f"at least {search}, as --search has it")
    return SimilarImages(ImageTask.of_card(card, *images.shape[1:3]), images)
