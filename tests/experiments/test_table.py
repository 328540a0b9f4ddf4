"""What the table of a Gaussian sweep says of its records."""

from __future__ import annotations

from typing import Any

import pytest

from experiments.report import GAUSSIAN_COLUMNS, agreement, gaussian_row, z_score
from experiments.results import Record


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
