"""The paper's tables as they are bundled: known numbers, their shape, and nothing where the paper has nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from experiments.plots import paper_table, paper_value

TABLES = [("gaussian", "gls"), ("gaussian", "baseline"), ("mnist", "gls"), ("mnist", "baseline")]


@pytest.mark.parametrize(
    ("source", "coupling", "decoders", "bins", "value"),
    [
        ("gaussian", "gls", 1, 2, -9.7032),
        ("gaussian", "gls", 2, 8, -21.7032),
        ("gaussian", "gls", 3, 16, -28.5329),
        ("gaussian", "gls", 4, 64, -34.1082),
        ("mnist", "gls", 1, 4, 0.1027),
        ("mnist", "gls", 2, 16, 0.0734),
        ("mnist", "baseline", 1, 4, 0.1025),
        ("mnist", "baseline", 2, 4, 0.0941),
    ],
)
def test_known_numbers(source: str, coupling: str, decoders: int, bins: int, value: float) -> None:
    assert paper_value(source, coupling, decoders, bins) == pytest.approx(value, abs=5e-5)


@pytest.mark.parametrize(("decoders", "bins"), [(5, 4), (0, 4), (1, 3), (1, 1024)])
@pytest.mark.parametrize(("source", "coupling"), TABLES)
def test_cells_that_the_paper_lacks(source: str, coupling: str, decoders: int, bins: int) -> None:
    assert paper_value(source, coupling, decoders, bins) is None


@pytest.mark.parametrize(("source", "coupling"), TABLES)
def test_shape_of_the_tables(source: str, coupling: str) -> None:
    """A value and an error a cell; more bits and more decoders are never worse."""
    table: dict[str, Any] = {k: row for k, row in paper_table(source, coupling).items() if k.isdigit()}
    assert list(table) == ["1", "2", "3", "4"]
    for row in table.values():
        assert row["L_max"] == sorted(set(row["L_max"]))
        assert len(row["L_max"]) == len(row["value"]) == len(row["sem"])
        assert min(row["sem"]) >= 0
    values = np.array([row["value"] for row in table.values()])
    assert (np.diff(values, axis=1) < 0).all()
    assert (np.diff(values, axis=0) < 0).all()


@pytest.mark.parametrize("source", ["gaussian", "mnist"])
def test_gls_is_the_better_one(source: str) -> None:
    """With more than one decoder, in every cell that both tables have."""
    cells = [(k, bins) for k in (2, 3, 4) for bins in (4, 8, 16, 32, 64)]
    pairs = [(paper_value(source, "gls", *cell), paper_value(source, "baseline", *cell)) for cell in cells]
    both = [(gls, baseline) for gls, baseline in pairs if gls is not None and baseline is not None]
    assert len(both) >= 10
    assert all(gls < baseline for gls, baseline in both)
