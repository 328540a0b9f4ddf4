"""Models by name, by cell, and as a list."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from experiments import catalogue
from experiments.catalogue import COLUMNS, Model, folder_name, models_for, models_in, named_models, row, shipped_models
from experiments.paper_recipe import PaperOptions
from experiments.trainer import TrainingOptions
from shared_rng import ModelCard, find_model, load_card
from tests.models import refused


def model(name: str, recipe: str = "list", dataset: str = "mnist", **options: object) -> Model:
    training = {
        "recipe": recipe,
        "data": {"name": dataset},
        "options": options,
        "metrics": {"mse_paper": 0.125, "held_out_images": 6000},
    }
    return Model(Path(name), ModelCard("codebook", {}, training, None, bytes(32)))


def test_shipped_models() -> None:
    """Each is listed, with a cell for every column."""
    names = [found.folder.name for found in shipped_models()]
    assert {"gaussian", "mnist"} <= set(names)
    for found in shipped_models():
        assert len(row(found)) == len(COLUMNS)
        if found.folder.name == "mnist":
            assert row(found)[:5] == ["mnist", "mnist", "paper", "any", "any"]


def test_row() -> None:
    found = row(model("a", decoders=4, bins=16))
    assert found == ["a", "mnist", "list", "4", "4", "0.0", "6000", "0.125", "", "", "", "", ""]


@pytest.mark.parametrize(
    ("name", "value", "operand", "given"),
    [
        ("options", [1], "card training.options", "list"),
        ("options", {"bins": "16"}, "card training.options.bins", "'16'"),
        ("options", {"decoders": 4.0}, "card training.options.decoders", "4.0"),
        ("metrics", "good", "card training.metrics", "str"),
        ("metrics", {"mse_paper": "low"}, "card training.metrics.mse_paper", "'low'"),
        ("metrics", {"mse_paper": None}, "card training.metrics.mse_paper", "None"),
        ("metrics", {"mse_paper": 10**400}, "card training.metrics.mse_paper", "1" + "0" * 39),
        ("metrics", {"mse_paper": math.nan}, "card training.metrics.mse_paper", "nan"),
        ("options", {"seed": 1.5}, "card training.options.seed", "1.5"),
        ("data", 1, "card training.data", "int"),
    ],
)
def test_cards_that_tell_nonsense(name: str, value: object, operand: str, given: str) -> None:
    """Services do not read what training says of itself, so such a card is refused where it is read; by its path."""
    found = model("runs/odd")
    found.card.training[name] = value
    with refused(operand, f"{given} in runs/odd/card.json"):
        row(found)


def test_models_for_a_cell() -> None:
    """Of the recipe and the data; one that names no K or no L_max serves all."""
    models = [
        model("one", decoders=4, bins=16),
        model("other", decoders=4, bins=64),
        model("colour", dataset="cifar10", decoders=4, bins=16),
        model("vae", "paper"),
    ]
    assert [m.folder.name for m in models_for(models, "list", "mnist", 4, 16)] == ["one"]
    assert models_for(models, "list", "mnist", 2, 16) == []
    assert [m.folder.name for m in models_for(models, "paper", "mnist", 2, 16)] == ["vae"]


def test_named_models() -> None:
    (found,) = named_models(["mnist"], "mnist")
    assert found.folder.name == "mnist"
    with refused("model mnist", "trained on mnist", "trained on cifar10"):
        named_models(["mnist"], "cifar10")
    with refused("model gaussian", "trained on no images", "trained on mnist"):
        named_models(["gaussian"], "mnist")
    with refused("model", "'nothing'", "a folder, or one of"):
        named_models(["nothing"], "mnist")


def test_named_models_without_messages(tmp_path: Path) -> None:
    """A reference is a model folder as well."""
    card = {"source": "zero-bits", "architecture": {}, "training": {"recipe": "zero-bits", "data": {"name": "mnist"}}}
    (tmp_path / "card.json").write_text(json.dumps(card))
    with refused(f"model {tmp_path}", "of recipe zero-bits", "one that takes messages"):
        named_models([str(tmp_path)], "mnist")


def test_named_models_of_a_data_set_of_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user's own folder can be called mnist."""
    for change, given in (({"source_height": 14}, "source_height 14"), ({"side": "right"}, "side right")):
        card = load_card(find_model("mnist-list-k4-l4"))
        other = replace(card, architecture=card.architecture | change)
        monkeypatch.setattr(catalogue, "load_card", lambda folder, other=other: other)
        with refused("model mnist", given, "as mnist has"):
            named_models(["mnist-list-k4-l4"], "mnist")


def test_no_folder(tmp_path: Path) -> None:
    with refused("models", str(tmp_path / "absent"), "a folder of model folders"):
        models_in(tmp_path / "absent")


@pytest.mark.parametrize(("seed", "epochs"), [(1, 12), (2, 3)])
def test_folder_name(seed: int, epochs: int) -> None:
    """All that tells models of a sweep apart."""
    found = folder_name("mnist", "paper", PaperOptions(beta=7.5), TrainingOptions(epochs=epochs, seed=seed))
    assert found == f"mnist_paper_beta-7.5_architecture-small_epochs-{epochs}_seed-{seed}"


def test_what_ships() -> None:
    """Codebooks of digits for every rate, of photographs for two, a model of the paper's recipe each; 40 MB in all."""
    models = {model.folder.name: model for model in shipped_models()}
    tuned = [f"mnist-{recipe}-k4-l{bins}" for recipe in ("list", "discrete") for bins in (4, 8, 16, 32, 64)]
    names = [*tuned, "cifar10-list-k4-l16", "cifar10-list-k4-l64", "mnist", "cifar10", "gaussian"]
    assert sorted(models) == sorted(names)
    files = [file for model in models.values() for file in model.folder.iterdir()]
    assert sum(file.stat().st_size for file in files) < 40e6
