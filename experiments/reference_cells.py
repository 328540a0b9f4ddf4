"""References beside GLS in the Gaussian sweep: what one would use instead, and what stands between.

Hyper-parameters are chosen on one seed and evaluated on another.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from experiments.block_lattice import DIMENSION, block_quantiser
from experiments.common_point import common_point
from experiments.distortion import mean_interval, standard_error
from experiments.gaussian import POSTERIOR_VARIANCE, SCHEMES, SIDE_VARIANCE, Cell, CellCoupling, open_cell
from experiments.integrated import Integrated, integrate
from experiments.optimised_tables import optimised_tables
from experiments.references import (
    Sampled,
    entropy_coded_quantiser,
    minimal_random_coding,
    nested_integrated,
    nested_quantiser,
)
from experiments.results import Record
from shared_rng.session import MAX_DECODERS

SEARCH_NODES = 32
"""Values of side information a decoder on which a searching encoder tries its messages."""
_SEARCHED_MESSAGES = 1000
_COMMON_MESSAGES = 2000
_NESTED_MESSAGES = 10_000
_TABLE_MESSAGES = 4000
_BLOCK_TRIALS = 4
"""Source samples of block lattices, relative to the others': their rare errors are sampled, not integrated."""
_MRC_VARIANCES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
_PERIODS = np.arange(4.5, 9.1, 0.25)
"""Periods that are tried for block lattices, in standard deviations of the source given the side information."""
_DECIBEL = 10.0 / math.log(10.0)


@dataclass(frozen=True)
class Reference:
    """One reference.

    Attributes:
        title: what plots call it.
        couplings: those that it has.
        decoders: the values of K that it is for.
        seconds: roughly what a cell takes a decoder, for the time left.
        measure: fills a cell's record from its bare fields, the number of source samples and a seed.
    """

    title: str
    couplings: tuple[CellCoupling, ...]
    decoders: range
    seconds: float
    measure: Callable[[Record, int, int], Record]


def measure_reference(cell: Cell, trials: int, seed: int) -> Record:
    """The record of a reference's cell."""
    started = time.perf_counter(), time.thread_time()
    bits = cell.bins.bit_length() - 1
    bare = Record(
        source="gaussian",
        scheme=cell.scheme,
        coupling=cell.coupling,
        decoders=cell.decoders,
        bins=cell.bins,
        bits=bits,
        messages=trials,
    )
    record = REFERENCES[cell.scheme].measure(bare, trials, seed)
    seconds, cpu_seconds = time.perf_counter() - started[0], time.thread_time() - started[1]
    return dataclasses.replace(record, seconds=round(seconds, 3), cpu_seconds=round(cpu_seconds, 3))


def installed(scheme: str) -> bool:
    """Whether the package that a scheme needs is there; only entropy coding needs one beyond the project's own."""
    return scheme != "entropy" or importlib.util.find_spec("constriction") is not None


def available_schemes() -> tuple[str, ...]:
    """All schemes and references whose packages are installed."""
    return (*SCHEMES, *(name for name in REFERENCES if installed(name)))


def _with_samples(record: Record, sampled: Sampled, seed: int) -> Record:
    decibels = (_DECIBEL * np.log(np.maximum(sampled.errors, 1e-300))).mean(axis=1)
    weights = sampled.weights / sampled.weights.mean()
    mean_db = float((weights * decibels).mean())
    low, high = mean_interval(sampled.terms, seed)
    seen = sampled.missed_messages != 0
    return dataclasses.replace(
        record,
        messages=sampled.errors.size,
        measured_bits=None if sampled.bits == record.bits else sampled.bits,
        mean_db=mean_db,
        mean_db_sem=standard_error(weights * (decibels - mean_db)),
        mse_db=float(_DECIBEL * np.log(sampled.mse)),
        mse_db_low=float(_DECIBEL * np.log(low)) if seen else None,
        mse_db_high=float(_DECIBEL * np.log(high)) if seen else None,
        missed_messages=sampled.missed_messages,
    )


def _with_integral(record: Record, found: Integrated) -> Record:
    return dataclasses.replace(
        record,
        mse_db_integrated=found.mse_db,
        mse_db_integrated_sem=found.sem_db,
        far_share_integrated=found.far_share,
    )


