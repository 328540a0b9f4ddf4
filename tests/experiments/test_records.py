"""The one result schema, the paper's figures, and what tables say of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from experiments.paper import PaperFigure, paper_figure
from experiments.report import GAUSSIAN_COLUMNS, agreement, gaussian_row, z_score
from experiments.results import Record, Results
from tests.models import refused


def record(**changes: Any) -> Record:
    fields: dict[str, Any] = {
        "source": "gaussian", "scheme": "iid", "coupling": "gls", "decoders": 1, "bins": 2, "bits": 1,
        "messages": 1000, "repetitions": 2, "pool_size": 32768, "match_probability": 0.25,
        "match_probability_sem": 0.01, "match_bound_lemma": 0.2, "match_bound_prop4": 0.1,
        "noise_variances": [0.01, 0.008], "mean_db": -9.5, "mean_db_sem": 0.1, "mse_db": -2.5, "mse_db_low": -2.7,
        "mse_db_high": -2.3, "missed_messages": 750, "failed_messages": 0, "payload_bytes": 125, "seconds": 1.5,
        "cpu_seconds": 2.5,
    }  # fmt: skip
    return Record(**(fields | changes))


def test_round_trip(tmp_path: Path) -> None:
    written = Results({"seed": 1, "variances": [0.01]}, [record(), record(mse_db_low=None, noise_variances=None)])
    assert Results.read(written.write(tmp_path).parent) == written
    # What does not apply is absent, not null.
    assert "null" not in (tmp_path / "results.json").read_text()


def test_write_leaves_the_old_file_if_it_cannot_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = Results({}, [record()])
    old.write(tmp_path)

    def killed(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        Results({}, [record(), record()]).write(tmp_path)
    assert Results.read(tmp_path) == old


def test_reading_refuses_what_is_no_result(tmp_path: Path) -> None:
    with refused("results", "no file", "results.json"):
        Results.read(tmp_path)
    for body in ("{", "[]", '{"configuration": {}}', '{"configuration": {}, "records": [{"source": "x"}]}'):
        (tmp_path / "results.json").write_text(body)
        with refused("results.json", "", "configuration and records with source, coupling"):
            Results.read(tmp_path)


def test_paper_figures() -> None:
    assert paper_figure("gaussian", "gls", 1, 2) == PaperFigure(-9.7032, 0.0193)
    assert paper_figure("gaussian", "baseline", 4, 64) == PaperFigure(-32.7141, 0.0208)
    assert paper_figure("mnist", "gls", 4, 64) == PaperFigure(0.0564, 0.0001)
    assert paper_figure("gaussian", "gls", 5, 2) is None
    assert paper_figure("gaussian", "gls", 1, 128) is None


def test_z_score_is_in_combined_standard_errors() -> None:
    found = record(mean_db=-9.7032 + 5 * 0.4, mean_db_sem=0.4)
    assert z_score(found) == pytest.approx(5 * 0.4 / (0.4**2 + 0.0193**2) ** 0.5)
    assert z_score(record(scheme="lattice")) is None
    assert z_score(record(decoders=5)) is None
    row = dict(zip(GAUSSIAN_COLUMNS, gaussian_row(found), strict=True))
    assert (row["paper's"], row["z"], row["s²"]) == ("-9.703", "+4.99", "0.008/0.01")
    assert (row["mean_db"], row["mse_db"]) == ("-7.703", "-2.50")
    assert agreement([found, record(mean_db=-9.7032), record(scheme="lattice")]).startswith("2 cells")
    assert "RMS 3.53, largest +4.99, 1 beyond" in agreement([found, record(mean_db=-9.7032)])
    assert agreement([record(scheme="lattice")]) == "no cell that the paper has"


def test_row_says_so_where_no_miss_was_sampled() -> None:
    rows = [gaussian_row(record(mse_db_low=low, mse_db_high=low)) for low in (-3.0, None)]
    place = GAUSSIAN_COLUMNS.index("95 % of mse_db")
    assert [row[place] for row in rows] == ["-3.00 … -3.00", "no miss sampled"]
