"""The image sweep: every cell of the paper's tables 13 to 16, for every recipe, on all cores.

For each cell, models and pools are chosen by ``mse_paper`` on held-out training images, and the chosen one is
evaluated on the test images with several coding seeds. What is missing is trained. ``results.json`` is written after
each group of cells, ``choices.json`` after each tried setting and a checkpoint after each epoch: a run that was ended
in any way goes on with the same command.
"""

from __future__ import annotations

import itertools
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from experiments.catalogue import Model, models_for
from experiments.image_cells import CellTrials
from experiments.image_choices import Choices
from experiments.image_extras import write_pool_sizes
from experiments.image_grid import ImageSweepOptions
from experiments.image_records import cell_record, with_gains
from experiments.image_references import ReferenceUnit, reference_record
from experiments.image_training import TrainingPlan, is_trained, require_images, train_all
from experiments.image_work import (
    Cell,
    CodingUnit,
    DataPlace,
    Setting,
    TrainingUnit,
    code_unit,
    source_arrays,
    split_images,
    workers,
)
from experiments.progress import progress
from experiments.recipes import recipe_kind
from experiments.results import RESULTS_NAME, Record, Results
from experiments.sweep_folder import SweepFolder
from experiments.training import digest_of
from shared_rng import CodecError, load_card
from shared_rng.card import CARD_NAME

CHUNK = 500
"""Messages a unit of work."""
CHOICES_NAME = "choices.json"
CHOICE_SEED = 2**64
"""Seed of the common randomness on held-out images; coding seeds of the test images are 1, 2, 3 …"""


