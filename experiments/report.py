"""Tables of a run: on the terminal, and as one self-contained HTML page with its plots."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

from experiments.pages import image_data, write_page
from experiments.paper import PaperFigure, paper_figure
from experiments.results import Record, Results

IMAGE_COLUMNS = (
    "recipe", "coupling", "K", "bits", "MSE (paper)", "± s.e.", "paper's", "gain ± s.e.", "MSE [0, 1]", "PSNR (dB)",
    "match", "payload (B)", "transport (B)", "seconds",
)  # fmt: skip
GAUSSIAN_COLUMNS = (
    "scheme", "coupling", "K", "bits", "s²", "mean_db", "± s.e.", "paper's", "z", "mse_db", "95 % of mse_db",
    "integrated ± s.e.", "core", "missed", "far", "far, integrated",
    "match", "≥ lemma", "≥ prop. 4", "CPU s",
)  # fmt: skip
TOY_COLUMNS = ("K", "match, GLS", "± s.e.", "≥ lemma", "optimum, 1 - d_TV")


def image_row(record: Record) -> list[str]:
    """One line of the table of an image source."""
    coupling = "baseline" if record.coupling == "baseline" else "gls"
    paper = paper_figure(record.source, coupling, record.decoders, record.bins)
    gain = ""
    if record.baseline_minus_gls is not None:
        gain = f"{record.baseline_minus_gls:+.4f} ± {record.baseline_minus_gls_sem:.4f}"
    return [
        record.recipe or "",
        record.coupling,
        str(record.decoders),
        str(record.bits),
        f"{record.mse_paper:.4f}",
        f"{record.mse_paper_sem:.4f}",
        "" if paper is None else f"{paper.value:.4f}",
        gain,
        f"{record.mse:.4f}",
        f"{record.psnr_db:.2f}",
        f"{record.match_probability:.3f}",
        str(record.payload_bytes),
        str(record.transport_bytes),
        f"{record.seconds:.2f}",
    ]


def gaussian_row(record: Record) -> list[str]:
    """One line of the table of the Gaussian source."""
    paper, z = gaussian_paper(record), z_score(record)
    interval = "" if record.mse_db is None else "no miss sampled"
    if record.mse_db_low is not None:
        interval = f"{record.mse_db_low:.2f} … {record.mse_db_high:.2f}"
    integrated = ""
    if record.mse_db_integrated is not None:
        integrated = f"{record.mse_db_integrated:.2f} ± {record.mse_db_integrated_sem:.2f}"
    return [
        record.scheme or "",
        record.coupling,
        str(record.decoders),
        str(record.bits) if record.measured_bits in (None, record.bits) else f"{record.measured_bits:.3f}",
        "/".join(f"{noise:g}" for noise in sorted(set(record.noise_variances or []))),
        _optional(record.mean_db, ".3f"),
        _optional(record.mean_db_sem, ".3f"),
        "" if paper is None else f"{paper.value:.3f}",
        _optional(z, "+.2f"),
        _optional(record.mse_db, ".2f"),
        interval,
        integrated,
        _optional(record.core_db, ".2f"),
        _optional(record.missed_messages, "d"),
        _optional(record.far_messages, "d"),
        _optional(record.far_share_integrated, ".1e"),
        _optional(record.match_probability, ".4f"),
        _optional(record.match_bound_lemma, ".4f"),
        _optional(record.match_bound_prop4, ".4f"),
        _optional(record.cpu_seconds, ".1f"),
    ]


def gaussian_paper(record: Record) -> PaperFigure | None:
    """The paper's ``mean_db`` of a cell of its own scheme, None for other schemes."""
    if record.scheme != "iid":
        return None
    return paper_figure("gaussian", record.coupling, record.decoders, record.bins)


def z_score(record: Record) -> float | None:
    """``mean_db`` less the paper's, in combined standard errors."""
    paper = gaussian_paper(record)
    if paper is None or record.mean_db is None or record.mean_db_sem is None:
        return None
    return (record.mean_db - paper.value) / math.hypot(record.mean_db_sem, paper.sem)


def agreement(records: Sequence[Record]) -> str:
    """One line on all z-scores together."""
    scores = [z for z in map(z_score, records) if z is not None]
    if not scores:
        return "no cell that the paper has"
    rms = math.sqrt(sum(z * z for z in scores) / len(scores))
    largest = max(scores, key=abs)
    beyond = sum(abs(z) > 3 for z in scores)
    return f"{len(scores)} cells of the paper: z has RMS {rms:.2f}, largest {largest:+.2f}, {beyond} beyond ±3"


def toy_row(record: Record) -> list[str]:
    """One line of the table of the toy study."""
    return [
        str(record.decoders),
        f"{record.match_probability:.4f}",
        f"{record.match_probability_sem:.4f}",
        _optional(record.match_bound_lemma, ".4f"),
        _optional(record.match_optimum, ".4f"),
    ]


def _optional(value: float | None, form: str) -> str:
    return "" if value is None else format(value, form)


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on standard output; as wide as it needs where the output is no terminal."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=220)
    table = Table(title=title)
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    console.print(table)


def write_report(results: Results, folder: Path, rate_distortion: Path, examples: Path) -> Path:
    """Write ``report.html``, which needs no other file; returns its path."""
    path = folder / "report.html"
    decoders = max(record.decoders for record in results.records)
    write_page(
        path,
        "report.html",
        title=f"One encoder, {decoders} decoders, {results.records[0].messages} digits: MSE against bits",
        rate_distortion=image_data(rate_distortion),
        examples=image_data(examples),
        columns=IMAGE_COLUMNS,
        rows=[image_row(record) for record in results.records],
        configuration=results.configuration,
    )
    return path
