"""The report of an image sweep: tables on the terminal, plots, and one page of HTML that needs no other file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from experiments import image_plots, plots
from experiments.image_extras import examples, pool_sizes_folder
from experiments.image_sweep import ImageSweep
from experiments.pages import image_data, write_page
from experiments.paper import paper_figure
from experiments.results import RESULTS_NAME, Record, Results

COLUMNS = (
    "recipe", "coupling", "K", "bits", "mse_paper", "± s.e.", "paper's", "gain ± s.e.", "half, [-1, 1]", "mse, [0, 1]",
    "PSNR (dB)", "match", "match, each", "mse_paper, each", "no mismatch", "N", "model",
)  # fmt: skip
SHORT = ("recipe", "coupling", "K", "bits", "mse_paper", "± s.e.", "paper's", "gain ± s.e.", "PSNR (dB)", "match")
"""Columns that a terminal is wide enough for."""
CONVENTIONS = (
    "mse_paper: pixels in [-1, 1], squared error averaged over the whole image with the half of the side information "
    "left blank. half: the same averaged over the source half alone, twice that. mse: pixels in [0, 1], source half, "
    "from which PSNR follows. Each is of the best of K decoders; each decoder alone is given beside it."
)
READING = (
    "The paper states no pixel scale for CIFAR-10. Its tables allow one reading of those tried: pixels in [-1, 1], "
    "averaged over 32×32 with the left half blank (mse_paper). Over the right half alone (column half) its K = 1, "
    "6 bits (.0710) would be better than as many principal components as its latent has dimensions, without any "
    "quantisation (row components); and with pixels in [0, 1] already the mean image (row k-means with 0 bits) would "
    "be better than its figures."
)


@dataclass(frozen=True)
class _Figure:
    title: str
    file: Path
    caption: str

    @property
    def data(self) -> str:
        return image_data(self.file)


def row(record: Record) -> list[str]:
    """One line of the table."""
    paper = None
    if record.coupling != "none":
        coupling = "baseline" if record.coupling == "baseline" else "gls"
        paper = paper_figure(record.source, coupling, record.decoders, record.bins)
    gain = ""
    if record.baseline_minus_gls is not None:
        gain = f"{record.baseline_minus_gls:+.4f} ± {record.baseline_minus_gls_sem:.4f}"
    mse = record.mse or 0.0
    return [
        record.recipe or "",
        record.coupling,
        str(record.decoders),
        "no limit" if record.recipe == "components" else str(record.bits),
        f"{record.mse_paper:.4f}",
        f"{record.mse_paper_sem:.4f}",
        "" if paper is None else f"{paper.value:.4f}",
        gain,
        f"{4.0 * mse:.4f}",
        f"{mse:.4f}",
        f"{record.psnr_db:.2f}",
        "" if record.match_probability is None else f"{record.match_probability:.3f}",
        _mean(record.match_decoders, 3),
        _mean(record.mse_paper_decoders, 4),
        "" if record.mse_paper_no_mismatch is None else f"{record.mse_paper_no_mismatch:.4f}",
        "" if record.pool_size is None else str(record.pool_size),
        record.model or "",
    ]


def _mean(values: list[float] | None, digits: int) -> str:
    return "" if not values else f"{sum(values) / len(values):.{digits}f}"


def write_report(sweep: ImageSweep, results: Results) -> Path:
    """Draw all plots and write ``report.html``; returns its path."""
    out, records = sweep.out, results.records
    image_plots.rate_distortion(records, out / "rate_distortion.png")
    image_plots.match_probability(records, out / "match.png")
    figures = [
        _Figure(
            "Rate and distortion",
            out / "rate_distortion.png",
            "MSE and PSNR of the best of K decoders. Black: the paper's own tables. Grey: references without a codec. "
            "Thin lines with dots: what GLS would reach if every decoder had the encoder's sample.",
        ),
        _Figure(
            "Match probability",
            out / "match.png",
            "Share of messages at which a decoder picked the encoder's sample.",
        ),
    ]
    if (pool_sizes_folder(sweep) / RESULTS_NAME).is_file():
        image_plots.effect_of_pool_size(Results.read(pool_sizes_folder(sweep)).records, out / "pool_sizes.png")
        caption = "More candidates give a finer pool and more of them a bin, so that decoders err more often."
        figures.append(_Figure("Effect of N", out / "pool_sizes.png", caption))
    for recipe, example in examples(sweep).items():
        plots.examples(example, out / f"examples-{recipe}.png")
        caption = "Messages on which a decoder picked the encoder's sample, then messages on which none did."
        figures.append(_Figure(f"Examples, recipe {recipe}", out / f"examples-{recipe}.png", caption))
    path = out / "report.html"
    write_page(
        path,
        "sweep.html",
        title=f"{results.configuration['dataset']}: MSE against bits",
        figures=figures,
        conventions=[CONVENTIONS, *([READING] if results.configuration["dataset"] == "cifar10" else [])],
        columns=COLUMNS,
        rows=table(records),
        configuration=results.configuration,
    )
    return path


def table(records: Sequence[Record]) -> list[list[str]]:
    """All lines of the table."""
    return [row(record) for record in records]


def short_table(records: Sequence[Record]) -> tuple[Sequence[str], list[list[str]]]:
    """Columns and lines for a terminal; the page and ``results.json`` have the rest."""
    places = [COLUMNS.index(name) for name in SHORT]
    return SHORT, [[line[place] for place in places] for line in table(records)]