class ImageSweep:
    """One run; :meth:`run` does it all.

    Attributes:
        options: what to run.
        out: folder of all that is written.
        test_images: where the test images are.
        description: what the configuration says.
        records: all that are finished, by recipe, coupling, K and L_max.
    """

    def __init__(
        self,
        options: ImageSweepOptions,
        data: Path | None,
        out: Path,
        named: Sequence[Model] = (),
        models: Path | None = None,
        description: dict[str, Any] | None = None,
    ) -> None:
        """Bind a folder to options.

        Args:
            options: what to run.
            data: folder of the data set, None for torchvision's download.
            out: folder of results and choices.
            named: models to use for the cells that they serve, instead of trained ones.
            models: folder of trained models, which several sweeps can share; ``out/models`` by default.
            description: what the configuration says beside the options.

        Raises:
            CodecError: ``out`` holds the results of other options, other images, or of models that are not in the
                folder; or a named model serves no cell.
        """
        for model in named:
            if not any(models_for([model], c.recipe, options.dataset, c.decoders, c.bins) for c in options.cells()):
                given = f"of recipe {model.recipe}, which serves no cell of the sweep"
                raise CodecError(f"model {model.folder.name}", given, "one that does; see --recipes and --bins")
        self.options = options
        self.out = out
        self.test_images = DataPlace(options.dataset, data, "test")
        self._held_out = DataPlace(options.dataset, data, "held_out")
        self._named = list(named)
        self._models = models or out / "models"
        images = digest_of(split_images(DataPlace(options.dataset, data, "train")))
        for model in named:
            require_images(model, images)
        self._plan = TrainingPlan(self.test_images, self._models, options.epochs, options.training_seed, images)
        self._identity = {
            "experiment": f"sweep {options.dataset}",
            "models": [model.folder.name for model in named],
            "model_digests": [model.card.digest.hex() for model in named],
            **{name: list(v) if isinstance(v, tuple) else v for name, v in asdict(options).items()},
            "training_images": images,
            "test_images": digest_of(split_images(self.test_images)),
        }
        self.description = {**(description or {}), **self._identity}
        out.mkdir(parents=True, exist_ok=True)
        self._folder = SweepFolder(out)
        self.records, self._spent = self._folder.read(self._identity, options.cells())
        self._require_models()
        self._choices = Choices(out / CHOICES_NAME)
        self._started = time.perf_counter()

    def run(self, processes: int) -> Results:
        """Train, choose and evaluate all that is not done yet."""
        self._write()
        left = [cell for cell in self.options.cells() if cell.key not in self.records]
        with progress() as bar, workers(processes) as pool:
            try:
                self._bar, self._task = bar, bar.add_task("training", total=None)
                candidates = self._candidates(left, pool)
                self._choose(candidates, pool)
                self._evaluate(candidates, pool)
                self._measure_references(pool)
                write_pool_sizes(self, pool)
            finally:
                pool.shutdown(wait=False, cancel_futures=True)
        return self._write()

    def _candidates(self, cells: Sequence[Cell], pool: ProcessPoolExecutor) -> dict[Cell, list[Setting]]:
        """Settings to choose from for each cell; trains what is missing first."""
        wanted: dict[Path, TrainingUnit] = {}
        folders: dict[Cell, list[Path]] = {}
        for cell in cells:
            named = models_for(self._named, cell.recipe, self.options.dataset, cell.decoders, cell.bins)
            units = [] if named else self._plan.units(cell.recipe, cell.decoders, cell.bins)
            folders[cell] = [model.folder for model in named] or [unit.out for unit in units]
            wanted |= {unit.out: unit for unit in units}
        train_all([unit for unit in wanted.values() if not is_trained(unit)], pool, self._trained)
        models = {folder: Model.at(folder) for folder in dict.fromkeys(itertools.chain(*folders.values()))}
        return {cell: list(self._settings(cell, [models[folder] for folder in own])) for cell, own in folders.items()}

    def _trained(self, done: int, total: int, name: str) -> None:
        self._bar.update(self._task, description="training", total=total, completed=done)
        if name:
            self._bar.console.print(f"trained {done} of {total}: {name}", markup=False)

    def _settings(self, cell: Cell, models: Sequence[Model]) -> Iterator[Setting]:
        for model in models:
            pools = recipe_kind(cell.recipe).pools(model.card, cell.decoders, cell.bins)
            usable = [fields for fields in pools if fields["pool_size"] >= cell.bins]
            small = [fields for fields in usable if fields["pool_size"] <= self.options.largest_pool]
            for fields in small or usable[:1]:
                yield Setting.of(model, fields)

    def _choose(self, candidates: dict[Cell, list[Setting]], pool: ProcessPoolExecutor) -> None:
        """Try the settings of the cells that have a choice: of each model, pools in order as long as the next helps."""
        held_out = len(source_arrays(self._held_out))
        rows = range(max(0, held_out - self.options.choose_messages), held_out)
        while True:
            wanted: dict[Setting, list[Cell]] = defaultdict(list)
            for cell, settings in candidates.items():
                for model in {setting.model: None for setting in settings if len(settings) > 1}:
                    due = self._choices.due(cell, [setting for setting in settings if setting.model == model])
                    if due is not None:
                        wanted[due].append(cell)
            if not wanted:
                return
            groups = [(setting, tuple(cells), (CHOICE_SEED,)) for setting, cells in wanted.items()]
            for setting, cells, trials in self.code(groups, self._held_out, rows, pool, "choosing"):
                scores = {c: float(trials[c][0].errors.min(axis=0).mean()) / 2.0 for c in cells}
                self._choices.put(setting, scores)

    def _evaluate(self, candidates: dict[Cell, list[Setting]], pool: ProcessPoolExecutor) -> None:
        chosen: dict[Setting, list[Cell]] = defaultdict(list)
        for cell, settings in candidates.items():
            if not settings:
                raise CodecError(str(cell), "no model", "one, or a larger pool")
            chosen[self._choices.best(cell, settings)].append(cell)
        rows = range(min(self.options.messages, len(source_arrays(self.test_images))))
        seeds = tuple(range(1, self.options.coding_seeds + 1))
        groups = [(setting, tuple(cells), seeds) for setting, cells in chosen.items()]
        for setting, cells, trials in self.code(groups, self.test_images, rows, pool, "evaluating"):
            model = Model.at(setting.model)
            for cell in cells:
                session = setting.session(cell, seeds[0])
                seed = model.options.get("seed")
                self.records[cell.key] = cell_record(self.options.dataset, session, trials[cell], model, seed)
                self._folder.put_errors(cell, np.mean([t.errors.min(axis=0) for t in trials[cell]], axis=0))
            self._write()

    def _measure_references(self, pool: ProcessPoolExecutor) -> None:
        """What needs no codec: nothing sent, with networks and with a linear prediction, and k-means."""
        messages = min(self.options.messages, len(source_arrays(self.test_images)))
        units, missing = [], []
        for k in self.options.decoders:
            (training,) = self._plan.units("zero-bits", k, 1)
            missing += [] if is_trained(training) else [training]
            seed = self.options.training_seed
            units.append(ReferenceUnit(self.test_images, "zero-bits", k, 1, messages, training.out, seed))
            units.append(ReferenceUnit(self.test_images, "linear", k, 1, messages))
        units += [ReferenceUnit(self.test_images, "k-means", 1, bins, messages) for bins in (1, *self.options.bins)]
        units.append(ReferenceUnit(self.test_images, "components", 1, 1, messages))
        left = [unit for unit in units if (unit.name, "none", unit.decoders, unit.bins) not in self.records]
        if any(unit.name == "zero-bits" for unit in left):
            train_all(missing, pool, self._trained)
        self._bar.update(self._task, description="references", total=len(left), completed=0)
        for unit, record in zip(left, pool.map(reference_record, left), strict=True):
            self.records[unit.name, "none", unit.decoders, unit.bins] = record
            self._bar.advance(self._task)
            self._write()

    def folder_of(self, record: Record) -> Path:
        """Folder of a record's model."""
        named = {model.folder.name: model.folder for model in self._named}
        return named.get(record.model or "", self._models / (record.model or ""))

    def _require_models(self) -> None:
        """What is done already needs its models again, for examples and the effect of N, and not others of the name."""
        for folder, digest in dict.fromkeys(
            (self.folder_of(r), r.model_digest) for r in self.records.values() if r.model
        ):
            expected = f"the one of which {self.out / RESULTS_NAME} has the cells, or another --out"
            if not (folder / CARD_NAME).is_file():
                raise CodecError("models", f"{folder.parent} without {folder.name}", expected)
            if digest not in (None, load_card(folder).digest.hex()):
                raise CodecError("models", f"{folder}, another model of that name", expected)

    def code(
        self,
        groups: Sequence[tuple[Setting, tuple[Cell, ...], tuple[int, ...]]],
        place: DataPlace,
        rows: range,
        pool: ProcessPoolExecutor,
        what: str,
    ) -> Iterator[tuple[Setting, tuple[Cell, ...], dict[Cell, list[CellTrials]]]]:
        """Code the messages ``rows`` of every group; each group's results by cell, one for each seed."""
        chunks = [rows[start : start + CHUNK] for start in range(0, len(rows), CHUNK)]
        self._bar.update(self._task, description=what, total=len(groups) * len(rows), completed=0)
        futures = [
            [
                [pool.submit(code_unit, CodingUnit(place, setting, cells, seed, own.start, len(own))) for own in chunks]
                for seed in seeds
            ]
            for setting, cells, seeds in groups
        ]
        for (setting, cells, seeds), own in zip(groups, futures, strict=True):
            parts = [[future.result() for future in of_seed] for of_seed in own]
            trials = {
                cell: [CellTrials.join([chunk[place_] for chunk in parts[s]]) for s in range(len(seeds))]
                for place_, cell in enumerate(cells)
            }
            own.clear()
            self._bar.update(self._task, advance=len(rows), description=f"{what}, last {setting.model.name}")
            yield setting, cells, trials

    def _write(self) -> Results:
        seconds = round(self._spent + time.perf_counter() - self._started, 1)
        cells = [cell for cell in self.options.cells() if cell.key in self.records]
        records = [self.records[cell.key] for cell in cells]
        errors = [self._folder.errors(cell, record.messages) for cell, record in zip(cells, records, strict=True)]
        records = with_gains(records, errors)
        records += [record for key, record in sorted(self.records.items()) if key[1] == "none"]
        results = Results({**self.description, "seconds": seconds}, records)
        results.write(self.out)
        return results
