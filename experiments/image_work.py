"""Units of an image sweep's work, for processes of their own: code some messages, or train a model.

A process computes with one thread, so that as many units run at once as there are cores, and ends with its parent.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import threading
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from decoder import DecoderModel, load_decoder_model
from encoder import EncoderModel, load_encoder_model
from encoder.image_task import Images
from experiments.catalogue import Model
from experiments.datasets import load_images, task_of
from experiments.image_cells import CellTrials, code_cells
from experiments.trainer import TrainingOptions
from experiments.training import TrainingData, train
from shared_rng import Coupling, Session, load_card

Floats = npt.NDArray[np.float32]
Split = Literal["train", "held_out", "test"]


@dataclass(frozen=True)
class DataPlace:
    """Which images: a data set, the folder it lies in, and the split; ``held_out`` is a part of ``train``."""

    dataset: str
    folder: Path | None
    split: Split = "test"


@dataclass(frozen=True)
class Cell:
    """One cell of a sweep."""

    recipe: str
    coupling: Coupling
    decoders: int
    bins: int

    @property
    def key(self) -> tuple[str, str, int, int]:
        """Recipe, coupling, K and L_max."""
        return self.recipe, self.coupling, self.decoders, self.bins

    def __str__(self) -> str:
        return f"{self.recipe} {self.coupling}, K = {self.decoders}, {self.bins.bit_length() - 1} bits"


@dataclass(frozen=True)
class Setting:
    """What a cell is coded with: a model's folder and digest, and the session's fields beside the cell's."""

    model: Path
    digest: bytes
    pool: tuple[tuple[str, Any], ...]

    @classmethod
    def of(cls, model: Model, pool: Mapping[str, Any]) -> Setting:
        """From a mapping of session fields."""
        return cls(model.folder, model.card.digest, tuple(sorted(pool.items())))

    def session(self, cell: Cell, seed: int) -> Session:
        """The cell's session."""
        return Session(
            seed=seed,
            bins=cell.bins,
            decoders=cell.decoders,
            coupling=cell.coupling,
            model_digest=self.digest,
            **dict(self.pool),
        )


@dataclass(frozen=True)
class CodingUnit:
    """Messages ``first`` … ``first + count - 1`` of some cells with one setting and one seed."""

    place: DataPlace
    setting: Setting
    cells: tuple[Cell, ...]
    seed: int
    first: int
    count: int


@dataclass(frozen=True)
class TrainingUnit:
    """One model to train on images of the SHA-256 ``images``.

    ``after`` is the one that it starts from, trained before it, or None.
    """

    place: DataPlace
    recipe: str
    options: Any
    training: TrainingOptions
    out: Path
    images: str
    after: TrainingUnit | None = None


def workers(count: int) -> ProcessPoolExecutor:
    """Processes for units; they end when this process does, however it ends."""
    return ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn"), initializer=_begin)


def _begin() -> None:
    import torch

    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    assert parent is not None

    def follow() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=follow, daemon=True).start()


@functools.cache
def split_images(place: DataPlace) -> Images:
    """All images of a split, kept in memory."""
    if place.split == "held_out":
        return TrainingData(task_of(place.dataset), split_images(replace(place, split="train")), "").held_out
    return load_images(place.dataset, place.folder, train=place.split == "train")


@functools.cache
def source_arrays(place: DataPlace) -> Floats:
    """Sources of a split in [-1, 1]: [B, *source_shape]."""
    return task_of(place.dataset).sources(split_images(place))


@functools.cache
def side_arrays(place: DataPlace, decoder: int) -> Floats:
    """Crops of a split at one decoder: [B, *side_shape]."""
    return task_of(place.dataset).side_information(split_images(place), decoder)


@functools.cache
def _ends(folder: Path) -> tuple[EncoderModel, DecoderModel]:
    card = load_card(folder)
    return load_encoder_model(card), load_decoder_model(card)


def code_unit(unit: CodingUnit) -> list[CellTrials]:
    """What came of the unit's messages, one result a cell."""
    encoder_model, decoder_model = _ends(unit.setting.model)
    rows = slice(unit.first, unit.first + unit.count)
    sides = [side_arrays(unit.place, k)[rows] for k in range(max(cell.decoders for cell in unit.cells))]
    sessions = [unit.setting.session(cell, unit.seed) for cell in unit.cells]
    return code_cells(sessions, encoder_model, decoder_model, source_arrays(unit.place)[rows], sides, unit.first)


def train_unit(unit: TrainingUnit) -> Path:
    """Train a model, or go on with it; returns its folder."""
    from experiments.recipes import recipe_kind

    task = task_of(unit.place.dataset)
    images = load_images(unit.place.dataset, unit.place.folder, train=True)
    data = TrainingData(task, images, f"{task.name} --data DIR")
    make = recipe_kind(unit.recipe).make
    train(lambda: make(task, unit.options), data, unit.out, unit.training)
    return unit.out
