"""The Gaussian sweep: every cell of the paper's tables 10 and 11, on all cores, resumed after any end.

``results.json`` is written after each finished cell. Threads do the work: the compiled races release the
interpreter lock, and threads leave nothing behind when the program is killed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Any

from experiments.cell import Workers, derived_seed, measure
from experiments.gaussian import COUPLINGS, SCHEMES, VARIANCES, Cell, GaussianCoupling, open_cell
from experiments.plan import Plan
from experiments.progress import progress
from experiments.reference_cells import REFERENCES, available_schemes, installed, measure_reference
from experiments.results import RESULTS_NAME, Record, Results
from shared_rng import CodecError
from shared_rng.session import PROTOCOL_VERSION

_LEAST = {"choose_trials": 10, "trials": 100, "repetitions": 1}
"""Fewer messages than that say nothing of a standard error, or of which s² is better."""


@dataclass(frozen=True)
class SweepOptions:
    """What a sweep runs; two runs with equal options give equal records, timings apart.

    Attributes:
        schemes: names of schemes.
        couplings: ``gls``, ``baseline`` or both.
        decoders: the values of K.
        bins: the values of L_max.
        variances: the grid of s²; a scheme that sets its own target ignores it.
        choose_trials: messages on which each s² is tried, a cell and repetition.
        trials: fresh messages on which the chosen one is evaluated, a cell and repetition.
        repetitions: number of times that both are done.
        seed: of sources, side information and common randomness.

    Raises:
        CodecError: a value is out of range.
    """

    schemes: tuple[str, ...] = field(default_factory=available_schemes)
    couplings: tuple[GaussianCoupling, ...] = COUPLINGS
    decoders: tuple[int, ...] = (1, 2, 3, 4)
    bins: tuple[int, ...] = (2, 4, 8, 16, 32, 64)
    variances: tuple[float, ...] = VARIANCES
    choose_trials: int = 10_000
    trials: int = 100_000
    repetitions: int = 1
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("schemes", "couplings", "decoders", "bins", "variances"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise CodecError(name, ",".join(map(str, values)) or "nothing", "at least one value, each once")
        for name, known in (("schemes", (*SCHEMES, *REFERENCES)), ("couplings", COUPLINGS)):
            for value in getattr(self, name):
                if value not in known:
                    raise CodecError(name, repr(value), f"some of {', '.join(known)}")
        for scheme in self.schemes:
            if not installed(scheme):
                raise CodecError("schemes", repr(scheme), "the package constriction for it, gumbelcast[references]")
        for value in self.variances:
            if not 0 < value < float("inf"):
                raise CodecError("variances", value, "finite numbers above 0")
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise CodecError(name, getattr(self, name), f"at least {least}")
        for cell in self.cells():  # K, L_max and the seed are checked by the session that they make
            session_cell = cell if cell.scheme in SCHEMES else Cell("lattice", "gls", cell.decoders, cell.bins)
            open_cell(session_cell, self.variances[0], self.seed)

    def cells(self) -> list[Cell]:
        """All cells, in the order of tables and files."""
        cells = []
        for scheme in self.schemes:
            reference = REFERENCES.get(scheme)
            couplings = self.couplings if reference is None else reference.couplings
            cells += [
                Cell(scheme, coupling, k, bins)
                for coupling in couplings
                if coupling == "none" or coupling in self.couplings
                for k in self.decoders
                if reference is None or k in reference.decoders
                for bins in self.bins
            ]
        return cells

    def plan(self) -> Plan:
        """What is done in each cell."""
        return Plan(self.variances, self.choose_trials, self.trials, self.repetitions, self.seed)


def run_sweep(options: SweepOptions, out: Path, workers: int, description: Mapping[str, Any]) -> Results:
    """Measure the cells that are not in ``out`` yet and keep its ``results.json`` up to date.

    Args:
        options: what to run.
        out: folder of the results, made if missing.
        workers: threads that work at once.
        description: what the configuration says of this run besides the options.

    Raises:
        CodecError: a number of workers below 1, or ``out`` holds results of other options or none that can be read.
    """
    if workers < 1:
        raise CodecError("workers", workers, "at least 1")
    identity = {"experiment": "gaussian sweep", "protocol_version": PROTOCOL_VERSION, **_plain(options)}
    finished, spent = _resume(out, identity, options.cells())
    started = time.perf_counter(), time.process_time()

    def write() -> Results:
        seconds = spent[0] + time.perf_counter() - started[0], spent[1] + time.process_time() - started[1]
        timings = {"seconds": round(seconds[0], 1), "cpu_seconds": round(seconds[1], 1)}
        records = [finished[cell] for cell in options.cells() if cell in finished]
        results = Results({**description, **identity, **timings}, records)
        results.write(out)
        return results

    def keep(cell: Cell, record: Record) -> None:
        finished[cell] = record
        write()

    # Written before the first cell as well, so that the folder is bound to these options from now on.
    write()
    _measure([cell for cell in options.cells() if cell not in finished], options, keep, workers)
    return write()


def _measure(cells: Sequence[Cell], options: SweepOptions, keep: Callable[[Cell, Record], None], threads: int) -> None:
    """Measure cells, in any order, and hand over each as it ends."""
    plan = options.plan()
    total = sum(_work(cell, plan) for cell in options.cells())
    left = sum(_work(cell, plan) for cell in cells)
    # A cell's thread only hands out work and waits, so that chunks of several cells keep all workers busy.
    with progress() as bar, ThreadPoolExecutor(threads) as work, ThreadPoolExecutor(threads) as waiting:
        task = bar.add_task(f"{len(cells)} cells", total=total, completed=total - left)
        workers = Workers(work, lambda count: bar.advance(task, count))
        futures = {waiting.submit(_measure_cell, cell, plan, workers): cell for cell in cells}
        try:
            for number, future in enumerate(as_completed(futures), start=1):
                keep(futures[future], future.result())
                bar.update(task, description=f"{number}/{len(cells)} cells, last {futures[future]}")
        finally:
            for pool in (waiting, work):
                pool.shutdown(wait=False, cancel_futures=True)


def _measure_cell(cell: Cell, plan: Plan, workers: Workers) -> Record:
    if cell.scheme in SCHEMES:
        return measure(cell, plan, workers)
    seed = derived_seed(plan.seed, *astuple(cell))
    trials = plan.repetitions * plan.trials
    return workers.call(lambda: measure_reference(cell, trials, seed), _work(cell, plan))


def _work(cell: Cell, plan: Plan) -> int:
    """What the progress bar counts for a cell, roughly microseconds of processor time."""
    if cell.scheme in SCHEMES:
        return plan.work(cell)
    return round(1e6 * REFERENCES[cell.scheme].seconds * cell.decoders * plan.repetitions * plan.trials / 1e5)


def _resume(
    out: Path, identity: Mapping[str, Any], cells: Sequence[Cell]
) -> tuple[dict[Cell, Record], tuple[float, float]]:
    """Finished cells of an earlier run in ``out``, and the wall and processor seconds that it took."""
    out.mkdir(parents=True, exist_ok=True)
    if not (out / RESULTS_NAME).exists():
        return {}, (0.0, 0.0)
    results = Results.read(out)
    for name, asked in identity.items():
        if (stored := results.configuration.get(name)) != asked:
            expected = f"{_shown(stored)}, as {out / RESULTS_NAME} has, or another folder"
            raise CodecError(name, _shown(asked), expected)
    records = {(r.scheme, r.coupling, r.decoders, r.bins): r for r in results.records}
    finished = {cell: records[astuple(cell)] for cell in cells if astuple(cell) in records}
    return finished, (results.configuration["seconds"], results.configuration["cpu_seconds"])


def _plain(options: SweepOptions) -> dict[str, Any]:
    """The options as JSON gives them back."""
    return {name: list(v) if isinstance(v, tuple) else v for name, v in asdict(options).items()}


def _shown(value: object) -> object:
    return ",".join(map(str, value)) if isinstance(value, list) else "nothing" if value is None else value