def _search(record: Record, trials: int, seed: int) -> Record:
    session, encoder, decoder = open_cell(Cell("lattice", "gls", record.decoders, record.bins), None, seed)
    count = min(trials, _SEARCHED_MESSAGES)
    found = integrate(session, encoder, decoder, SIDE_VARIANCE, count, seed, SEARCH_NODES)
    return _with_integral(dataclasses.replace(record, messages=count, pool_size=session.pool_size), found)


def _common(record: Record, trials: int, seed: int) -> Record:
    count = min(trials, _COMMON_MESSAGES)
    found = common_point(record.decoders, record.bins, record.coupling == "baseline", count, seed)
    return _with_integral(dataclasses.replace(record, messages=count), found)


def _nested(record: Record, trials: int, seed: int) -> Record:
    sampled = nested_quantiser(record.decoders, record.bins, SIDE_VARIANCE, trials, seed)
    count = min(trials, _NESTED_MESSAGES)
    found = nested_integrated(record.decoders, record.bins, SIDE_VARIANCE, count, seed)
    return _with_integral(_with_samples(record, sampled, seed), found)


def _tables(record: Record, trials: int, seed: int) -> Record:
    count = min(trials, _TABLE_MESSAGES)
    found = optimised_tables(record.decoders, record.bins, count, seed)
    return _with_integral(dataclasses.replace(record, messages=count), found)


def _blocks(record: Record, trials: int, seed: int, *, cubic: bool) -> Record:
    scale = math.sqrt(POSTERIOR_VARIANCE)

    def run(period: float, own_seed: int) -> Sampled:
        blocks = max(_BLOCK_TRIALS * trials // DIMENSION, 2)
        return block_quantiser(
            record.decoders, record.bins, period * scale, SIDE_VARIANCE, blocks, own_seed, cubic=cubic
        )

    period = min(_PERIODS, key=lambda p: run(p, seed + 1).mse)
    return _with_samples(record, run(period, seed), seed)


def _cubic_blocks(record: Record, trials: int, seed: int) -> Record:
    return _blocks(record, trials, seed, cubic=True)


def _e8_blocks(record: Record, trials: int, seed: int) -> Record:
    return _blocks(record, trials, seed, cubic=False)


def _random_coding(record: Record, trials: int, seed: int) -> Record:
    def mse(noise: float) -> float:
        return minimal_random_coding(record.bins, noise, trials, seed + 1).mse

    noise = min(_MRC_VARIANCES, key=mse)
    sampled = minimal_random_coding(record.bins, noise, trials, seed)
    return _with_samples(dataclasses.replace(record, noise_variances=[noise]), sampled, seed)


def _entropy_coding(record: Record, trials: int, seed: int) -> Record:
    """The quantiser whose measured rate is nearest to the cell's, by bisection on the step."""
    low, high = 1e-3, 20.0
    for _ in range(25):
        middle = math.sqrt(low * high)
        if entropy_coded_quantiser(middle, min(trials, 20_000), seed + 1).bits > record.bits:
            low = middle
        else:
            high = middle
    return _with_samples(record, entropy_coded_quantiser(high, trials, seed), seed)


_ONE, _ANY, _SEVERAL = range(1, 2), range(1, MAX_DECODERS + 1), range(2, MAX_DECODERS + 1)
REFERENCES = {
    "search": Reference("lattice pool, searching encoder", ("gls",), _ANY, 1.0, _search),
    "common": Reference("bins by value, one rule for all decoders", ("gls", "baseline"), _SEVERAL, 3.0, _common),
    "nested": Reference("nested scalar quantiser", ("none",), _ANY, 0.5, _nested),
    "tables": Reference("optimised tables g_k(m, t)", ("none",), _ANY, 5.0, _tables),
    "blocks": Reference("blocks of 8: cubic cells, coarse E8", ("none",), _ANY, 2.5, _cubic_blocks),
    "e8": Reference("blocks of 8: E8 in E8", ("none",), _ONE, 3.5, _e8_blocks),
    "random": Reference("minimal random coding, no side information", ("none",), _ONE, 4.0, _random_coding),
    "entropy": Reference("entropy-coded quantiser, no side information", ("none",), _ONE, 0.5, _entropy_coding),
}


def scheme_title(scheme: str) -> str:
    """What plots call a scheme or reference."""
    return SCHEMES[scheme].title if scheme in SCHEMES else REFERENCES[scheme].title
