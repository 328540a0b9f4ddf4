"""Distortion of a Gaussian sweep against bits, one figure a metric: the two are different quantities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from experiments.bounds import wyner_ziv_db
from experiments.gaussian import SCHEMES
from experiments.plots import COLOURS, MARKERS
from experiments.report import gaussian_paper
from experiments.results import Record

COUPLING_TITLES = {"gls": "GLS: one private race a decoder", "baseline": "baseline: one race shared by all"}
SCHEME_STYLES = ("-", "--", "-.", ":")
GREY = "#555555"
BITS_LABEL = "rate R = log2(L_max) (bits a message)"


def mean_decibels(records: Sequence[Record], path: Path) -> None:
    """``mean_db`` against bits, with the paper's points: a panel a coupling, a colour a K, a line style a scheme."""

    def draw(axes: Axes, own: Sequence[Record], style: str) -> None:
        colour, marker = look(own[0].decoders)
        axes.errorbar(
            [r.bits for r in own],
            [_number(r.mean_db) for r in own],
            [_number(r.mean_db_sem) for r in own],
            color=colour, linestyle=style, marker=marker, markersize=3.5, linewidth=1.4, capsize=2,
        )  # fmt: skip
        papers = [(r.bits, paper.value) for r in own if (paper := gaussian_paper(r)) is not None]
        if papers:
            axes.plot(
                *zip(*papers, strict=True),
                color=colour, linestyle="none", marker=marker, markersize=9, markerfacecolor="none",
            )  # fmt: skip

    figure, handles = _figure(records, draw, "mean_db: mean of 10·log10 of the best of K squared errors (dB)")
    handles.append(_grey(marker="o", linestyle="none", markersize=9, markerfacecolor="none", label="the paper"))
    figure.suptitle(
        "The paper's metric; it has no rate–distortion limit. Error bars: ± 1 standard error", fontsize=10, wrap=True
    )
    _save(figure, handles, path)


def mse_decibels(records: Sequence[Record], path: Path) -> None:
    """``mse_db`` against bits, with 95 % intervals and limits: panels, colours and styles as in mean_db."""

    def draw(axes: Axes, own: Sequence[Record], style: str) -> None:
        colour, marker = look(own[0].decoders)
        bits = [r.bits for r in own]
        axes.plot(bits, [_best_mse(r) for r in own], color=colour, linestyle=style, linewidth=1.4)
        for r in own:
            seen = r.mse_db_low is not None or r.mse_db_integrated is not None
            axes.plot(
                r.bits, _best_mse(r),
                color=colour, marker=marker, markersize=6, markerfacecolor=colour if seen else "white",
            )  # fmt: skip
        low, high = ([_number(getattr(r, name)) for r in own] for name in ("mse_db_low", "mse_db_high"))
        axes.vlines(bits, low, high, color=colour, linewidth=1.4)
        axes.plot(bits, [wyner_ziv_db(b, own[0].decoders) for b in bits], color=colour, linestyle=":", linewidth=1.2)

    figure, handles = _figure(records, draw, "mse_db: 10·log10 of the mean of the best of K squared errors (dB)")
    for axes in figure.axes:
        axes.axhline(wyner_ziv_db(0.0), color=GREY, linewidth=1.0)
    handles += [
        _grey(marker="o", linestyle="none", markerfacecolor="white", label="sampled, no miss: an underestimate"),
        Line2D([], [], color=look(1)[0], linestyle=":", label="K = 1: Wyner–Ziv limit"),
        _grey(linestyle=":", label="K > 1: D at R + log2 K, reference, not a bound"),
        _grey(linestyle="-", linewidth=1.0, label=f"no message, K = 1: {wyner_ziv_db(0.0):.2f} dB"),
    ]
    figure.suptitle(
        "Mean squared error; integrated over side information where done. Bars: 95 % bootstrap",
        fontsize=10,
        wrap=True,
    )
    _save(figure, handles, path)


def look(decoders: int) -> tuple[str, str]:
    """Colour and marker of a K."""
    return COLOURS[(decoders - 1) % len(COLOURS)], MARKERS[(decoders - 1) % len(MARKERS)]


def _figure(
    records: Sequence[Record], draw: Callable[[Axes, Sequence[Record], str], None], label: str
) -> tuple[Figure, list[Line2D]]:
    """A panel a coupling with every line drawn, and the legend's first entries."""
    couplings = list(dict.fromkeys(r.coupling for r in records))
    schemes = list(dict.fromkeys(r.scheme for r in records))
    decoders = sorted({r.decoders for r in records})
    figure = Figure(figsize=(1.2 + 5.4 * len(couplings), 7.4), layout="constrained")
    panels = figure.subplots(1, len(couplings), sharey=True, squeeze=False)[0]
    for axes, coupling in zip(panels, couplings, strict=True):
        for scheme, style in zip(schemes, SCHEME_STYLES, strict=False):
            for k in decoders:
                own = [r for r in records if (r.coupling, r.scheme, r.decoders) == (coupling, scheme, k)]
                draw(axes, sorted(own, key=lambda r: r.bits), style)
        axes.set_title(COUPLING_TITLES[coupling], fontsize=10)
        axes.set_xlabel(BITS_LABEL)
        axes.set_xticks(sorted({r.bits for r in records}))
        axes.grid(alpha=0.3)
    panels[0].set_ylabel(label)
    handles = [Line2D([], [], color=look(k)[0], marker=look(k)[1], markersize=5, label=f"K = {k}") for k in decoders]
    for scheme, style in zip(schemes, SCHEME_STYLES, strict=False):
        handles.append(_grey(linestyle=style, label=SCHEMES[scheme or ""].title))
    return figure, handles


def _grey(label: str, **look: object) -> Line2D:
    return Line2D([], [], color=GREY, label=label, **look)  # type: ignore[arg-type]


def _save(figure: Figure, handles: list[Line2D], path: Path) -> None:
    figure.legend(handles=handles, loc="outside lower center", ncols=2 * len(figure.axes), frameon=False, fontsize=9)
    figure.savefig(path, dpi=150)


def _best_mse(record: Record) -> float:
    """``mse_db`` integrated over the side information where that was done, else as sampled."""
    return _number(record.mse_db if record.mse_db_integrated is None else record.mse_db_integrated)


def _number(value: float | None) -> float:
    return np.nan if value is None else value
