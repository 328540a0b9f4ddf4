"""How models that a sweep lacks are trained: from which other, in what order, and that a cell alone is the same."""

from __future__ import annotations

import json
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments import image_training
from experiments.datasets import task_of
from experiments.image_grid import ImageSweepOptions
from experiments.image_training import TrainingPlan, is_trained, train_all
from experiments.image_work import DataPlace, TrainingUnit
from experiments.recipes import RECIPES
from tests.models import refused

PLACE = DataPlace("mnist", None)
IMAGES = "0" * 64


def chain(unit: TrainingUnit | None) -> list[tuple[str, int, int]]:
    """Recipe, bins and epochs of a unit and of all that it starts from."""
    found = []
    while unit is not None:
        found.append((unit.recipe, unit.options.bins, unit.training.epochs))
        unit = unit.after
    return found


@pytest.mark.parametrize(
    ("recipe", "bins", "expected"),
    [
        ("list", 4, [("list", 4, 16)]),
        ("list", 8, [("list", 8, 10), ("list", 4, 16)]),
        ("list", 64, [("list", 64, 10), ("list", 16, 10), ("list", 4, 16)]),
        ("quantiser", 32, [("quantiser", 32, 10), ("quantiser", 16, 10), ("quantiser", 4, 16)]),
        ("discrete", 16, [("discrete", 16, 4), ("list", 16, 10), ("list", 4, 16)]),
        ("region", 16, [("region", 16, 12)]),
        ("region", 4, [("region", 4, 4), ("region", 16, 12)]),
    ],
)
def test_chains(tmp_path: Path, recipe: str, bins: int, expected: list[tuple[str, int, int]]) -> None:
    (unit,) = TrainingPlan(PLACE, tmp_path, None, 1, IMAGES).units(recipe, 4, bins)
    assert chain(unit) == expected
    assert unit.options.start == (None if unit.after is None else str(unit.after.out))


def test_epochs_and_seed_are_those_of_all(tmp_path: Path) -> None:
    (unit,) = TrainingPlan(PLACE, tmp_path, 3, 7, IMAGES).units("discrete", 2, 16)
    assert [epochs for _, _, epochs in chain(unit)] == [3, 3, 3]
    assert unit.after is not None
    assert (unit.training.seed, unit.after.training.seed) == (7, 7)
    assert unit.out == tmp_path / "mnist_discrete_decoders-2_bins-16_epochs-3_seed-7_start-epochs-3"


def test_models_of_unlike_chains_have_names_of_their_own(tmp_path: Path) -> None:
    """A list of 10 epochs that goes on from one of 16, by default, and one whose start has 10 as well."""
    (usual,), (given,) = (
        TrainingPlan(PLACE, tmp_path, epochs, 1, IMAGES).units("list", 4, 16) for epochs in (None, 10)
    )
    assert chain(usual)[0] == chain(given)[0] == ("list", 16, 10)
    assert usual.out != given.out


class Pool(ThreadPoolExecutor):
    """Says which model was submitted when, and which were finished then."""

    def __init__(self, folder: Path) -> None:
        super().__init__(2)
        self.folder = folder
        self.submitted: list[tuple[str, set[str]]] = []

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        """See the base class."""
        self.submitted.append((args[0].out.name, {path.parent.name for path in self.folder.glob("*/card.json")}))
        return super().submit(function, *args, **kwargs)


def pretend(unit: TrainingUnit) -> Path:
    """Train a model in no time."""
    unit.out.mkdir(parents=True)
    card = {"source": "none", "architecture": {}, "training": {"data": {"sha256": unit.images}}}
    (unit.out / "card.json").write_text(json.dumps(card), encoding="utf-8")
    return unit.out


def test_models_of_other_images(tmp_path: Path) -> None:
    """A model that was trained on others is refused, also where it is only the start of one that is missing."""
    (unit,) = TrainingPlan(PLACE, tmp_path, None, 1, IMAGES).units("discrete", 4, 4)
    (other,) = TrainingPlan(PLACE, tmp_path, None, 1, "1" * 64).units("list", 4, 4)
    assert not is_trained(other)
    pretend(other)
    assert is_trained(other)
    assert not is_trained(unit)
    for refuses in (lambda: is_trained(replace(other, images=IMAGES)), lambda: train_all([unit], None, None)):  # type: ignore[arg-type]
        with refused("models", f"{other.out}, trained on other images", "models of these, or another folder"):
            refuses()


def test_each_after_its_start_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_training, "train_unit", pretend)
    plan = TrainingPlan(PLACE, tmp_path, 1, 1, IMAGES)
    units = [u for recipe in ("discrete", "list") for bins in (4, 16, 64) for u in plan.units(recipe, 4, bins)]
    pretend(plan.units("list", 4, 4)[0])
    reports: list[tuple[int, int]] = []
    with Pool(tmp_path) as pool:
        train_all(units, pool, lambda done, total, name: reports.append((done, total)))
    names = [name for name, _ in pool.submitted]
    assert sorted(names) == sorted(u.out.name for u in units if (u.recipe, u.options.bins) != ("list", 4))
    finished_at = dict(pool.submitted)
    assert all(u.after.out.name in finished_at[u.out.name] for u in units if u.after and u.out.name in finished_at)
    assert reports == [(done, 5) for done in range(6)]


def test_a_failure_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(unit: TrainingUnit) -> Path:
        raise OSError("disk full")

    monkeypatch.setattr(image_training, "train_unit", fail)
    with Pool(tmp_path) as pool, pytest.raises(OSError, match="disk full"):
        train_all(
            TrainingPlan(PLACE, tmp_path, 1, 1, IMAGES).units("list", 4, 16), pool, lambda done, total, name: None
        )


def test_recipes_that_a_sweep_begins_with_two_decoders() -> None:
    """At K = 1 they are the quantiser, and asking for nothing else is refused."""
    options = ImageSweepOptions("mnist", recipes=("list", "discrete", "quantiser"), decoders=(1, 2), bins=(4,))
    assert {cell.recipe for cell in options.cells() if cell.decoders == 1} == {"quantiser"}
    assert {recipe for recipe, kind in RECIPES.items() if kind.least_decoders > 1} == {"list", "discrete"}
    with refused("recipes, decoders, bins", "recipes list with K 1", "at least one cell; some recipes are for K of 2"):
        ImageSweepOptions("mnist", recipes=("list",), decoders=(1,), bins=(4,))


def test_epochs_of_a_model_that_starts_from_another() -> None:
    """Fewer, where a recipe says so, and of large images others; the command ``train`` and sweeps ask the same."""
    digits, photographs = (task_of(name) for name in ("mnist", "cifar10"))
    assert [RECIPES["list"].training_of(digits, start).epochs for start in (None, "zoo-model")] == [16, 10]
    assert RECIPES["paper"].training_of(digits, "zoo-model") == RECIPES["paper"].training
    discrete = RECIPES["discrete"]
    assert [discrete.training_of(task, "zoo-model").epochs for task in (digits, photographs)] == [4, 6]
    assert [discrete.training_of(task, None).epochs for task in (digits, photographs)] == [16, 16]
    (unit,) = TrainingPlan(DataPlace("cifar10", None), Path("absent"), None, 1, IMAGES).units("discrete", 4, 4)
    assert chain(unit) == [("discrete", 4, 6), ("list", 4, 16)]
