"""Distortion of a Gaussian sweep against bits, one figure a metric: the two are different quantities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.bounds import wyner_ziv_db
from experiments.reference_cells import scheme_title
from experiments.report import gaussian_paper
from experiments.results import Record

GREY = "#555555"
BITS_LABEL = "rate R (bits a source sample)"
_LOOKS = {
    "iid": ("#0072B2", "o"),
    "lattice": ("#D55E00", "s"),
    "narrow": ("#CC79A7", "^"),
    "search": ("#E69F00", "*"),
    "common": ("#009E73", "D"),
    "nested": ("#000000", "+"),
    "tables": ("#A33B00", "P"),
    "blocks": ("#56B4E9", "v"),
    "e8": ("#7A5195", "X"),
    "random": ("#8C8C8C", "<"),
    "entropy": ("#B8A200", ">"),
}
"""Colour and marker of each scheme; the first colours are Okabe and Ito's, and markers differ as well."""
_COUPLING_STYLES = {"gls": "-", "baseline": "--", "none": "-"}


def mean_decibels(records: Sequence[Record], path: Path) -> None:
    """``mean_db`` against bits, with the paper's points: a panel a K, a colour a scheme, a line style a coupling."""

    def draw(axes: Axes, own: Sequence[Record]) -> None:
        colour, marker, style = _look(own[0])
        own = [r for r in own if r.mean_db is not None]
        axes.errorbar(
            [_rate(r) for r in own],
            [_number(r.mean_db) for r in own],
            [_number(r.mean_db_sem) for r in own],
            color=colour, linestyle=style, marker=marker, markersize=4.5, linewidth=1.3, capsize=2,
        )  # fmt: skip
        papers = [(r.bits, paper.value) for r in own if (paper := gaussian_paper(r)) is not None]
        if papers:
            axes.plot(
                *zip(*papers, strict=True),
                color=colour, linestyle="none", marker=marker, markersize=9, markerfacecolor="none",
            )  # fmt: skip

    known = [r for r in records if r.mean_db is not None]
    figure, handles = _figure(known, draw, "mean_db: mean of 10·log10 of the best of K squared errors (dB)")
    handles.append(_grey(marker="o", linestyle="none", markersize=9, markerfacecolor="none", label="the paper"))
    figure.suptitle(
        "The paper's metric; it has no rate–distortion limit. Error bars: ± 1 standard error", fontsize=10, wrap=True
    )
    _save(figure, handles, path)


def mse_decibels(records: Sequence[Record], path: Path) -> None:
    """``mse_db`` against bits, with 95 % intervals and limits: panels, colours and styles as in mean_db."""

    def draw(axes: Axes, own: Sequence[Record]) -> None:
        colour, marker, style = _look(own[0])
        axes.plot([_rate(r) for r in own], [_best_mse(r) for r in own], color=colour, linestyle=style, linewidth=1.3)
        for r in own:
            seen = r.mse_db_low is not None or r.mse_db_integrated is not None
            axes.plot(
                _rate(r), _best_mse(r),
                color=colour, marker=marker, markersize=6, markerfacecolor=colour if seen else "white",
            )  # fmt: skip
        sampled = [r for r in own if r.mse_db_integrated is None and r.mse_db_low is not None]
        axes.vlines(
            [_rate(r) for r in sampled],
            [_number(r.mse_db_low) for r in sampled],
            [_number(r.mse_db_high) for r in sampled],
            color=colour, linewidth=1.4,
        )  # fmt: skip

    figure, handles = _figure(records, draw, "mse_db: 10·log10 of the mean of the best of K squared errors (dB)")
    bits = np.array(sorted({r.bits for r in records}))
    for axes, k in zip(figure.axes, sorted({r.decoders for r in records}), strict=True):
        axes.plot(bits, [wyner_ziv_db(b, k) for b in bits], color=GREY, linestyle=":", linewidth=1.6)
        axes.axhline(wyner_ziv_db(0.0), color=GREY, linewidth=1.0)
    handles += [
        _grey(marker="o", linestyle="none", markerfacecolor="white", label="sampled, no miss: an underestimate"),
        _grey(linestyle=":", label="Wyner–Ziv limit (K = 1); D at R + log2 K (K > 1): no bound"),
        _grey(linestyle="-", linewidth=1.0, label=f"no message, K = 1: {wyner_ziv_db(0.0):.2f} dB"),
    ]
    figure.suptitle(
        "Mean squared error, integrated over side information where done; bars of sampled ones: 95 % bootstrap",
        fontsize=10,
        wrap=True,
    )
    _save(figure, handles, path)


def _look(record: Record) -> tuple[str, str, str]:
    """Colour, marker and line style."""
    return *_LOOKS[record.scheme or ""], _COUPLING_STYLES[record.coupling]


def _figure(
    records: Sequence[Record], draw: Callable[[Axes, Sequence[Record]], None], label: str
) -> tuple[Figure, list[Line2D]]:
    """A panel a K with every line drawn, and the legend's first entries."""
    decoders = sorted({r.decoders for r in records})
    lines = list(dict.fromkeys((r.scheme or "", r.coupling) for r in records))
    columns = min(2, len(decoders))
    rows = -(-len(decoders) // columns)
    figure = Figure(figsize=(1.2 + 5.4 * columns, 2.6 + 4.6 * rows), layout="constrained")
    panels = figure.subplots(rows, columns, squeeze=False, sharex=True).ravel()
    for axes, k in zip(panels, decoders, strict=False):
        for line in lines:
            own = [r for r in records if (r.scheme, r.coupling, r.decoders) == (*line, k)]
            if own:
                draw(axes, sorted(own, key=lambda r: r.bits))
        axes.set_title(f"K = {k}", fontsize=10)
        axes.grid(alpha=0.3)
        axes.set_xticks(sorted({r.bits for r in records}))
        axes.set_xlabel(BITS_LABEL)
    for axes in panels[len(decoders) :]:
        axes.remove()
    figure.supylabel(label, fontsize=10)
    handles = [
        Line2D([], [], color=_LOOKS[s][0], marker=_LOOKS[s][1], markersize=5, label=scheme_title(s))
        for s in dict.fromkeys(scheme for scheme, _ in lines)
    ]
    if any(coupling == "baseline" for _, coupling in lines):
        handles += [
            _grey(linestyle="-", label="GLS: one private race a decoder; or no race"),
            _grey(linestyle="--", label="baseline: one race shared by all"),
        ]
    return figure, handles


def _grey(label: str, **look: object) -> Line2D:
    return Line2D([], [], color=GREY, label=label, **look)  # type: ignore[arg-type]


def _save(figure: Figure, handles: list[Line2D], path: Path) -> None:
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)


def _rate(record: Record) -> float:
    """Bits a source sample: measured where the code has a variable length."""
    return record.bits if record.measured_bits is None else record.measured_bits


def _best_mse(record: Record) -> float:
    """``mse_db`` integrated over the side information where that was done, else as sampled."""
    return _number(record.mse_db if record.mse_db_integrated is None else record.mse_db_integrated)


def _number(value: float | None) -> float:
    return np.nan if value is None else value
