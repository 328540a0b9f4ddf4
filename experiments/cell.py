"""One cell of a Gaussian sweep: choose s² as the paper does, evaluate it on fresh messages, make the record."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import astuple, dataclass
from typing import TypeVar

import numpy as np

from experiments import bounds
from experiments.coding import code_in_process
from experiments.distortion import best_squared_errors, mean_interval, standard_error
from experiments.gaussian import SCHEMES, SIDE_VARIANCE, Cell, Flags, Floats, draw, open_cell
from experiments.integrated import REACH, Integrated, integrate
from experiments.plan import Plan, integration_work, message_work
from experiments.results import Record

CHUNK = 2500
"""Messages of one session and one unit of work. It is part of what a seed means."""
BOUND_CANDIDATES = 2**25
"""Candidates a cell over which the list matching lemma is summed: of 1,024 messages with the paper's pool, and of
all messages of a small pool, whose misses would be too rare in fewer."""
T = TypeVar("T")
_DECIBEL = 10.0 / np.log(10.0)


@dataclass(frozen=True)
class Chunk:
    """Messages of one session of a cell.

    Attributes:
        cell: the cell.
        noise: s², None for a scheme that has none.
        seed: this chunk's own.
        count: number of messages.
        bound_candidates: candidates over which the list matching lemma is summed, at most.
    """

    cell: Cell
    noise: float | None
    seed: int
    count: int
    bound_candidates: int


@dataclass(frozen=True)
class Trials:
    """What came of a chunk: best squared errors and matches [B], terms of the lemma (of its first messages), sums."""

    errors: Floats
    matched: Flags
    bound_terms: Floats
    pool_size: int
    cell_width: float
    failed: int
    payload_bytes: int
    cpu_seconds: float


class Workers:
    """Threads that cells share."""

    def __init__(self, pool: Executor, advance: Callable[[int], object]) -> None:
        """Work on ``pool`` and tell ``advance`` the work of each chunk that is done."""
        self._pool = pool
        self._advance = advance

    def run(self, chunks: Sequence[Chunk]) -> list[Trials]:
        """Code every chunk, as many at once as there are threads; what came of them in order."""
        results = []
        futures = [self._pool.submit(run_chunk, chunk) for chunk in chunks]
        for chunk, future in zip(chunks, futures, strict=True):
            results.append(future.result())
            self._advance(chunk.count * message_work(chunk.cell))
        return results

    def call(self, function: Callable[[], T], work: int) -> T:
        """Call a function on a thread and count its work."""
        result = self._pool.submit(function).result()
        self._advance(work)
        return result


def derived_seed(*parts: object) -> int:
    """128 bits that stand for a sequence of names and numbers.

    Every chunk has its own, so a cell comes out the same alone, in another order or after an interruption,
    and no two cells share a source.
    """
    return int.from_bytes(hashlib.sha256("|".join(map(str, parts)).encode()).digest()[:16], "big")


def run_chunk(chunk: Chunk) -> Trials:
    """Code a chunk and evaluate the lemma on some of it."""
    started = time.thread_time()
    session, encoder_model, decoder_model = open_cell(chunk.cell, chunk.noise, chunk.seed)
    sources, sides = draw(chunk.seed, chunk.count, chunk.cell.decoders)
    outcome = code_in_process(session, encoder_model, decoder_model, sources, sides, chunk.count)
    some = slice(min(chunk.count, -(-chunk.bound_candidates // session.pool_size)))
    terms: Floats = np.zeros(0)
    if some.stop and _lemma_holds(chunk.cell):
        parts = sources[some], [side[some] for side in sides], outcome.encoder_picks[some]
        terms = bounds.lemma_terms(session, encoder_model, decoder_model, *parts)
    return Trials(
        errors=best_squared_errors(sources, outcome.reconstructions),
        matched=outcome.matched,
        bound_terms=terms,
        pool_size=session.pool_size,
        cell_width=session.cell_width,
        failed=int((outcome.decoder_picks < 0).any(axis=0).sum()),
        payload_bytes=outcome.payload_bytes,
        cpu_seconds=time.thread_time() - started,
    )


def choose(cell: Cell, plan: Plan, repetition: int, workers: Workers) -> tuple[float | None, float]:
    """s² with the least ``mean_db``, None where the scheme has none, and the processor time.

    All values of s² see the same sources, side information and words, so that they differ by s² alone.
    """
    if not SCHEMES[cell.scheme].independent_pool:
        return None, 0.0
    scores, cpu_seconds = [], 0.0
    for noise in plan.variances:
        tried = workers.run(_chunks(cell, plan, repetition, "choose", noise))
        scores.append(np.log10(np.concatenate([trials.errors for trials in tried])).mean())
        cpu_seconds += sum(trials.cpu_seconds for trials in tried)
    return plan.variances[int(np.argmin(scores))], cpu_seconds


def measure(cell: Cell, plan: Plan, workers: Workers) -> Record:
    """Choose and evaluate every repetition of a cell."""
    started = time.perf_counter()
    noises: list[float | None] = []
    trials: list[Trials] = []
    cpu_seconds = 0.0
    for repetition in range(plan.repetitions):
        noise, chosen_in = choose(cell, plan, repetition, workers)
        noises.append(noise)
        cpu_seconds += chosen_in
        trials += workers.run(_chunks(cell, plan, repetition, "evaluate", noise))
    cpu_seconds += sum(part.cpu_seconds for part in trials)
    integrated, integrated_in = _integrate(cell, plan, noises, workers)
    cpu_seconds += integrated_in
    return _record(cell, plan, noises, trials, integrated, time.perf_counter() - started, cpu_seconds)


def _integrate(cell: Cell, plan: Plan, noises: list[float | None], workers: Workers) -> tuple[Integrated | None, float]:
    """``mse_db`` integrated over the side information, where sampling may miss what dominates it; processor time."""
    messages = plan.integrated_messages(cell)
    if not messages:
        return None, 0.0
    seed = derived_seed(plan.seed, *astuple(cell), "integrate")
    # On an i.i.d. pool misses are frequent, and far values of t, which matter little, have the longest races.
    reach = 4.0 if SCHEMES[cell.scheme].independent_pool else REACH

    def work() -> tuple[Integrated, float]:
        started = time.thread_time()
        found = integrate(*open_cell(cell, noises[0], seed), SIDE_VARIANCE, messages, seed, reach=reach)
        return found, time.thread_time() - started

    return workers.call(work, messages * integration_work(cell))


def _record(
    cell: Cell,
    plan: Plan,
    noises: list[float | None],
    trials: list[Trials],
    integrated: Integrated | None,
    seconds: float,
    cpu_seconds: float,
) -> Record:
    errors = np.concatenate([part.errors for part in trials])
    matched = np.concatenate([part.matched for part in trials]).astype(np.float64)
    missed = int(np.count_nonzero(matched == 0.0))
    terms = np.concatenate([part.bound_terms for part in trials])
    chosen = [noise for noise in noises if noise is not None]
    decibels = _DECIBEL * np.log(errors)
    far = (2.0 * trials[0].cell_width) ** 2  # 0 where nothing is a lattice
    # Without a miss the sample lacks what dominates the mean, and an interval from it would claim too much.
    interval = None
    if missed:
        low, high = mean_interval(errors, derived_seed(plan.seed, *astuple(cell), "bootstrap"))
        interval = _DECIBEL * np.log(low), _DECIBEL * np.log(high)
    return Record(
        source="gaussian",
        scheme=cell.scheme,
        coupling=cell.coupling,
        decoders=cell.decoders,
        bins=cell.bins,
        bits=cell.bins.bit_length() - 1,
        messages=len(errors),
        repetitions=plan.repetitions,
        pool_size=trials[0].pool_size,
        noise_variances=chosen or None,
        match_probability=float(matched.mean()),
        match_probability_sem=standard_error(matched),
        match_bound_lemma=float(terms.mean()) if len(terms) else None,
        match_bound_lemma_sem=standard_error(terms) if len(terms) > 1 else None,
        match_bound_prop4=_proposition_4(cell, chosen),
        mean_db=float(decibels.mean()),
        mean_db_sem=standard_error(decibels),
        mse_db=float(_DECIBEL * np.log(errors.mean())),
        core_db=float(_DECIBEL * np.log(np.minimum(errors, far).mean())) if far else None,
        far_messages=int(np.count_nonzero(errors > far)) if far else None,
        far_share_integrated=None if integrated is None else integrated.far_share,
        mse_db_integrated=None if integrated is None else integrated.mse_db,
        mse_db_integrated_sem=None if integrated is None else integrated.sem_db,
        mse_db_low=None if interval is None else float(interval[0]),
        mse_db_high=None if interval is None else float(interval[1]),
        missed_messages=missed,
        failed_messages=sum(part.failed for part in trials),
        payload_bytes=sum(part.payload_bytes for part in trials),
        seconds=round(seconds, 3),
        cpu_seconds=round(cpu_seconds, 3),
    )


def _proposition_4(cell: Cell, chosen: list[float]) -> float | None:
    if not (SCHEMES[cell.scheme].independent_pool and _lemma_holds(cell)):
        return None
    return float(np.mean([bounds.proposition_4(cell.decoders, cell.bins, noise) for noise in chosen]))


def _lemma_holds(cell: Cell) -> bool:
    """Private races; with one decoder both couplings are the same."""
    return cell.coupling == "gls" or cell.decoders == 1


def _chunks(cell: Cell, plan: Plan, repetition: int, purpose: str, noise: float | None) -> list[Chunk]:
    """The chunks of one purpose, ``choose`` or ``evaluate``; the lemma's share is spread over all of the latter."""
    count = plan.choose_trials if purpose == "choose" else plan.trials
    starts = range(0, count, CHUNK)
    share = 0 if purpose == "choose" else -(-BOUND_CANDIDATES // (len(starts) * plan.repetitions))
    name = (*astuple(cell), repetition, purpose)
    return [
        Chunk(cell, noise, derived_seed(plan.seed, *name, first), min(CHUNK, count - first), share) for first in starts
    ]
