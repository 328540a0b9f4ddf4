"""What one would use instead of the codec, on images: no message at all, or a quantiser without side information.

- ``zero-bits``: the best of K answers of networks that see the crops alone (``experiments/zero_bits_recipe.py``).
- ``linear``: the same with a linear prediction, one for all decoders.
- ``k-means``: L_max whole sources, the nearest of which the message names; crops and K play no part. With L_max = 1
  it is the mean source.
- ``components``: the source's four principal components without any quantisation, so that no rate is enough for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file

from experiments.datasets import load_images, task_of
from experiments.image_records import image_figures
from experiments.image_work import DataPlace, side_arrays, source_arrays
from experiments.paper_recipe import LATENT_DIMENSION
from experiments.results import Record
from experiments.training import TrainingData, held_out_tensors
from experiments.zero_bits_recipe import ZeroBitsOptions, ZeroBitsRecipe

Errors = npt.NDArray[np.float64]
Reference = Literal["zero-bits", "linear", "k-means", "components"]

_ITERATIONS = 40
_ROWS = 5000
"""Images at a time, which bounds memory."""
_CROPS = 4
"""Crops of each training image that the linear prediction is fitted to."""
_RIDGE = 1e-3


@dataclass(frozen=True)
class ReferenceUnit:
    """One figure: a reference for K decoders and L_max bins (1 without a message).

    Attributes:
        place: the test images.
        name: which reference.
        decoders: K.
        bins: L_max.
        messages: test images, the first ones.
        model: folder of the network, for ``zero-bits``.
        seed: of the first centroids of k-means, or of the network's training.
    """

    place: DataPlace
    name: Reference
    decoders: int
    bins: int
    messages: int
    model: Path | None = None
    seed: int = 1


def reference_record(unit: ReferenceUnit) -> Record:
    """The record of a reference, with coupling ``none``."""
    measures = {"zero-bits": _zero_bits, "linear": _linear, "k-means": _k_means, "components": _components}
    measure = measures[unit.name]
    return Record(
        source=unit.place.dataset,
        recipe=unit.name,
        coupling="none",
        decoders=unit.decoders,
        bins=unit.bins,
        bits=unit.bins.bit_length() - 1,
        messages=unit.messages,
        training_seed=unit.seed if unit.name in ("zero-bits", "k-means") else None,
        **image_figures([measure(unit)]),  # type: ignore[arg-type]
    )


def _training(unit: ReferenceUnit) -> npt.NDArray[np.uint8]:
    images = load_images(unit.place.dataset, unit.place.folder, train=True)
    return TrainingData(task_of(unit.place.dataset), images, "").training


def _test(unit: ReferenceUnit) -> tuple[torch.Tensor, torch.Tensor]:
    """Sources [B, A] and crops [B, K, T]."""
    sources = torch.from_numpy(source_arrays(unit.place)[: unit.messages]).flatten(1)
    sides = [torch.from_numpy(side_arrays(unit.place, k)[: unit.messages]).flatten(1) for k in range(unit.decoders)]
    return sources, torch.stack(sides, dim=1)


@torch.inference_mode()
def _zero_bits(unit: ReferenceUnit) -> Errors:
    assert unit.model is not None
    recipe = ZeroBitsRecipe(task_of(unit.place.dataset), ZeroBitsOptions(unit.decoders))
    recipe.modules().load_state_dict({n: t.float() for n, t in load_file(unit.model / "weights.safetensors").items()})
    return np.asarray(recipe.errors(*_test(unit)).min(dim=1).values.double().numpy())


@torch.inference_mode()
def _linear(unit: ReferenceUnit) -> Errors:
    """Least squares from a crop at any place, and one, to the source."""
    task, images = task_of(unit.place.dataset), _training(unit)
    size = int(np.prod(task.side_shape)) + 1
    moments = torch.zeros(size, size, dtype=torch.float64)
    products = torch.zeros(size, int(np.prod(task.source_shape)), dtype=torch.float64)
    for start in range(0, len(images), _ROWS):
        sources, sides = held_out_tensors(task, images[start : start + _ROWS], _CROPS)
        for k in range(_CROPS):
            rows = _with_one(sides[:, k])
            moments += (rows.T @ rows).double()
            products += (rows.T @ sources).double()
    moments += _RIDGE * moments.diagonal().mean() * torch.eye(size, dtype=torch.float64)
    weights = torch.linalg.solve(moments, products).float()
    sources, sides = _test(unit)
    errors = [(_with_one(sides[:, k]) @ weights - sources).square().mean(dim=1) for k in range(unit.decoders)]
    return np.asarray(torch.stack(errors).min(dim=0).values.double().numpy())


def _with_one(rows: torch.Tensor) -> torch.Tensor:
    return torch.cat((rows, torch.ones(len(rows), 1)), dim=1)


@torch.inference_mode()
def _k_means(unit: ReferenceUnit) -> Errors:
    """Lloyd's algorithm from first centroids that are far apart (k-means++)."""
    task, images = task_of(unit.place.dataset), _training(unit)
    sources = torch.from_numpy(task.sources(images)).flatten(1)
    generator = np.random.default_rng(unit.seed)
    centroids = sources[generator.integers(len(sources), size=1)]
    distances = _squared_distances(sources, centroids)[:, 0]
    while len(centroids) < unit.bins:
        share = distances.clamp(min=0).double().numpy()
        chosen = sources[generator.choice(len(sources), p=share / share.sum())][None]
        centroids = torch.cat((centroids, chosen))
        distances = torch.minimum(distances, _squared_distances(sources, chosen)[:, 0])
    for _ in range(_ITERATIONS):
        nearest = _squared_distances(sources, centroids).argmin(dim=1)
        sums = torch.zeros_like(centroids).index_add_(0, nearest, sources)
        counts = torch.bincount(nearest, minlength=unit.bins)[:, None]
        centroids = torch.where(counts > 0, sums / counts.clamp(min=1), centroids)
    test, _ = _test(unit)
    picked = centroids[_squared_distances(test, centroids).argmin(dim=1)]
    return np.asarray((picked - test).square().mean(dim=1).double().numpy())


@torch.inference_mode()
def _components(unit: ReferenceUnit) -> Errors:
    """As many components as the paper's latent has dimensions, of all training sources."""
    sources = torch.from_numpy(task_of(unit.place.dataset).sources(_training(unit))).flatten(1)
    mean = sources.mean(dim=0)
    moments = torch.zeros(len(mean), len(mean), dtype=torch.float64)
    for rows in sources.split(_ROWS):
        moments += ((rows - mean).T @ (rows - mean)).double()
    axes = torch.linalg.eigh(moments).eigenvectors[:, -LATENT_DIMENSION:].float()
    test = _test(unit)[0] - mean
    return np.asarray((test - test @ axes @ axes.T).square().mean(dim=1).double().numpy())


def _squared_distances(rows: torch.Tensor, centroids: torch.Tensor) -> torch.Tensor:
    """[B, L]."""
    return rows.square().sum(dim=1)[:, None] - 2.0 * rows @ centroids.T + centroids.square().sum(dim=1)
