"""Tables of a run: on the terminal, and as one self-contained HTML page with its plots."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import jinja2
from rich.console import Console
from rich.table import Table

from experiments.plots import paper_value
from experiments.results import Record, Results

IMAGE_COLUMNS = (
    "coupling", "K", "bits", "MSE (paper)", "± s.e.", "paper's", "gain ± s.e.", "MSE [0, 1]", "PSNR (dB)",
    "match", "payload (B)", "transport (B)", "seconds",
)  # fmt: skip
GAUSSIAN_COLUMNS = (
    "coupling", "K", "bits", "s²", "mean_db", "± s.e.", "paper's", "mse_db", "match", "payload (B)", "seconds",
)  # fmt: skip


def image_row(record: Record) -> list[str]:
    """One line of the table of an image source."""
    paper = paper_value(record.source, record.coupling, record.decoders, record.bins)
    gain = ""
    if record.baseline_minus_gls is not None:
        gain = f"{record.baseline_minus_gls:+.4f} ± {record.baseline_minus_gls_sem:.4f}"
    return [
        record.coupling,
        str(record.decoders),
        str(record.bits),
        f"{record.mse_paper:.4f}",
        f"{record.mse_paper_sem:.4f}",
        "" if paper is None else f"{paper:.4f}",
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
    paper = paper_value("gaussian", record.coupling, record.decoders, record.bins)
    return [
        record.coupling,
        str(record.decoders),
        str(record.bits),
        f"{record.noise_variance:g}",
        f"{record.mean_db:.3f}",
        f"{record.mean_db_sem:.3f}",
        "" if paper is None else f"{paper:.3f}",
        f"{record.mse_db:.2f}",
        f"{record.match_probability:.3f}",
        str(record.payload_bytes),
        f"{record.seconds:.2f}",
    ]


def print_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table on standard output; as wide as it needs where the output is no terminal."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=160)
    table = Table(title=title)
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console.print(table)


def write_report(results: Results, folder: Path, rate_distortion: Path, examples: Path) -> Path:
    """Write ``report.html``, which needs no other file; returns its path."""
    template = resources.files("experiments").joinpath("templates", "report.html").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined)
    page = environment.from_string(template).render(
        decoders=max(record.decoders for record in results.records),
        messages=results.records[0].messages,
        rate_distortion=_base64(rate_distortion),
        examples=_base64(examples),
        columns=IMAGE_COLUMNS,
        rows=[image_row(record) for record in results.records],
        configuration=results.configuration,
    )
    path = folder / "report.html"
    path.write_text(page, encoding="utf-8")
    return path


def _base64(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode("ascii")
