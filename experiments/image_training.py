"""Models that a sweep lacks: how each would be trained, from which other, and in what order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path

from experiments.catalogue import Model, folder_name
from experiments.datasets import task_of
from experiments.image_work import DataPlace, TrainingUnit, train_unit
from experiments.recipes import recipe_kind
from shared_rng import CodecError
from shared_rng.card import CARD_NAME


@dataclass(frozen=True)
class TrainingPlan:
    """How a sweep trains models.

    Attributes:
        place: names the data set; its training images are used.
        models: folder of model folders.
        epochs: of each model; None for what suits the recipe.
        seed: of each model's training.
        images: SHA-256 of the training images.
    """

    place: DataPlace
    models: Path
    epochs: int | None
    seed: int
    images: str

    def units(self, recipe: str, decoders: int, bins: int) -> list[TrainingUnit]:
        """All models of a recipe's grid for a cell of K decoders and L_max bins."""
        kind = recipe_kind(recipe)
        before = kind.start(decoders, bins)
        after = None if before is None else self.units(*before)[0]
        task = task_of(self.place.dataset)
        training = replace(kind.training_of(task, after), seed=self.seed)
        if self.epochs is not None:
            training = replace(training, epochs=self.epochs)
        found = []
        for options in kind.grid(task, decoders, bins):
            name = folder_name(self.place.dataset, recipe, options, training)
            if self.epochs is not None and after is not None:
                name += f"_start-epochs-{after.training.epochs}"  # Else they follow from recipe and bins.
            own = options if after is None else replace(options, start=str(after.out))
            found.append(TrainingUnit(self.place, recipe, own, training, self.models / name, self.images, after))
        return found


def is_trained(unit: TrainingUnit) -> bool:
    """Whether its folder holds a finished model.

    Raises:
        CodecError: it does, of other images.
    """
    if not (unit.out / CARD_NAME).is_file():
        return False
    require_images(Model.at(unit.out), unit.images)
    return True


def require_images(model: Model, images: str) -> None:
    """Check that a model was trained on images of this SHA-256, if its card tells.

    Raises:
        CodecError: on others.
    """
    if model.images not in (None, images):
        raise CodecError("models", f"{model.folder}, trained on other images", "models of these, or another folder")


def train_all(
    units: Iterable[TrainingUnit], pool: ProcessPoolExecutor, report: Callable[[int, int, str], None]
) -> None:
    """Train what is missing of some models and of those that they start from; each as soon as its start is there.

    Args:
        units: models.
        pool: processes.
        report: told after each model how many are done, of how many, and the last one's folder name.
    """
    waiting: dict[Path, TrainingUnit] = {}
    for unit in units:
        chain: TrainingUnit | None = unit
        while chain is not None and not is_trained(chain):
            waiting[chain.out] = chain
            chain = chain.after
    done, total, running, missing = 0, len(waiting), set[Future[Path]](), set(waiting)
    report(done, total, "")
    while waiting or running:
        ready = [unit for unit in waiting.values() if unit.after is None or unit.after.out not in missing]
        for unit in ready:
            running.add(pool.submit(train_unit, waiting.pop(unit.out)))
        finished, running = wait(running, return_when=FIRST_COMPLETED)
        for future in finished:
            done += 1
            missing.remove(future.result())
            report(done, total, future.result().name)
