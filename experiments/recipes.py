"""The recipes by name. A new one: write its options and its class, and add a line to :data:`RECIPES`.

Its options become command-line options of ``train`` by name (``experiments/image_commands.py`` declares them);
an option that a recipe does not have is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from experiments.image_task import ImageTask
from experiments.paper_recipe import PaperOptions, PaperRecipe
from experiments.region_recipe import RegionOptions, RegionRecipe
from experiments.training import Recipe, TrainingOptions
from shared_rng import CodecError


@dataclass(frozen=True)
class RecipeKind:
    """How to make a recipe.

    Attributes:
        options: its frozen dataclass of options.
        make: the recipe from a task and options.
        training: what is chosen of the run for it.
    """

    options: type[Any]
    make: Callable[[ImageTask, Any], Recipe]
    training: TrainingOptions


RECIPES: dict[str, RecipeKind] = {
    PaperRecipe.name: RecipeKind(PaperOptions, PaperRecipe, TrainingOptions()),
    RegionRecipe.name: RecipeKind(
        RegionOptions, RegionRecipe, TrainingOptions(epochs=12, batch=256, learning_rate=2e-3)
    ),
}


def recipe_kind(name: str) -> RecipeKind:
    """A recipe by name.

    Raises:
        CodecError: there is none of that name.
    """
    if name not in RECIPES:
        raise CodecError("recipe", repr(name), f"one of: {', '.join(RECIPES)}")
    return RECIPES[name]


def recipe_options(name: str, given: Mapping[str, Any]) -> Any:
    """A recipe's options from those that are given; None stands for the default.

    Raises:
        CodecError: an option is given that the recipe does not have.
    """
    kind = recipe_kind(name)
    known = [field.name for field in fields(kind.options)]
    chosen = {option: value for option, value in given.items() if value is not None}
    for option in chosen:
        if option not in known:
            expected = f"options of recipe {name}: {', '.join(known)}"
            raise CodecError(f"--{option.replace('_', '-')}", chosen[option], expected)
    return kind.options(**chosen)
