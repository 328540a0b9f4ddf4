"""Trained models by recipe and cell: found in folders, named by the user, or trained where they are missing."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from experiments.datasets import task_of
from experiments.recipes import recipe_kind
from experiments.trainer import TrainingOptions
from shared_rng import CodecError, ModelCard, find_model, load_card
from shared_rng.card import CARD_NAME


@dataclass(frozen=True)
class Model:
    """A model folder with its checked card."""

    folder: Path
    card: ModelCard

    @classmethod
    def at(cls, folder: Path) -> Model:
        """The model of a folder.

        Raises:
            CodecError: there is no card, or it does not fit its weights.
        """
        return cls(folder, load_card(folder))

    @property
    def recipe(self) -> str:
        """How it was trained; models from before there were recipes are the paper's."""
        return str(self.card.training.get("recipe", "paper"))

    @property
    def dataset(self) -> str:
        """Name of the data set that it was trained on, in small letters."""
        return str(self._told("data").get("name", "")).lower().split(" ")[0]

    @property
    def images(self) -> str | None:
        """SHA-256 of the images that it was trained on, None where the card does not tell."""
        return self._told("data").get("sha256")

    @property
    def options(self) -> dict[str, Any]:
        """Options of its training.

        Raises:
            CodecError: those that say which cells it serves, or its seed, are no numbers.
        """
        options = self._told("options")
        for name in ("decoders", "bins", "seed"):
            if not isinstance(options.get(name), int | None):
                given = f"{options[name]!r} in {self.folder / CARD_NAME}"
                raise CodecError(f"card training.options.{name}", given, "an integer, or none")
        return options

    @property
    def metrics(self) -> dict[str, Any]:
        """Figures of its training.

        Raises:
            CodecError: one is no number.
        """
        metrics = self._told("metrics")
        for name, value in metrics.items():
            if not isinstance(value, int | float) or not abs(value) <= sys.float_info.max:
                raise CodecError(
                    f"card training.metrics.{name}", f"{value!r:.40} in {self.folder / CARD_NAME}", "a number"
                )
        return metrics

    def _told(self, name: str) -> dict[str, Any]:
        told = self.card.training.get(name, {})
        if not isinstance(told, dict):
            given = f"{type(told).__name__} in {self.folder / CARD_NAME}"
            raise CodecError(f"card training.{name}", given, "a JSON object")
        return told

    def serves(self, decoders: int, bins: int) -> bool:
        """Whether it is a model for K decoders and L_max bins."""
        cell = {"decoders": decoders, "bins": bins}
        return all(self.options.get(name) in (None, value) for name, value in cell.items())


def shipped_models() -> list[Model]:
    """All models that come with the package, by name."""
    return models_in(Path(str(resources.files("zoo"))))


def models_in(folder: Path) -> list[Model]:
    """All finished models in the folders of ``folder``, by name.

    Raises:
        CodecError: a card does not fit its weights, or there is no such folder.
    """
    if not folder.is_dir():
        raise CodecError("models", f"no folder {folder}", "a folder of model folders")
    paths = sorted(folder.glob(f"*/{CARD_NAME}"))
    return [Model.at(path.parent) for path in paths]


COLUMNS = (
    "model", "data", "recipe", "K", "bits", "MB", "images held out", "mse_paper", "one decoder", "one shared race",
    "rate, nats", "MSE, encoder's sample", "training, CPU s",
)  # fmt: skip


def row(model: Model) -> list[str]:
    """One line of the list of models: which cells it is for, its size on disk, and what its card tells."""
    decoders, bins = model.options.get("decoders"), model.options.get("bins")
    metrics = model.metrics
    size = 0 if model.card.weights is None else model.card.weights.stat().st_size
    names = (
        "held_out_images", "mse_paper", "mse_paper_one_decoder", "mse_paper_baseline", "rate_nats",
        "mse_encoder_sample", "training_cpu_seconds",
    )  # fmt: skip
    return [
        model.folder.name,
        model.dataset or model.card.source,
        model.recipe if model.dataset else "",
        "any" if decoders is None else str(decoders),
        "any" if bins is None else str(bins.bit_length() - 1),
        f"{size / 1e6:.1f}",
        *(f"{metrics[name]:g}" if name in metrics else "" for name in names),
    ]


def named_models(names: Sequence[str], dataset: str) -> list[Model]:
    """Models by shipped name or path.

    Raises:
        CodecError: there is none of a name, it was trained on other data, or two folders have one name, by which
            results tell them.
    """
    models: list[Model] = []
    for name in names:
        model = Model.at(find_model(name))
        if model.folder.name in [other.folder.name for other in models]:
            raise CodecError(f"model {name}", f"another model of the name {model.folder.name}", "a name of its own")
        if model.dataset != dataset:
            raise CodecError(f"model {name}", f"trained on {model.dataset or 'no images'}", f"trained on {dataset}")
        if not recipe_kind(model.recipe).couplings:
            raise CodecError(f"model {name}", f"of recipe {model.recipe}", "one that takes messages")
        wanted = task_of(dataset).architecture()
        for size in (*wanted, "channels", "side"):
            if (own := model.card.architecture.get(size)) != wanted.get(size):
                raise CodecError(f"model {name}", f"{size} {own}", f"{size} {wanted.get(size)}, as {dataset} has")
        models.append(model)
    return models


def models_for(models: Sequence[Model], recipe: str, dataset: str, decoders: int, bins: int) -> list[Model]:
    """Those of a recipe and data set that serve a cell."""
    return [m for m in models if (m.recipe, m.dataset) == (recipe, dataset) and m.serves(decoders, bins)]


def folder_name(dataset: str, recipe: str, options: Any, training: TrainingOptions) -> str:
    """Folder of a model with these options; what it starts from follows from them."""
    values = asdict(options) | {"epochs": training.epochs, "seed": training.seed, "start": None}
    texts = {name: f"{value:g}" if isinstance(value, float) else str(value) for name, value in values.items()}
    parts = [f"{name.replace('_', '-')}-{text}" for name, text in texts.items() if text != "None"]
    return "_".join([dataset, recipe, *parts])
