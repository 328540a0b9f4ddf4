"""The paper's tables as they are bundled: known numbers, their shape, and nothing where the paper has nothing."""

from __future__ import annotations

import numpy as np
import pytest

from experiments.paper import PaperFigure, paper_figure

TABLES = [("gaussian", "gls"), ("gaussian", "baseline"), ("mnist", "gls"), ("mnist", "baseline")]
BINS = (4, 8, 16, 32, 64)


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
    paper = paper_figure(source, coupling, decoders, bins)
    assert paper is not None
    assert paper.value == pytest.approx(value, abs=5e-5)


def test_known_errors() -> None:
    assert paper_figure("gaussian", "gls", 1, 2) == PaperFigure(-9.7032, 0.0193)
    assert paper_figure("gaussian", "baseline", 4, 64) == PaperFigure(-32.7141, 0.0208)
    assert paper_figure("mnist", "gls", 4, 64) == PaperFigure(0.0564, 0.0001)


@pytest.mark.parametrize(("decoders", "bins"), [(5, 4), (0, 4), (1, 3), (1, 1024)])
@pytest.mark.parametrize(("source", "coupling"), TABLES)
def test_cells_that_the_paper_lacks(source: str, coupling: str, decoders: int, bins: int) -> None:
    assert paper_figure(source, coupling, decoders, bins) is None


@pytest.mark.parametrize(("source", "coupling"), TABLES)
def test_shape_of_the_tables(source: str, coupling: str) -> None:
    """A value and an error in every cell; more bits and more decoders are never worse."""
    values = np.array([[figure(source, coupling, k, bins).value for bins in BINS] for k in (1, 2, 3, 4)])
    assert (np.diff(values, axis=1) < 0).all()
    assert (np.diff(values, axis=0) < 0).all()
    assert all(figure(source, coupling, k, bins).sem >= 0 for k in (1, 2, 3, 4) for bins in BINS)


@pytest.mark.parametrize("source", ["gaussian", "mnist"])
def test_gls_is_the_better_one(source: str) -> None:
    """With more than one decoder, in every cell that both tables have."""
    for k in (2, 3, 4):
        for bins in BINS:
            assert figure(source, "gls", k, bins).value < figure(source, "baseline", k, bins).value


def figure(source: str, coupling: str, decoders: int, bins: int) -> PaperFigure:
    found = paper_figure(source, coupling, decoders, bins)
    assert found is not None
    return found
