"""The Gaussian source of arXiv 2506.05632, appendix D.3, both ends in one process, on all cores."""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from decoder import load_decoder_model
from encoder import load_encoder_model
from experiments.coding import Outcome, code_in_process
from experiments.distortion import best_squared_errors, gaussian_record
from experiments.progress import progress
from experiments.results import Record
from shared_rng import CodecError, Coupling, ModelCard, Session
from shared_rng.card import model_digest

Floats = npt.NDArray[np.floating]

SIDE_VARIANCE = 0.5
POOL_SIZE = 2**15
VARIANCES = (0.01, 0.008, 0.006, 0.005, 0.003, 0.002, 0.001)
"""The paper's grid of s²."""
_CHUNK = 500
"""Trials a task; a cell's result does not depend on it."""


@dataclass(frozen=True)
class GaussianOptions:
    """What the experiment runs.

    Attributes:
        decoders: the values of K.
        bins: the values of L_max.
        trials: messages a cell on which the chosen s² is evaluated; a tenth of it, fresh, chooses.
        seed: of sources, side information and common randomness.
    """

    decoders: tuple[int, ...]
    bins: tuple[int, ...]
    trials: int = 20000
    seed: int = 1


@dataclass(frozen=True)
class _Task:
    coupling: Coupling
    decoders: int
    bins: int
    noise: float
    seed: int
    first: int
    count: int


def gaussian_card(noise_variance: float) -> ModelCard:
    """A ~ N(0, 1), W = A + N(0, noise_variance), T = A + N(0, 0.5)."""
    architecture = {"prior_variance": 1.0, "noise_variance": noise_variance, "side_variance": SIDE_VARIANCE}
    return ModelCard("gaussian", architecture, {}, None, model_digest("gaussian", architecture, None))


def gaussian_session(coupling: Coupling, decoders: int, bins: int, noise: float, seed: int) -> Session:
    """The paper's session: N = 2^15 i.i.d. candidates of N(0, 1 + s²)."""
    card = gaussian_card(noise)
    return Session(
        seed=seed,
        pool_size=POOL_SIZE,
        bins=bins,
        decoders=decoders,
        model_digest=card.digest,
        pool_variance=1.0 + noise,
        coupling=coupling,
    )


def draw(seed: int, count: int, decoders: int) -> tuple[Floats, list[Floats]]:
    """Sources [count] and side information, K arrays [count]."""
    generator = np.random.Generator(np.random.Philox(seed))
    sources = generator.standard_normal(count)
    sides = [sources + np.sqrt(SIDE_VARIANCE) * generator.standard_normal(count) for _ in range(decoders)]
    return sources, sides


def _run(task: _Task) -> tuple[_Task, Outcome, Floats]:
    card = gaussian_card(task.noise)
    session = gaussian_session(task.coupling, task.decoders, task.bins, task.noise, task.seed + task.first)
    sources, sides = draw(session.seed, task.count, task.decoders)
    outcome = code_in_process(session, load_encoder_model(card), load_decoder_model(card), sources, sides)
    return task, outcome, best_squared_errors(sources, outcome.reconstructions)


def run_gaussian(options: GaussianOptions) -> Iterator[Record]:
    """GLS: choose s² on the paper's grid by ``mean_db``, evaluate it on fresh trials; yields a record a cell.

    Raises:
        CodecError: fewer than 100 trials, or a K or L_max out of range.
    """
    if options.trials < 100:
        raise CodecError("trials", options.trials, "at least 100")
    choosing = max(_CHUNK, options.trials // 10)
    cells: list[tuple[Coupling, int, int]] = [("gls", k, bins) for k in options.decoders for bins in options.bins]
    for cell in cells:
        gaussian_session(*cell, VARIANCES[0], options.seed)
    work = len(cells) * (len(VARIANCES) * choosing + options.trials)
    # Workers are spawned: a fork would copy threads of the numeric libraries.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(os.cpu_count(), mp_context=spawn) as executor, progress() as bar:
        bar_task = bar.add_task("Gaussian source", total=work)

        def evaluate(cell: tuple[Coupling, int, int], noise: float, seed: int, trials: int) -> list[_Result]:
            tasks = [
                _Task(*cell, noise, seed, first, min(_CHUNK, trials - first)) for first in range(0, trials, _CHUNK)
            ]
            results = []
            for future in as_completed([executor.submit(_run, task) for task in tasks]):
                results.append(future.result())
                bar.advance(bar_task, results[-1][0].count)
            return sorted(results, key=lambda result: result[0].first)

        for cell in cells:
            coupling, k, bins = cell
            bar.update(bar_task, description=f"{coupling}, K = {k}, L_max = {bins}")
            scores = {}
            for noise in VARIANCES:
                chosen = evaluate(cell, noise, options.seed + 2**64, choosing)
                scores[noise] = np.mean(np.log10(np.concatenate([errors for _, _, errors in chosen])))
            best = min(scores, key=lambda noise: scores[noise])
            started = time.perf_counter()
            results = evaluate(cell, best, options.seed, options.trials)
            seconds = time.perf_counter() - started
            errors = np.concatenate([errors for _, _, errors in results])
            outcome = _join([outcome for _, outcome, _ in results])
            session = gaussian_session(coupling, k, bins, best, options.seed)
            yield gaussian_record(session, outcome, errors, seconds, best)


_Result = tuple[_Task, Outcome, Floats]


def _join(outcomes: Sequence[Outcome]) -> Outcome:
    return Outcome(
        encoder_picks=np.concatenate([o.encoder_picks for o in outcomes]),
        decoder_picks=np.concatenate([o.decoder_picks for o in outcomes], axis=1),
        reconstructions=np.concatenate([o.reconstructions for o in outcomes], axis=1),
        payload_bytes=sum(o.payload_bytes for o in outcomes),
    )
