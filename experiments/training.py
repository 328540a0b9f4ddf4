"""One training loop for every recipe: seeded, resumable, with progress, and an export of card and weights.

A recipe brings the networks and the loss; the loop brings batches, crops, Adam with a cosine schedule,
checkpoints and the card. How to write one: see :class:`experiments.trainer.Recipe`, and
``experiments/paper_recipe.py`` as an example.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from encoder.files import to_unit_range
from encoder.image_task import Images, ImageTask
from experiments.progress import progress
from experiments.trainer import Recipe, Trainer, TrainingOptions
from experiments.training_log import TrainingLog
from experiments.whole_files import write_whole
from shared_rng import CodecError, ModelCard
from shared_rng.card import CARD_NAME, load_card, weights_sha256

WEIGHTS_NAME = "weights.safetensors"
CHECKPOINT_NAME = "checkpoint.pt"
EXPORTED = ("encoder.", "decoder.")
"""Prefixes of the weights that a model folder holds: one for each end."""


@dataclass(frozen=True)
class TrainingData:
    """Images to train on.

    Attributes:
        task: how they are split.
        images: uint8 [B, height, width] or [B, height, width, 3]; the last tenth is held out.
        arguments: what follows ``train`` on the command line to name them.
    """

    task: ImageTask
    images: Images
    arguments: str

    @property
    def held_out(self) -> Images:
        """The last tenth, for choices that are made after training."""
        return self.images[len(self.images) - len(self.images) // 10 :]

    @property
    def training(self) -> Images:
        """All others."""
        return self.images[: len(self.images) - len(self.images) // 10]

    @property
    def digest(self) -> str:
        """See :func:`digest_of`."""
        return digest_of(self.images)


def digest_of(images: Images) -> str:
    """SHA-256 of the pixels."""
    return hashlib.sha256(images.tobytes()).hexdigest()


def _tensors(task: ImageTask, images: Images, sides: int, generator: np.random.Generator) -> tuple[Tensor, Tensor]:
    rows, columns = task.draw_offsets(generator, (len(images), sides))
    crops = [to_unit_range(task.crops(images, rows[:, k], columns[:, k])) for k in range(sides)]
    source = torch.from_numpy(task.sources(images)).flatten(1)
    return source, torch.from_numpy(np.stack(crops, axis=1)).flatten(2)


def held_out_tensors(task: ImageTask, images: Images, sides: int) -> tuple[Tensor, Tensor]:
    """Sources [B, A] and the fixed crops [B, K, T] of the first K decoders."""
    crops = np.stack([task.side_information(images, k) for k in range(sides)], axis=1)
    return torch.from_numpy(task.sources(images)).flatten(1), torch.from_numpy(crops).flatten(2)


def _batches(count: int, size: int, order: Tensor) -> Iterator[np.ndarray]:
    for start in range(0, count - size + 1, size):
        yield order[start : start + size].numpy()


def train(
    make: Callable[[], Recipe], data: TrainingData, out: Path, options: TrainingOptions, *, tensorboard: bool = False
) -> ModelCard:
    """Train a recipe on all images but the held-out tenth, and write weights and card.

    Args:
        make: makes the recipe; called once, after torch is seeded.
        data: the images.
        out: folder of the checkpoint (one an epoch; a run with the same options resumes), weights and card.
        options: what determines the run beside the recipe's options.
        tensorboard: write TensorBoard logs into ``out/tensorboard``.

    Returns:
        The card, as written.

    Raises:
        CodecError: there are too few images, or ``out`` holds a checkpoint of another run.
    """
    training, task = data.training, data.task
    steps = len(training) // options.batch
    if steps == 0:
        raise CodecError("training images", len(training), f"at least one batch, {options.batch}")
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(options.seed)
    recipe = make()
    trainer = Trainer(recipe, options, options.epochs * steps)
    crops = np.random.default_rng(options.seed)
    checkpoint, digest = out / CHECKPOINT_NAME, data.digest
    done = trainer.restore(checkpoint, crops, digest) if checkpoint.is_file() else 0
    started = time.process_time()
    with progress() as bar, TrainingLog(out, enabled=tensorboard) as log:
        bars = bar.add_task("training", total=options.epochs * steps, completed=done * steps)
        for epoch in range(done, options.epochs):
            sums: dict[str, float] = {}
            for rows in _batches(len(training), options.batch, torch.randperm(len(training))):
                parts = trainer.step(*_tensors(task, training[rows], recipe.sides, crops))
                sums = {name: sums.get(name, 0.0) + value for name, value in parts.items()}
                bar.update(bars, advance=1, description=_describe(epoch, options.epochs, parts))
            means = {name: value / steps for name, value in sums.items()}
            bar.console.print(_describe(epoch, options.epochs, means), markup=False)
            log.write(epoch + 1, means)
            trainer.save(checkpoint, epoch + 1, crops, digest)
    seconds = time.process_time() - started
    _export(trainer, out)
    metrics = _held_out_metrics(trainer, out, data)
    if done == 0 and options.epochs:
        metrics["training_cpu_seconds"] = round(seconds, 1)
    return _write_card(recipe, options, data, out, metrics)


def _describe(epoch: int, epochs: int, parts: dict[str, float]) -> str:
    values = "  ".join(f"{name} {value:.4g}" for name, value in parts.items())
    return f"epoch {epoch + 1:>{len(str(epochs))}}/{epochs}  {values}"


def _export(trainer: Trainer, out: Path) -> None:
    """Weights as float16: half the size, and both ends widen the same numbers.

    Raises:
        CodecError: one is not finite, since training has diverged, perhaps in its last step.
    """
    tensors = {n: t for n, t in trainer.modules.state_dict().items() if n.startswith(EXPORTED)}
    halves = {n: (t.half() if t.is_floating_point() else t).cpu().contiguous() for n, t in tensors.items()}
    for name, tensor in halves.items():
        if tensor.is_floating_point() and not bool(tensor.isfinite().all()):
            raise CodecError("training", f"{name} infinite or no number", "finite weights; try a smaller learning rate")
    save_file(halves, out / WEIGHTS_NAME)


@torch.no_grad()
def _held_out_metrics(trainer: Trainer, out: Path, data: TrainingData) -> dict[str, float]:
    """The recipe's metrics of the exported weights on held-out images."""
    rounded = load_file(out / WEIGHTS_NAME)
    trainer.modules.load_state_dict(trainer.modules.state_dict() | rounded)
    torch.manual_seed(trainer.options.seed)
    source, sides = held_out_tensors(data.task, data.held_out, trainer.recipe.sides)
    metrics = trainer.recipe.held_out(source.to(trainer.device), sides.to(trainer.device))
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise CodecError("training", f"{name} {value} on held-out images", "a number; try a smaller learning rate")
    return {"held_out_images": len(data.held_out)} | {name: round(value, 5) for name, value in metrics.items()}


