"""References beside the recipe: their records for one table and one plot of ``mse_db`` against bits."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from experiments.block_lattice import block_quantiser
from experiments.bounds import wyner_ziv_db
from experiments.distortion import standard_error
from experiments.gaussian import POSTERIOR_VARIANCE, SIDE_VARIANCE, Cell, open_cell
from experiments.integrated import integrate
from experiments.progress import progress
from experiments.references import Reference, entropy_coded_quantiser, minimal_random_coding, nested_quantiser
from experiments.results import Record
from shared_rng import CodecError

BITS = (1, 2, 3, 4, 5, 6)
DECODERS = (1, 2, 3, 4)
SEARCH_NODES = 32
_MRC_VARIANCES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5)
_PERIODS = np.arange(4.5, 9.1, 0.25)
"""Periods that are tried for block lattices, in standard deviations of the source given the side information."""
_DECIBEL = 10.0 / math.log(10.0)
TITLES = {
    "lattice": "recipe: GLS on a lattice (integrated)",
    "lattice, searching encoder": "recipe with a searching encoder (integrated)",
    "nested quantiser": "nested scalar quantiser, no coupling (sampled)",
    "cubic cells, coarse E8": "blocks of 8, cubic cells in a coarse E8, no coupling (sampled)",
    "E8": "blocks of 8, E8 in E8, no coupling (sampled)",
    "minimal random coding": "minimal random coding, no side information",
    "entropy-coded quantiser": "entropy-coded scalar quantiser, no side information",
}


def run_references(trials: int, seed: int) -> Iterator[Record]:
    """One record a reference, K and rate; hyper-parameters are chosen on one seed and evaluated on another.

    Args:
        trials: source samples a record.
        seed: of sources, side information and common randomness.

    Raises:
        CodecError: fewer than 1,000 trials.
    """
    if trials < 1000:
        raise CodecError("trials", trials, "at least 1000")
    with progress() as bar:
        task = bar.add_task("references", total=len(BITS) * (2 + len(DECODERS) * 4))

        def step(name: str, decoders: int, bits: int, reference: Reference) -> Record:
            bar.update(task, advance=1, description=f"{name}, K = {decoders}, {bits} bits")
            return _record(name, decoders, 2**bits, reference)

        for bits in BITS:
            bins = 2**bits
            yield step("minimal random coding", 1, bits, _random_coding(bins, trials, seed))
            yield step("entropy-coded quantiser", 1, bits, _entropy_coded_at(bits, trials, seed))
            for k in DECODERS:
                bar.update(task, advance=2, description=f"lattice, K = {k}, {bits} bits")
                for search in (0, SEARCH_NODES):
                    yield _recipe(k, bins, search, trials, seed)
                yield step("nested quantiser", k, bits, nested_quantiser(k, bins, SIDE_VARIANCE, trials, seed))
                kinds = {"cubic cells, coarse E8": True} | ({"E8": False} if k == 1 else {})
                for name, cubic in kinds.items():
                    yield _record(name, k, bins, _block(k, bins, trials, seed, cubic=cubic))
                bar.advance(task)


def _random_coding(bins: int, trials: int, seed: int) -> Reference:
    def mse(noise: float) -> float:
        return float(minimal_random_coding(bins, noise, max(1000, trials // 4), seed + 1).errors.mean())

    return minimal_random_coding(bins, min(_MRC_VARIANCES, key=mse), trials, seed)


def _entropy_coded_at(bits: int, trials: int, seed: int) -> Reference:
    """The quantiser whose measured rate is nearest to ``bits``, by bisection on the step."""
    low, high = 1e-3, 20.0
    for _ in range(25):
        middle = math.sqrt(low * high)
        if entropy_coded_quantiser(middle, min(trials, 20000), seed + 1).bits > bits:
            low = middle
        else:
            high = middle
    return entropy_coded_quantiser(high, trials, seed)


def _block(decoders: int, bins: int, trials: int, seed: int, *, cubic: bool) -> Reference:
    scale = math.sqrt(POSTERIOR_VARIANCE)

    def run(period: float, count: int, own_seed: int) -> Reference:
        return block_quantiser(decoders, bins, period * scale, SIDE_VARIANCE, count // 8, own_seed, cubic=cubic)

    period = min(_PERIODS, key=lambda p: float(run(p, trials, seed + 1).errors.mean()))
    return run(period, trials, seed)


def _recipe(decoders: int, bins: int, search: int, trials: int, seed: int) -> Record:
    session, encoder, decoder = open_cell(Cell("lattice", "gls", decoders, bins), None, seed)
    messages = min(trials, 4000 if not search else 1000)
    found = integrate(session, encoder, decoder, SIDE_VARIANCE, messages, seed, search)
    return Record(
        source="gaussian",
        scheme="lattice, searching encoder" if search else "lattice",
        coupling="gls",
        decoders=decoders,
        bins=bins,
        bits=session.bits,
        messages=messages,
        mse_db_integrated=found.mse_db,
        mse_db_integrated_sem=found.sem_db,
    )


def _record(name: str, decoders: int, bins: int, reference: Reference) -> Record:
    mse = float(reference.errors.mean())
    return Record(
        source="gaussian",
        scheme=name,
        coupling="none",
        decoders=decoders,
        bins=bins,
        bits=int(math.log2(bins)),
        messages=len(reference.errors),
        measured_bits=reference.bits,
        mean_db=float(_DECIBEL * np.log(np.maximum(reference.errors, 1e-300)).mean()),
        mse_db=_DECIBEL * math.log(mse),
        mse_db_sem=_DECIBEL * standard_error(reference.errors) / mse,
    )


COLUMNS = ("scheme", "K", "bits", "measured bits", "mse_db", "± s.e.", "mean_db")


def row(record: Record) -> list[str]:
    """One line of the table."""
    integrated = record.mse_db_integrated is not None
    mse, sem = (
        (record.mse_db_integrated, record.mse_db_integrated_sem) if integrated else (record.mse_db, record.mse_db_sem)
    )
    return [
        record.scheme or "",
        str(record.decoders),
        str(record.bits),
        "" if record.measured_bits is None else f"{record.measured_bits:.3f}",
        f"{mse:.2f}",
        f"{sem:.2f}",
        "" if record.mean_db is None else f"{record.mean_db:.2f}",
    ]


def plot(records: list[Record], path: Path) -> None:
    """``mse_db`` against bits for K = 1 and for the largest K, with the limit or reference."""
    figure = Figure(figsize=(11.0, 6.6), layout="constrained")
    panels = figure.subplots(1, 2)
    colours = ("#000000", "#0072B2", "#56B4E9", "#D55E00", "#CC79A7", "#009E73", "#E69F00")
    for axes, k in zip(panels, (1, max(DECODERS)), strict=True):
        for (name, title), colour, marker in zip(TITLES.items(), colours, "osv^Dx*", strict=True):
            own = [r for r in records if (r.scheme, r.decoders) == (name, k)]
            if not own:
                continue
            values = [r.mse_db if r.mse_db_integrated is None else r.mse_db_integrated for r in own]
            rates = [r.bits if r.measured_bits is None else r.measured_bits for r in own]
            axes.plot(rates, [np.nan if v is None else v for v in values], color=colour, marker=marker, label=title)
        label = "Wyner–Ziv limit" if k == 1 else "D at R + log2 K: reference, not a bound"
        axes.plot(BITS, [wyner_ziv_db(b, k) for b in BITS], color="#555555", linestyle=":", label=label)
        axes.axhline(wyner_ziv_db(0.0), color="#555555", linewidth=0.8)
        axes.set_title(f"K = {k}")
        axes.set_xlabel("rate (bits a source sample)")
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    panels[0].set_ylabel("mse_db: 10·log10 of the mean of the best of K squared errors (dB)")
    figure.savefig(path, dpi=150)
