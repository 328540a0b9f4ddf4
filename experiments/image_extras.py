"""What an image sweep shows beside its cells: the effect of N on one model, and example messages."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from decoder import load_decoder_model
from encoder import load_encoder_model
from experiments.catalogue import Model
from experiments.coding import Example, code_in_process
from experiments.image_records import cell_record
from experiments.image_work import Cell, Setting, side_arrays, source_arrays
from experiments.recipes import recipe_kind
from experiments.results import RESULTS_NAME, Record, Results

if TYPE_CHECKING:
    from experiments.image_sweep import ImageSweep

MESSAGES = 1000
"""Test images on which the effect of N is measured."""
EXAMPLES = 64
"""Test images among which an example figure finds good and failed messages."""
_RECIPE = "paper"


def pool_sizes_folder(sweep: ImageSweep) -> Path:
    """Where the results of :func:`write_pool_sizes` lie."""
    return sweep.out / "pool_sizes"


def write_pool_sizes(sweep: ImageSweep, pool: ProcessPoolExecutor) -> None:
    """MSE of GLS against N, with the paper's recipe and the model of the middle cell; once."""
    record = _middle_record(sweep, "gls", _RECIPE)
    folder = pool_sizes_folder(sweep)
    if record is None or (folder / RESULTS_NAME).is_file():
        return
    model = Model.at(sweep.folder_of(record))
    decoders, bins = _spread(sweep.options.decoders), _spread(sweep.options.bins)
    cells = [Cell(_RECIPE, "gls", k, b) for k in decoders for b in bins]
    groups = []
    for fields in recipe_kind(_RECIPE).pools(model.card, record.decoders, record.bins):
        if fields["pool_size"] <= sweep.options.largest_pool:
            own = tuple(cell for cell in cells if cell.bins <= fields["pool_size"])
            if own:
                groups.append((Setting.of(model, fields), own, (1,)))
    records = []
    rows = range(min(MESSAGES, record.messages))
    for setting, own, trials in sweep.code(groups, sweep.test_images, rows, pool, "pool sizes"):
        for cell in own:
            session = setting.session(cell, 1)
            records.append(cell_record(sweep.options.dataset, session, trials[cell], model, record.training_seed))
    folder.mkdir(exist_ok=True)
    Results(sweep.description, records).write(folder)


def examples(sweep: ImageSweep) -> dict[str, Example]:
    """The first test images in each recipe's cell of the most decoders and the middle L_max, by recipe."""
    found = {}
    for recipe in sweep.options.recipes:
        coupling = recipe_kind(recipe).couplings[0]
        record = _middle_record(sweep, coupling, recipe)
        if record is None:
            continue
        model = Model.at(sweep.folder_of(record))
        ends = load_encoder_model(model.card), load_decoder_model(model.card)
        pools = recipe_kind(recipe).pools(model.card, record.decoders, record.bins)
        fields = next(f for f in pools if f["pool_size"] == record.pool_size)
        cell = Cell(recipe, coupling, record.decoders, record.bins)
        sources = source_arrays(sweep.test_images)[:EXAMPLES]
        sides = [side_arrays(sweep.test_images, k)[:EXAMPLES] for k in range(cell.decoders)]
        session = Setting.of(model, fields).session(cell, 1)
        outcome = code_in_process(session, *ends, sources, sides)
        found[recipe] = Example(sources, np.stack(sides), outcome, f"Recipe {cell} a message")
    return found


def _middle_record(sweep: ImageSweep, coupling: str, recipe: str) -> Record | None:
    """Of the most decoders and the middle L_max."""
    bins = sorted(sweep.options.bins)[len(sweep.options.bins) // 2]
    return sweep.records.get((recipe, coupling, max(sweep.options.decoders), bins))


def _spread(values: Sequence[int]) -> list[int]:
    """The smallest, the largest, and of an odd number the one in the middle."""
    ordered = sorted(set(values))
    middle = {ordered[len(ordered) // 2]} if len(ordered) % 2 else set()
    return sorted({ordered[0], ordered[-1]} | middle)
