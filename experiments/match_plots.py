"""Match probabilities with their lower bounds: of a Gaussian sweep as the paper's figure 2, and of the toy study."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from experiments.gaussian_plots import BITS_LABEL
from experiments.plots import COLOURS
from experiments.reference_cells import scheme_title
from experiments.results import Record

# Marks of two sizes, since the couplings often lie upon each other.
_MEASURED = {"gls": ("GLS", COLOURS[0], "o", 8), "baseline": ("baseline, one shared race", COLOURS[1], "s", 4)}
_BOUNDS = {
    "match_bound_lemma": ("list matching lemma, lower bound for GLS", COLOURS[2], "--"),
    "match_bound_prop4": ("proposition 4, lower bound for GLS", COLOURS[3], ":"),
}


def match_against_bits(records: Sequence[Record], path: Path) -> None:
    """A column a K, a row a scheme: measured match probability of both couplings, and the bounds for GLS."""
    records = [r for r in records if r.match_probability is not None]
    schemes = list(dict.fromkeys(r.scheme for r in records))
    decoders = sorted({r.decoders for r in records})
    figure = Figure(figsize=(1.0 + 3.1 * len(decoders), 0.9 + 3.1 * len(schemes)), layout="constrained")
    grid = figure.subplots(len(schemes), len(decoders), sharex=True, sharey="row", squeeze=False)
    for row, scheme in zip(grid, schemes, strict=True):
        for axes, k in zip(row, decoders, strict=True):
            own = sorted((r for r in records if (r.scheme, r.decoders) == (scheme, k)), key=lambda r: r.bits)
            _draw(axes, own)
            axes.set_title(f"K = {k}, {scheme_title(scheme or '')}", fontsize=9)
            axes.set_xticks(sorted({r.bits for r in records}))
            axes.grid(alpha=0.3)
        row[0].set_ylabel("match probability")
    for axes in grid[-1]:
        axes.set_xlabel(BITS_LABEL, fontsize=9)
    lines = {str(line.get_label()): line for axes in figure.axes for line in axes.get_lines()}
    figure.legend(list(lines.values()), list(lines), loc="outside lower center", ncols=4, frameon=False, fontsize=9)
    figure.suptitle("Each coupling at the s² that it chose, the bounds at that of GLS", fontsize=10)
    figure.savefig(path, dpi=150)


def _draw(axes: Axes, records: Sequence[Record]) -> None:
    for coupling, (label, colour, marker, size) in _MEASURED.items():
        own = [r for r in records if r.coupling == coupling]
        if own:
            values = [r.match_probability or 0.0 for r in own]
            axes.plot([r.bits for r in own], values, color=colour, marker=marker, markersize=size, label=label)
    # With one decoder the couplings are the same; where GLS was run, its chosen s² is what the bounds are for.
    couplings = {r.coupling for r in records}
    own = [r for r in records if r.coupling == ("gls" if "gls" in couplings else "baseline")]
    for name, (label, colour, style) in _BOUNDS.items():
        known = [(r.bits, value) for r in own if (value := getattr(r, name)) is not None]
        if known:
            axes.plot(*zip(*known, strict=True), color=colour, linestyle=style, linewidth=2.0, label=label)


def match_against_decoders(records: Sequence[Record], path: Path) -> None:
    """Toy study: mean match probability over pairs against K, its bound, and the optimum of one decoder."""
    figure = Figure(figsize=(7.2, 5.0), layout="constrained")
    axes = figure.subplots()
    decoders = [r.decoders for r in records]
    axes.errorbar(
        decoders,
        [r.match_probability or 0.0 for r in records],
        [r.match_probability_sem or 0.0 for r in records],
        color=COLOURS[0], marker="o", markersize=5, capsize=2, label="GLS, exact (± 1 s.e. over pairs)",
    )  # fmt: skip
    bound = [np.nan if r.match_bound_lemma is None else r.match_bound_lemma for r in records]
    axes.plot(decoders, bound, color=COLOURS[2], linestyle="--", label="list matching lemma, exact at K = 1")
    optimum = [(r.decoders, r.match_optimum) for r in records if r.match_optimum is not None]
    axes.plot(
        *zip(*optimum, strict=True),
        color=COLOURS[1], marker="*", markersize=12, linestyle="none",
        label="one decoder, best with communication: 1 - d_TV",
    )  # fmt: skip
    axes.set_xlabel("number of decoders K")
    axes.set_ylabel("match probability, mean over pairs")
    axes.set_xticks(decoders)
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    figure.savefig(path, dpi=150)
