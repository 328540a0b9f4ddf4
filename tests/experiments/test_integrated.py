"""The integrated distortion agrees with sampling, and with what can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from encoder.search import expected_minimum
from experiments.coding import code_in_process
from experiments.distortion import best_squared_errors, standard_error
from experiments.gaussian import SIDE_VARIANCE, Cell, draw, open_cell
from experiments.integrated import integrate, stratified_sources


def test_expected_minimum_of_two_coins() -> None:
    """Two independent variables that are 1 or 4 with probabilities ¾ and ¼: the minimum is 4 once in 16."""
    values = np.array([[[1.0, 4.0]], [[4.0, 1.0]]])
    weights = np.array([[[0.75, 0.25]], [[0.25, 0.75]]])
    assert expected_minimum(values, weights) == pytest.approx([1.0 + 3.0 / 16.0])


def test_expected_minimum_of_uniforms() -> None:
    """The minimum of three uniforms has mean ¼; 400 atoms each are within 1/400 of it."""
    atoms = np.broadcast_to((np.arange(400) + 0.5) / 400, (3, 1, 400))
    weights = np.full(atoms.shape, 1.0 / 400)
    assert expected_minimum(atoms, weights)[0] == pytest.approx(0.25, abs=1.0 / 400)


def test_stratified_sources_are_normal() -> None:
    sources = stratified_sources(1000, np.random.default_rng(1))
    # One source a stratum: the mean of 1,000 is known far better than 1 / √1000.
    assert abs(sources.mean()) < 0.005
    assert sources.var() == pytest.approx(1.0, abs=0.01)


CELLS = [
    Cell("lattice", "gls", 1, 2),
    Cell("lattice", "gls", 4, 2),
    Cell("lattice", "baseline", 2, 4),
    Cell("iid", "gls", 1, 4),
    Cell("iid", "gls", 2, 2),
]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_integration_agrees_with_sampling(cell: Cell) -> None:
    """Within four combined standard errors, where failures are frequent enough to be sampled."""
    session, encoder, decoder = open_cell(cell, 0.01, 5)
    found = integrate(session, encoder, decoder, SIDE_VARIANCE, 500 if cell.scheme == "iid" else 3000, 6)
    sources, sides = draw(7, 40000, cell.decoders)
    outcome = code_in_process(session, encoder, decoder, sources, sides, 10000)
    sampled = best_squared_errors(sources, outcome.reconstructions)
    error = np.hypot(found.sem, standard_error(sampled))
    assert abs(found.mse - sampled.mean()) < 4.0 * error
    # And both know their value to a few per cent, so that the check can fail.
    assert error < 0.06 * found.mse


@pytest.mark.parametrize(
    ("decoders", "bins", "reach"), [(1, 8, -15.5), (1, 64, -31.5), (2, 4, -17.3), (4, 8, -30.1), (4, 64, -46.8)]
)
def test_lattice_recipe_reaches(decoders: int, bins: int, reach: float) -> None:
    """Integrated ``mse_db`` of the recipe, failures included; three standard errors of slack."""
    session, encoder, decoder = open_cell(Cell("lattice", "gls", decoders, bins), None, 11)
    found = integrate(session, encoder, decoder, SIDE_VARIANCE, 6000, 12)
    assert found.mse_db <= reach + 3.0 * found.sem_db
    # A few sources near a period's edge dominate, so the error is largest at K = 4.
    assert found.sem_db < 0.8


def test_search_helps() -> None:
    """The searching encoder is better on the same messages at K = 4, 1 bit, and never picks outside its bin."""
    session, encoder, decoder = open_cell(Cell("lattice", "gls", 4, 2), None, 13)
    plain, searched = (integrate(session, encoder, decoder, SIDE_VARIANCE, 1500, 14, nodes) for nodes in (0, 24))
    assert searched.mse < plain.mse
