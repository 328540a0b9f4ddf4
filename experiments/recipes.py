"""The recipes by name. A new one: write its options and its class, and add a line to :data:`RECIPES`.

Its options become command-line options of ``train`` by name (``experiments/image_commands.py`` declares them);
an option that a recipe does not have is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from encoder.image_task import ImageTask
from experiments.codebook_recipe import CodebookOptions, ListRecipe, QuantiserRecipe
from experiments.discrete_recipe import DiscreteRecipe
from experiments.paper_recipe import POOL_SIZES, PaperOptions, PaperRecipe, paper_grid, paper_pools
from experiments.region_recipe import RegionOptions, RegionRecipe
from experiments.trainer import Recipe, TrainingOptions, is_large
from experiments.zero_bits_recipe import ZeroBitsOptions, ZeroBitsRecipe
from shared_rng import CodecError, Coupling, ModelCard
from shared_rng.regions import MAX_REGIONS
from shared_rng.session import MAX_BINS

_USUAL_POOL_SIZE = 256


@dataclass(frozen=True)
class RecipeKind:
    """How to make, train and use models of a recipe.

    A model serves the cells that its options allow: where they hold ``decoders`` or ``bins``, those of one cell.

    Attributes:
        options: its frozen dataclass of options.
        make: the recipe from a task and options.
        grid: options of all models to choose from for a task's cell of K decoders and L_max bins, which a sweep
            trains where they are missing.
        pools: session fields to choose from, given the model's card, K and L_max: ``pool_size`` and whatever else is
            not the default. They are tried in this order as long as the next is better.
        training: options of the loop that are the recipe's defaults.
        couplings: those that are measured; each cell's choice is made for each of them.
        start: recipe, K and L_max of the model that a sweep starts a cell's model from, or None for nothing. It is the
            same whatever else a sweep measures, so that a cell measured alone has the same model.
        continued: the same as ``training`` of models that start from another; None if none does.
        continued_large: the same as ``continued`` of images of more than :data:`experiments.trainer.LARGE` values.
        least_decoders: cells of fewer are left out of sweeps.
        most_bins: the largest L_max that its models can have.
    """

    options: type[Any]
    make: Callable[[ImageTask, Any], Recipe]
    grid: Callable[[ImageTask, int, int], Sequence[Any]]
    pools: Callable[[ModelCard, int, int], Sequence[dict[str, Any]]]
    training: TrainingOptions
    couplings: tuple[Coupling, ...] = ("gls", "baseline")
    start: Callable[[int, int], tuple[str, int, int] | None] = lambda decoders, bins: None
    continued: TrainingOptions | None = None
    continued_large: TrainingOptions | None = None
    least_decoders: int = 1
    most_bins: int = MAX_BINS

    def usual_pool_size(self, card: ModelCard, decoders: int, bins: int) -> int:
        """N where none is asked for: the smallest of 256 or more that a model's sessions may have.

        Raises:
            CodecError: L_max is larger than any N.
        """
        sizes = [int(pool["pool_size"]) for pool in self.pools(card, decoders, bins)]
        fitting = [size for size in sizes if size >= bins]
        if not fitting:
            raise CodecError("bins", bins, f"at most pool_size, {max(sizes)}")
        return min(fitting, key=lambda size: (size < _USUAL_POOL_SIZE, size))

    def training_of(self, task: ImageTask, start: object) -> TrainingOptions:
        """Defaults of the loop for a model of a task that starts from ``start``, or from nothing if that is None."""
        large = self.continued_large if is_large(task) else None
        return self.training if start is None else large or self.continued or self.training


def _region_start(decoders: int, bins: int) -> tuple[str, int, int] | None:
    """Models of 16 bins are trained first, all others from them: with fewer bins the latent may collapse."""
    return None if bins == 16 else (RegionRecipe.name, decoders, 16)


def _fewer_bins(recipe: str) -> Callable[[int, int], tuple[str, int, int] | None]:
    """From the recipe's own model of the next smaller power of 4: 4 ← 8, 16 and 16 ← 32, 64."""

    def start(decoders: int, bins: int) -> tuple[str, int, int] | None:
        fewer = 4 ** ((bins.bit_length() - 2) // 2)
        return None if fewer < 4 else (recipe, decoders, fewer)

    return start


def _list_of_the_cell(decoders: int, bins: int) -> tuple[str, int, int]:
    return ListRecipe.name, decoders, bins


def _region_grid(task: ImageTask, decoders: int, bins: int) -> list[RegionOptions]:
    return [RegionOptions(decoders=decoders, bins=bins)]


def _region_pools(card: ModelCard, decoders: int, bins: int) -> list[dict[str, Any]]:
    """N of its training."""
    options = card.training.get("options")
    size = options.get("pool_size") if isinstance(options, dict) else None
    if type(size) is not int:
        raise CodecError("card training.options.pool_size", repr(size), "an integer, since the recipe is region")
    return [{"pool_size": size, "latent_dimension": card.size("latent_dimension"), "binning": "region"}]


def _zero_bits_grid(task: ImageTask, decoders: int, bins: int) -> list[ZeroBitsOptions]:
    return [ZeroBitsOptions(decoders=decoders)]


def _codebook_grid(task: ImageTask, decoders: int, bins: int) -> list[CodebookOptions]:
    return [CodebookOptions(decoders=decoders, bins=bins)]


def _codebook_pools(card: ModelCard, decoders: int, bins: int) -> list[dict[str, Any]]:
    return [{"pool_kind": "discrete", "pool_size": card.size("words")}]


def _no_pools(card: ModelCard, decoders: int, bins: int) -> list[dict[str, Any]]:
    return []


_REGION = TrainingOptions(epochs=12, batch=256, learning_rate=2e-3, ramp=0.05, clip=50.0)
_CODEBOOK = TrainingOptions(epochs=16)
_CODEBOOK_CONTINUED = TrainingOptions(epochs=10)
_codebook_kind = partial(RecipeKind, CodebookOptions, grid=_codebook_grid, pools=_codebook_pools, training=_CODEBOOK)

RECIPES: dict[str, RecipeKind] = {
    PaperRecipe.name: RecipeKind(
        PaperOptions, PaperRecipe, paper_grid, paper_pools, TrainingOptions(epochs=30), most_bins=max(POOL_SIZES)
    ),
    RegionRecipe.name: RecipeKind(
        RegionOptions,
        RegionRecipe,
        _region_grid,
        _region_pools,
        _REGION,
        start=_region_start,
        continued=replace(_REGION, epochs=4),
        most_bins=MAX_REGIONS,
    ),
    # A reference: it takes no messages, so it has no cells of its own.
    ZeroBitsRecipe.name: RecipeKind(
        ZeroBitsOptions, ZeroBitsRecipe, _zero_bits_grid, _no_pools, TrainingOptions(epochs=12), ()
    ),
    # With one decoder, list and discrete are the quantiser.
    ListRecipe.name: _codebook_kind(
        ListRecipe,
        couplings=("list",),
        start=_fewer_bins(ListRecipe.name),
        continued=_CODEBOOK_CONTINUED,
        least_decoders=2,
    ),
    QuantiserRecipe.name: _codebook_kind(
        QuantiserRecipe,
        couplings=("gls",),
        start=_fewer_bins(QuantiserRecipe.name),
        continued=_CODEBOOK_CONTINUED,
    ),
    DiscreteRecipe.name: _codebook_kind(
        DiscreteRecipe,
        start=_list_of_the_cell,
        # More epochs help digits too, but one shared race more than GLS.
        continued=replace(_CODEBOOK, epochs=4),
        continued_large=replace(_CODEBOOK, epochs=6),
        least_decoders=2,
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
