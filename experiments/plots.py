"""Plots of one run; they read results and the example, and draw nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.paper import paper_figure
from experiments.results import Record

if TYPE_CHECKING:
    from experiments.coding import Example  # at run time it would bring in the models, which most plots do not need

matplotlib.use("Agg")

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7")
"""Okabe and Ito's palette, told apart by colour-blind people; markers differ as well."""
MARKERS = ("o", "s", "^", "D")


def rate_distortion(records: Sequence[Record], path: Path) -> None:
    """MSE against bits: a colour a K, GLS solid, baseline dashed, the paper's points as open markers."""
    figure = Figure(figsize=(7.2, 6.8), layout="constrained")
    axes = figure.subplots()
    decoders = sorted({record.decoders for record in records})
    for k in decoders:
        colour, marker = COLOURS[(k - 1) % 4], MARKERS[(k - 1) % 4]
        for coupling, style in (("gls", "-"), ("baseline", "--"), ("list", ":")):
            own = [r for r in records if (r.decoders, r.coupling) == (k, coupling)]
            if coupling != "list":
                own = [r for r in own if r.recipe in (None, "paper")]
            own.sort(key=lambda record: record.bits)
            axes.errorbar(
                [r.bits for r in own],
                [r.mse_paper or np.nan for r in own],
                [r.mse_paper_sem or 0.0 for r in own],
                color=colour,
                linestyle=style,
                marker={"gls": marker, "baseline": None, "list": "*"}[coupling],
                markersize=5,
                capsize=3,
                linewidth=1.6,
            )
            offset = -0.06 if coupling == "gls" else 0.06
            papers = [(r.bits, paper_figure("mnist", coupling, k, r.bins)) for r in own if coupling != "list"]
            known = [(bits + offset, paper.value) for bits, paper in papers if paper is not None]
            if known:
                axes.plot(
                    *zip(*known, strict=True),
                    color=colour,
                    marker=marker,
                    linestyle="none",
                    markersize=7,
                    markerfacecolor="none",
                    markeredgewidth=1.2 if coupling == "gls" else 0.6,
                    alpha=1.0 if coupling == "gls" else 0.6,
                )
    axes.set_xlabel("rate, log2(L_max) (bits a message)")
    axes.set_ylabel("MSE, best of K decoders (pixels in [-1, 1], over 28×28)")
    axes.set_xticks(sorted({record.bits for record in records}))
    axes.grid(alpha=0.3)
    messages = records[0].messages
    axes.set_title(f"MNIST right halves, {messages} messages a point, error bars ± 1 standard error", fontsize=11)
    figure.legend(handles=_legend(decoders), loc="outside lower center", ncols=4, frameon=False)
    figure.savefig(path, dpi=150)


def _legend(decoders: Sequence[int]) -> list[Line2D]:
    handles = [
        Line2D([], [], color=COLOURS[(k - 1) % 4], marker=MARKERS[(k - 1) % 4], markersize=5, label=f"K = {k}")
        for k in decoders
    ]
    grey = "#444444"
    return [
        *handles,
        Line2D([], [], color=grey, linestyle="-", label="GLS"),
        Line2D([], [], color=grey, linestyle="--", label="shared race (baseline)"),
        Line2D([], [], color=grey, linestyle=":", marker="*", label="list code (tuned)"),
        Line2D(
            [], [], color=grey, marker="o", linestyle="none", markerfacecolor="none", markersize=7, label="paper, GLS"
        ),
        Line2D(
            [], [], color=grey, marker="o", linestyle="none", markerfacecolor="none", markersize=7,
            markeredgewidth=0.6, alpha=0.6, label="paper, baseline",
        ),
    ]  # fmt: skip


def examples(example: Example, path: Path, rows: int = 4) -> None:
    """Source half, crops, reconstructions and the best one, for matched and for unmatched messages."""
    outcome = example.outcome
    decoders = len(outcome.decoder_picks)
    matched = np.flatnonzero(outcome.matched)[:rows]
    unmatched = np.flatnonzero(~outcome.matched)[:rows]
    shown = [*matched, *unmatched]
    titles = ["source a", *(f"t{k + 1}" for k in range(decoders)), *(f"â{k + 1}" for k in range(decoders)), "best"]
    figure = Figure(figsize=(1.05 * len(titles) + 1.2, 1.25 * len(shown) + 1.0), layout="constrained")
    grid = figure.subplots(len(shown), len(titles), squeeze=False)
    squares = np.square(outcome.reconstructions - example.sources)
    errors = squares.reshape(decoders, len(example.sources), -1).mean(axis=2)
    # A failed message is drawn blank and is never the best.
    errors = np.where(np.isnan(errors), np.inf, errors)
    for row, message in zip(grid, shown, strict=True):
        best = int(errors[:, message].argmin())
        pictures = [
            example.sources[message],
            *example.sides[:, message],
            *outcome.reconstructions[:, message],
            outcome.reconstructions[best, message],
        ]
        good = outcome.decoder_picks[:, message] == outcome.encoder_picks[message]
        for column, (axes, picture) in enumerate(zip(row, pictures, strict=True)):
            shown_picture = np.clip((np.nan_to_num(picture, nan=1.0) + 1.0) / 2.0, 0.0, 1.0)
            axes.imshow(shown_picture, cmap="gray", vmin=0.0, vmax=1.0, interpolation="nearest")
            axes.set_xticks([])
            axes.set_yticks([])
            k = column - 1 - decoders
            hit = (0 <= k < decoders and good[k]) or (k == decoders and good[best])
            for spine in axes.spines.values():
                spine.set_color("#009E73" if hit else "#999999")
                spine.set_linewidth(2.5 if hit else 0.5)
        row[0].set_ylabel(f"{message}\n{'match' if good.any() else 'no match'}", fontsize=9)
        row[-1].set_xlabel(f"MSE {errors[best, message] / 2:.3f}", fontsize=8)
    for axes, title in zip(grid[0], titles, strict=True):
        axes.set_title(title, fontsize=10)
    figure.suptitle(
        f"{example.title}; t: side information, â: reconstructions; "
        "thick green frame: that decoder picked the encoder's sample",
        fontsize=10,
        wrap=True,
    )
    figure.savefig(path, dpi=130)
