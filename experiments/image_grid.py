"""What an image sweep runs: which recipes, which cells, how many messages."""

from __future__ import annotations

from dataclasses import dataclass

from experiments.image_work import Cell
from experiments.recipes import recipe_kind
from shared_rng import CodecError
from shared_rng.session import require_bins, require_decoders


@dataclass(frozen=True)
class ImageSweepOptions:
    """What a sweep runs; two runs with equal options and models give equal records, timings apart.

    Attributes:
        dataset: ``mnist`` or ``cifar10``.
        recipes: names of recipes.
        decoders: the values of K.
        bins: the values of L_max.
        messages: test images, the first ones.
        coding_seeds: number of seeds of common randomness.
        choose_messages: held-out images on which settings are compared, the last ones.
        largest_pool: settings of a larger N are left out where a model has smaller ones.
        epochs: of models that have to be trained; None for what suits the recipe.
        training_seed: of models that have to be trained.

    Raises:
        CodecError: a value is out of range.
    """

    dataset: str
    recipes: tuple[str, ...] = ("paper",)
    decoders: tuple[int, ...] = (1, 2, 3, 4)
    bins: tuple[int, ...] = (4, 8, 16, 32, 64)
    messages: int = 10000
    coding_seeds: int = 3
    choose_messages: int = 1000
    largest_pool: int = 4096
    epochs: int | None = None
    training_seed: int = 1

    def __post_init__(self) -> None:
        for name, least in (("messages", 2), ("coding_seeds", 1), ("choose_messages", 1)):
            if getattr(self, name) < least:
                raise CodecError(name, getattr(self, name), f"at least {least}")
        if self.epochs is not None and self.epochs < 1:
            raise CodecError("epochs", self.epochs, "at least 1")
        for decoders in self.decoders:
            require_decoders(decoders)
        for bins in self.bins:
            require_bins(bins)
        for recipe in self.recipes:
            kind = recipe_kind(recipe)
            if not kind.couplings:
                raise CodecError("recipes", recipe, "recipes that take messages; references are measured beside them")
            if max(self.bins) > kind.most_bins:
                raise CodecError("bins", f"{max(self.bins)} with recipe {recipe}", f"at most {kind.most_bins}")
        if not self.cells():
            given = f"recipes {', '.join(self.recipes)} with K {', '.join(map(str, self.decoders))}"
            raise CodecError("recipes, decoders, bins", given, "at least one cell; some recipes are for K of 2 or more")

    def cells(self) -> list[Cell]:
        """All cells, recipe by recipe."""
        return [
            Cell(recipe, coupling, k, bins)
            for recipe in self.recipes
            for coupling in recipe_kind(recipe).couplings
            for k in self.decoders
            if k >= recipe_kind(recipe).least_decoders
            for bins in self.bins
        ]
