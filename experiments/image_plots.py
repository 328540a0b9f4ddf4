"""Plots of an image sweep; they read records and draw nothing else.

Recipes are told apart by colour (Okabe and Ito's palette) and marker, couplings by line style, so that the plots
also serve in print and for colour-blind people.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.paper import paper_figure
from experiments.results import Record

matplotlib.use("Agg")

STYLES = {
    "paper": ("#0072B2", "o"),
    "region": ("#D55E00", "s"),
    "discrete": ("#009E73", "^"),
    "list": ("#CC79A7", "D"),
    "quantiser": ("#E69F00", "v"),
}
"""Colour and marker of each recipe."""
_GREY = "#555555"
_COUPLINGS: dict[str, Any] = {"gls": "-", "baseline": "--", "list": "-"}
_COUPLING_NAMES = {"gls": "GLS, private races", "baseline": "one shared race", "list": "list code"}
_REFERENCES: dict[str, Any] = {"zero-bits": ":", "linear": (0, (1, 3)), "k-means": "-."}
_REFERENCE_NAMES = {
    "zero-bits": "0 bits: networks on the crops alone",
    "linear": "0 bits: linear prediction from a crop",
    "k-means": "k-means without side information",
}


def rate_distortion(records: Sequence[Record], path: Path) -> None:
    """MSE (left axes) and PSNR (right axes) against bits, one panel a K, with all references and the paper's points."""
    figure, panels = _panels(records)
    for k, axes in panels.items():
        for recipe, coupling, own in _curves(records, k):
            colour, marker = STYLES[recipe]
            bits = [r.bits for r in own]
            axes.errorbar(
                bits, [r.mse_paper or np.nan for r in own], [r.mse_paper_sem or 0.0 for r in own],
                color=colour, linestyle=_COUPLINGS[coupling], marker=marker if coupling != "baseline" else None,
                markersize=5, capsize=2, linewidth=1.5,
            )  # fmt: skip
            bound = [r.mse_paper_no_mismatch for r in own]
            if coupling == "gls" and k > 1 and None not in bound:
                axes.plot(bits, bound, color=colour, linewidth=0.7, marker=".", markersize=3)  # type: ignore[arg-type]
        _paper_points(axes, records, k)
        _references(axes, records, k)
        right = axes.secondary_yaxis("right", functions=(_psnr, _mse))  # type: ignore[arg-type]
        right.set_ylabel("PSNR (dB)")
        axes.set_ylabel("MSE, best of K (mse_paper)")
    figure.suptitle(_title(records, "error bars ± 1 standard error"), fontsize=11, wrap=True)
    figure.legend(handles=_legend(records), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def _psnr(mse_paper: np.ndarray) -> np.ndarray:
    """PSNR of pixels in [0, 1] over the source: the error there is half of ``mse_paper``."""
    return np.asarray(-10.0 * np.log10(np.maximum(mse_paper, 1e-9) / 2.0))


def _mse(psnr: np.ndarray) -> np.ndarray:
    return np.asarray(2.0 * 10.0 ** (-np.asarray(psnr) / 10.0))


def match_probability(records: Sequence[Record], path: Path) -> None:
    """Share of messages at which some decoder picked the encoder's sample, and the mean over single decoders."""
    figure, panels = _panels(records)
    for k, axes in panels.items():
        for recipe, coupling, own in _curves(records, k):
            colour, marker = STYLES[recipe]
            bits = [r.bits for r in own]
            marker = marker if coupling != "baseline" else ""
            axes.plot(
                bits, [r.match_probability or np.nan for r in own],
                color=colour, linestyle=_COUPLINGS[coupling], marker=marker, markersize=5,
            )  # fmt: skip
            each = [np.mean(r.match_decoders or [np.nan]) for r in own]
            if coupling != "baseline" and k > 1:
                axes.plot(bits, each, color=colour, linestyle=":", marker=marker, markersize=4, markerfacecolor="none")
        axes.set_ylabel("match probability")
        axes.set_ylim(0.0, 1.02)
    figure.suptitle(_title(records, "any decoder; dotted: the mean decoder alone"), fontsize=11, wrap=True)
    figure.legend(handles=_recipe_legend(records), loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def effect_of_pool_size(records: Sequence[Record], path: Path) -> None:
    """MSE against N for one model: a colour a number of bits, a line style a K."""
    figure = Figure(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.subplots()
    colours = [colour for colour, _ in STYLES.values()]
    markers = [marker for _, marker in STYLES.values()]
    bits = sorted({r.bits for r in records})
    decoders = sorted({r.decoders for r in records})
    lines = ("-", "--", ":", "-.")
    for place, b in enumerate(bits):
        for k, line in zip(decoders, lines, strict=False):
            own = sorted((r for r in records if (r.bits, r.decoders) == (b, k)), key=lambda r: r.pool_size or 0)
            axes.errorbar(
                [r.pool_size or 0 for r in own], [r.mse_paper or np.nan for r in own],
                [r.mse_paper_sem or 0.0 for r in own],
                color=colours[place % 5], marker=markers[place % 5], linestyle=line, markersize=5, capsize=2,
                label=f"K = {k}, {b} bits",
            )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xlabel("N, candidates in the pool")
    axes.set_ylabel("MSE, best of K (mse_paper)")
    axes.grid(alpha=0.3)
    axes.set_title(f"{records[0].model}, GLS, {records[0].messages} messages a point", fontsize=9, wrap=True)
    figure.legend(loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    figure.savefig(path, dpi=150)


def _panels(records: Sequence[Record]) -> tuple[Figure, dict[int, Axes]]:
    decoders = sorted({r.decoders for r in records if r.coupling != "none"})
    columns = min(2, len(decoders))
    rows = -(-len(decoders) // columns)
    figure = Figure(figsize=(max(8.0, 5.2 * columns), 3.6 * rows + 1.8), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True).ravel()
    panels = dict(zip(decoders, grid, strict=False))
    for axes in grid[len(decoders) :]:
        axes.set_visible(False)
    bits = sorted({r.bits for r in records if r.coupling != "none"})
    for k, axes in panels.items():
        axes.set_title(f"K = {k}", fontsize=10)
        axes.set_xticks(bits)
        axes.set_xlabel("rate, log2(L_max) (bits a message)")
        axes.grid(alpha=0.3)
        axes.tick_params(labelleft=True)
    return figure, panels


def _curves(records: Sequence[Record], decoders: int) -> list[tuple[str, str, list[Record]]]:
    """Recipe, coupling and the records of one K by bits; with one decoder the shared race is GLS and left out."""
    found = []
    for recipe in STYLES:
        for coupling in _COUPLINGS:
            own = [r for r in records if (r.recipe, r.coupling, r.decoders) == (recipe, coupling, decoders)]
            if own and not (coupling == "baseline" and decoders == 1):
                found.append((recipe, coupling, sorted(own, key=lambda r: r.bits)))
    return found


def _paper_points(axes: Axes, records: Sequence[Record], decoders: int) -> None:
    bins = sorted({r.bins for r in records if r.coupling != "none"})
    for coupling, marker in (("gls", "o"), ("baseline", "x")):
        points = [(b.bit_length() - 1, paper_figure(records[0].source, coupling, decoders, b)) for b in bins]
        known = [(bits, paper.value) for bits, paper in points if paper is not None]
        if known and not (coupling == "baseline" and decoders == 1):
            axes.plot(*zip(*known, strict=True), color="black", marker=marker, linestyle="none", markersize=6,
                      markerfacecolor="none", markeredgewidth=1.0)  # fmt: skip


def _references(axes: Axes, records: Sequence[Record], decoders: int) -> None:
    for name, line in _REFERENCES.items():
        own = sorted((r for r in records if r.recipe == name), key=lambda r: r.bits)
        # The mean image, k-means without a message, is far above all else.
        own = [r for r in own if name != "k-means" or r.bits]
        if name == "k-means" and own:
            axes.plot([r.bits for r in own], [r.mse_paper or np.nan for r in own], color=_GREY, linestyle=line)
        for record in own if name != "k-means" else ():
            if record.decoders == decoders:
                axes.axhline(record.mse_paper or np.nan, color=_GREY, linestyle=line)


def _title(records: Sequence[Record], what: str) -> str:
    coded = next(r for r in records if r.coupling != "none")
    seeds = f"{coded.coding_seeds} coding seed{'s' if coded.coding_seeds != 1 else ''}"
    return f"{coded.source}, {coded.messages} test images a point, {seeds}; {what}"


def _recipe_legend(records: Sequence[Record]) -> list[Line2D]:
    present = {r.recipe for r in records}
    recipes = [
        Line2D([], [], color=colour, marker=marker, markersize=5, label=f"recipe {name}")
        for name, (colour, marker) in STYLES.items()
        if name in present
    ]
    couplings = [
        Line2D([], [], color=_GREY, linestyle=_COUPLINGS[coupling], label=_COUPLING_NAMES[coupling])
        for coupling in ("gls", "baseline")
    ]
    return [*recipes, *couplings]


def _legend(records: Sequence[Record]) -> list[Line2D]:
    handles = _recipe_legend(records)
    handles.append(
        Line2D([], [], color=_GREY, linewidth=0.7, marker=".", markersize=3, label="GLS, no mismatch (bound)")
    )
    for marker, name in (("o", "the paper's GLS"), ("x", "the paper's shared race")):
        handles.append(
            Line2D([], [], color="black", marker=marker, linestyle="none", markerfacecolor="none", label=name)
        )
    present = {r.recipe for r in records}
    for name, style in _REFERENCES.items():
        if name in present:
            handles.append(Line2D([], [], color=_GREY, linestyle=style, label=_REFERENCE_NAMES[name]))
    return handles
