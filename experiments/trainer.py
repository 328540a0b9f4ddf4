"""What a recipe is, and a recipe in training: its optimiser, and a state that can be saved and restored."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from encoder.image_task import ImageTask
from shared_rng import CodecError, ModelCard

LARGE = 1000
"""Values of a source from which on a recipe's small networks have fewer hidden units, and some train for longer."""


def is_large(task: ImageTask) -> bool:
    """Whether a task's sources have more values than :data:`LARGE`."""
    return math.prod(task.source_shape) > LARGE


def require_sizes(card: ModelCard, architecture: Mapping[str, Any], free: Collection[str] = ()) -> None:
    """That training can start from another model: its sizes are the same, but for ``free`` ones.

    Raises:
        CodecError: one is not.
    """
    for name in dict.fromkeys((*architecture, *card.architecture)):
        own, other = architecture.get(name), card.architecture.get(name)
        if name not in free and own != other:
            raise CodecError("--start", f"a model with {name} {other}", f"{name} {own}")


def draw(probabilities: Tensor) -> Tensor:
    """One index a row of [B, n], with probabilities in proportion: [B].

    Raises:
        CodecError: one is not a number, since training has diverged.
    """
    if not bool(probabilities.isfinite().all()):
        raise CodecError("training", "probabilities that are no numbers", "finite ones; try a smaller learning rate")
    return torch.multinomial(probabilities, 1).squeeze(1)


class Recipe(Protocol):
    """A way to train a model, with its networks.

    The loop seeds torch before it makes a recipe, so networks that are made in the constructor follow the seed.
    A recipe draws random numbers from torch's global generator alone, and keeps all state in its modules and
    buffers: the loop saves and restores both.

    Attributes:
        name: as ``--recipe`` has it.
        options: a frozen dataclass of plain values, one a command-line option; what is chosen for this recipe.
        sides: crops of each image that a step takes, K.
    """

    name: ClassVar[str]
    options: Any
    sides: int

    def modules(self) -> nn.ModuleDict:
        """All that is trained. What lies under ``encoder`` and ``decoder`` is exported, under these names."""
        ...

    def step(self, source: Tensor, sides: Tensor, share_done: float) -> tuple[Tensor, dict[str, float]]:
        """Loss of a batch and its parts, by name with their unit where they have one.

        Args:
            source: [B, A], flat sources in [-1, 1].
            sides: [B, K, T], flat crops in [-1, 1].
            share_done: share of all steps that are done, in [0, 1), for schedules.
        """
        ...

    def card(self) -> tuple[str, dict[str, Any]]:
        """The card's ``source`` and ``architecture``."""
        ...

    def held_out(self, source: Tensor, sides: Tensor) -> dict[str, float]:
        """Metrics of the exported (rounded) weights on images that training never saw; shapes as in :meth:`step`."""
        ...


@dataclass(frozen=True)
class TrainingOptions:
    """What determines a run beside the recipe's own options.

    Attributes:
        epochs: passes over the training images.
        batch: images a step.
        learning_rate: Adam's first step size; it falls to zero along a cosine.
        seed: of the initial weights, the order of images, the crops and what the recipe draws.
        ramp: share of the steps over which the step size rises from zero to the cosine, or None.
        clip: norm at which the gradient is cut, or None.
    """

    epochs: int = 40
    batch: int = 128
    learning_rate: float = 1e-3
    seed: int = 1
    ramp: float | None = None
    clip: float | None = None


class Trainer:
    """A recipe with its optimiser; its state can be saved and restored."""

    def __init__(self, recipe: Recipe, options: TrainingOptions, steps: int) -> None:
        """Train on the GPU where torch finds one.

        Args:
            recipe: networks and loss.
            options: of the run.
            steps: of the whole run.
        """
        self.recipe = recipe
        self.options = options
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.modules = recipe.modules().to(self.device)
        self.optimiser = torch.optim.Adam(
            self.modules.parameters(), lr=options.learning_rate, betas=(0.9, 0.99), fused=True
        )
        ramp = round(steps * (options.ramp or 0.0))
        cosine = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser, T_max=steps)
        self.schedule: torch.optim.lr_scheduler.LRScheduler = cosine
        if ramp:
            self.schedule = torch.optim.lr_scheduler.LambdaLR(
                self.optimiser,
                lambda step: min(1.0, (step + 1) / ramp) * 0.5 * (1.0 + math.cos(math.pi * step / steps)),
            )
        self.total = steps
        self.steps = 0

    def step(self, source: Tensor, sides: Tensor) -> dict[str, float]:
        """One optimiser step; the parts of the loss before it.

        Raises:
            CodecError: the loss is infinite or not a number.
        """
        share = self.steps / self.total
        loss, parts = self.recipe.step(source.to(self.device), sides.to(self.device), share)
        if not math.isfinite(loss.item()):
            raise CodecError(
                "training",
                f"a loss of {loss.item()} in step {self.steps + 1}",
                "a finite loss; try a smaller learning rate",
            )
        self.optimiser.zero_grad()
        loss.backward()
        if self.options.clip is not None:
            nn.utils.clip_grad_norm_(self.modules.parameters(), self.options.clip)
        self.optimiser.step()
        self.schedule.step()
        self.steps += 1
        return {"loss": loss.item()} | parts

    def _identity(self, data: str) -> dict[str, Any]:
        options = asdict(self.recipe.options)
        if options.get("start") is not None:
            options["start"] = Path(options["start"]).name  # However its folder is spelled, and wherever it has moved.
        return {"recipe": self.recipe.name, **options, **asdict(self.options), "data": data}

    def save(self, path: Path, epoch: int, crops: np.random.Generator, data: str) -> None:
        """Write all that resuming after ``epoch`` epochs needs; killed at any time, the old or new file is there."""
        state = {
            "identity": self._identity(data),
            "epoch": epoch,
            "steps": self.steps,
            "modules": self.modules.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "torch_rng": torch.get_rng_state(),
            "device_rng": torch.cuda.get_rng_state() if self.device.type == "cuda" else None,
            "crops_rng": json.dumps(crops.bit_generator.state),
        }
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        partial.replace(path)

    def restore(self, path: Path, crops: np.random.Generator, data: str) -> int:
        """Take up a checkpoint; returns the number of epochs done.

        Raises:
            CodecError: it is damaged, or belongs to a run with other options or images.
        """
        try:
            state = torch.load(path, weights_only=True, map_location="cpu")
            stored = state["identity"]
        except (RuntimeError, EOFError, OSError, KeyError, TypeError, pickle.UnpicklingError) as error:
            reason = (str(error).splitlines() or ["an empty file"])[0]
            raise CodecError(str(path), reason, "a complete checkpoint; remove it to start again") from error
        for name, value in self._identity(data).items():
            if stored.get(name) != value:
                raise CodecError(str(path), f"{name} {value}", f"{name} {stored.get(name)}, or another --out")
        self.modules.load_state_dict(state["modules"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["torch_rng"])
        if self.device.type == "cuda" and state["device_rng"] is not None:
            torch.cuda.set_rng_state(state["device_rng"])
        crops.bit_generator.state = json.loads(state["crops_rng"])
        self.steps = state["steps"]
        return int(state["epoch"])