def option_flags(options: Mapping[str, Any]) -> str:
    """Options as a command line has them; those that are None are left out."""
    return "".join(f" --{name.replace('_', '-')} {value}" for name, value in options.items() if value is not None)


def told_options(options: Any) -> dict[str, Any]:
    """A recipe's options for the card: of the model that training started from, the name and not where it lay."""
    values = asdict(options)
    return values | ({"start": Path(values["start"]).name} if values.get("start") else {})


def _write_card(
    recipe: Recipe, options: TrainingOptions, data: TrainingData, out: Path, metrics: dict[str, float]
) -> ModelCard:
    source, architecture = recipe.card()
    told = told_options(recipe.options)
    flags = f"--recipe {recipe.name}{option_flags(told)}{option_flags(asdict(options))}"
    training = {
        "command": f"python -m experiments train {data.arguments} --out DIR {flags}",
        "recipe": recipe.name,
        "data": {
            "name": data.task.name,
            "side_information": f"{data.task.crop}x{data.task.crop} crops of the {data.task.side} half",
            "images": len(data.images),
            "held_out": len(data.held_out),
            "sha256": data.digest,
        },
        "options": told | asdict(options),
        "metrics": metrics,
        "torch": torch.__version__,
    }
    weights = out / WEIGHTS_NAME
    card = {
        "source": source,
        "architecture": architecture,
        "weights": {"file": weights.name, "sha256": weights_sha256(weights)},
        "training": training,
    }
    write_whole(out / CARD_NAME, json.dumps(card, indent=2) + "\n")  # Who finds a card takes the model as finished.
    return load_card(out)
