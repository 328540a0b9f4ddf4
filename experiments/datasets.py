"""Data sets by name or from a user's files, as 8-bit arrays with the task that splits them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from encoder.image_task import Images, ImageTask
from encoder.whole_images import read_archive
from experiments import images
from shared_rng import CodecError

CIFAR10 = ImageTask("cifar10", height=32, width=32, channels=3, side="left", crop=16)
"""The right half (32×16) from 16×16 crops of the left half, so a crop's row is in 0 … 16."""

DATASETS = ("mnist", "cifar10")
CIFAR10_ARCHIVE = "cifar10.npz"


def task_of(dataset: str) -> ImageTask:
    """The task of a data set.

    Raises:
        CodecError: there is none of that name.
    """
    tasks = {"mnist": images.MNIST, "cifar10": CIFAR10}
    if dataset not in tasks:
        raise CodecError("data set", repr(dataset), "mnist, cifar10, or --images")
    return tasks[dataset]


def load_images(dataset: str, folder: Path | None, *, train: bool) -> Images:
    """All images of one split of a data set.

    Args:
        dataset: ``mnist`` or ``cifar10``.
        folder: where they are, as torchvision lays them out, or with ``cifar10.npz``; None for torchvision's
            own download, kept in ``~/.cache/gumbelcast``.
        train: the training split or the test split.

    Raises:
        CodecError: the name is unknown, or the files are missing and cannot be downloaded, or damaged, or hold fewer
            than two images.
    """
    task_of(dataset)
    found = images.mnist_digits(folder, train=train) if dataset == "mnist" else cifar10_images(folder, train=train)
    if len(found) < 2:
        raise CodecError(f"{dataset}, {'training' if train else 'test'} images", len(found), "at least 2")
    return found


def cifar10_images(folder: Path | None, *, train: bool) -> Images:
    """One split of CIFAR-10: uint8 [50000 or 10000, 32, 32, 3].

    Args:
        folder: with ``cifar10.npz`` (arrays ``train_images`` and ``test_images``) or ``cifar-10-batches-py``;
            None for torchvision's own download.
        train: the training split or the test split.

    Raises:
        CodecError: the files are missing and cannot be downloaded, or damaged.
    """
    archive = (folder or images.CACHE) / CIFAR10_ARCHIVE
    if archive.is_file():
        found = read_archive(archive, "train_images" if train else "test_images")
        if found.dtype != np.uint8 or found.ndim != 4 or found.shape[1:] != (32, 32, 3):
            raise CodecError(str(archive), f"{found.dtype} {found.shape}", "uint8 [B, 32, 32, 3]")
        return found
    from torchvision.datasets import CIFAR10 as Torchvision

    try:
        split = Torchvision(str(folder or images.CACHE), train=train, download=folder is None)
    except (OSError, RuntimeError) as error:
        expected = f"a network, or --data DIR with DIR/{CIFAR10_ARCHIVE} or DIR/cifar-10-batches-py"
        raise CodecError(f"CIFAR-10 in {folder or images.CACHE}", images.reason_of(error), expected) from error
    return np.asarray(split.data, dtype=np.uint8)
