"""Plots and page of an image sweep: what is drawn where, and that the page stands alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from experiments import image_plots, image_report
from experiments.image_report import row
from experiments.results import Record, Results


def record(recipe: str, coupling: str, decoders: int, bins: int, **changes: Any) -> Record:
    mse = 0.2 / (decoders + bins)
    own = Record(
        source="mnist",
        recipe=recipe,
        coupling=coupling,
        decoders=decoders,
        bins=bins,
        bits=bins.bit_length() - 1,
        messages=100,
        mse_paper=mse,
        mse_paper_sem=0.001,
        mse=mse / 2,
        psnr_db=20.0,
    )
    if coupling != "none":
        own = replace(
            own, coding_seeds=2, match_probability=0.5, match_decoders=[0.3] * decoders, pool_size=128, model="m",
            mse_paper_decoders=[0.2] * decoders, mse_paper_no_mismatch=mse / 2,
        )  # fmt: skip
    return replace(own, **changes)


CODED = [record(r, c, k, b) for r, c in (("paper", "gls"), ("paper", "baseline"), ("list", "list"))
         for k in (1, 2, 4) for b in (4, 64)]  # fmt: skip
REFERENCES = [
    *(record("zero-bits", "none", k, 1) for k in (1, 2, 4)),
    *(record("k-means", "none", 1, b) for b in (4, 64)),
]


@pytest.mark.parametrize("records", [CODED, [*CODED, *REFERENCES], CODED[:1]], ids=["cells", "references", "one"])
def test_plots(tmp_path: Path, records: list[Record]) -> None:
    """Of any selection of cells; drawn large enough to print, and wide enough for three columns of legend."""
    image_plots.rate_distortion(records, tmp_path / "a.png")
    image_plots.match_probability(records, tmp_path / "b.png")
    for name in ("a.png", "b.png"):
        with Image.open(tmp_path / name) as image:
            assert image.width >= 1200
            assert image.height > 500


def test_pool_sizes(tmp_path: Path) -> None:
    records = [record("paper", "gls", k, b, pool_size=n) for k in (1, 4) for b in (4, 16) for n in (128, 256)]
    image_plots.effect_of_pool_size(records, tmp_path / "a.png")
    assert (tmp_path / "a.png").stat().st_size > 10000


def test_curves() -> None:
    """A shared race of one decoder is GLS and left out; references are no curves."""
    found = [
        (recipe, coupling, k) for k in (1, 2) for recipe, coupling, _ in image_plots._curves(CODED + REFERENCES, k)
    ]
    assert found == [
        ("paper", "gls", 1),
        ("list", "list", 1),
        ("paper", "gls", 2),
        ("paper", "baseline", 2),
        ("list", "list", 2),
    ]


def test_rows() -> None:
    """Every column has a cell; both readings of the MSE, and the paper's figure where there is one."""
    cells = dict(zip(image_report.COLUMNS, row(CODED[0]), strict=True))
    assert cells["mse_paper"] == "0.0400"
    assert (cells["half, [-1, 1]"], cells["mse, [0, 1]"], cells["paper's"]) == ("0.0800", "0.0200", "0.1027")
    assert (cells["match"], cells["match, each"], cells["no mismatch"], cells["N"]) == (
        "0.500",
        "0.300",
        "0.0200",
        "128",
    )
    reference = dict(zip(image_report.COLUMNS, row(REFERENCES[0]), strict=True))
    assert (reference["recipe"], reference["match"], reference["model"], reference["paper's"]) == (
        "zero-bits",
        "",
        "",
        "",
    )


@pytest.mark.parametrize("dataset", ["mnist", "cifar10"])
def test_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dataset: str) -> None:
    """One file with everything in it, the command under each figure, and for CIFAR-10 how it is read."""

    class Sweep:
        out = tmp_path

    monkeypatch.setattr(image_report, "examples", lambda sweep: {})
    results = Results({"dataset": dataset, "command": "python -m experiments sweep"}, [*CODED, *REFERENCES])
    page = image_report.write_report(Sweep(), results).read_text()  # type: ignore[arg-type]
    assert page.count("data:image/png;base64,") == page.count("<code>python -m experiments sweep</code>") == 2
    assert 'src="http' not in page
    assert page.count("<tr>") == 1 + len(CODED) + len(REFERENCES)
    assert ("states no pixel scale" in page) == (dataset == "cifar10")


def test_short_table() -> None:
    """A terminal's table has fewer columns and no other figures."""
    columns, lines = image_report.short_table(CODED)
    assert "model" not in columns
    whole = [dict(zip(image_report.COLUMNS, line, strict=True)) for line in image_report.table(CODED)]
    assert [dict(zip(columns, line, strict=True)) for line in lines] == [
        {name: line[name] for name in columns} for line in whole
    ]
