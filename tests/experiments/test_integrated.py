"""The integrated distortion agrees with sampling, and with what can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from encoder.search import expected_minimum
from experiments.coding import code_in_process
from experiments.distortion import best_squared_errors, standard_error
from experiments.gaussian import SIDE_VARIANCE, Cell, draw, open_cell
from experiments.integrated import Answer, Floats, integrate, integrate_answers, stratified_error, weighted_sources


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


def test_weighted_sources_stand_for_the_normal() -> None:
    """Moments of N(0, 1) from weighted sources: with a source a stratum they are known far better than 1 / √1000."""
    sources, weights = weighted_sources(1000, np.random.default_rng(1))
    assert weights.sum() == pytest.approx(1.0, abs=0.002)
    assert weights @ sources == pytest.approx(0.0, abs=0.005)
    assert weights @ sources**2 == pytest.approx(1.0, abs=0.01)
    assert weights @ sources**4 == pytest.approx(3.0, abs=0.1)
    assert np.all(np.diff(sources) > 0)


def test_stratified_error_is_the_spread_within_strata() -> None:
    """Of a line plus noise in 4,000 strata: the line does not count, 4,000 variances of noise do."""
    noise = np.random.default_rng(2).normal(size=4000)
    found = stratified_error(np.linspace(0.0, 5.0, 4000) + noise)
    # Half as many pairs estimate the variance, to a relative 1 / √2000 · √2.
    assert found == pytest.approx(np.sqrt(4000.0), rel=0.1)


def test_failures_are_a_product_over_decoders() -> None:
    """Decoders that answer 0 miss a source by more than 1 with P(|A| > 1) at once; their noise plays no part."""

    def answers(first: int, sources: Floats) -> Answer:
        return lambda k, side: np.zeros_like(side)

    found = integrate_answers(answers, 3, 0.5, 2000, np.random.default_rng(3), far=1.0)
    assert found.far_share == pytest.approx(0.3173, abs=0.002)
    assert found.mse == pytest.approx(1.0, abs=0.01)


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


REACH = {
    1: (-6.4, -10.5, -15.5, -20.7, -26.1, -31.5),
    2: (-11.3, -17.3, -22.9, -28.3, -33.8, -39.3),
    3: (-14.8, -21.3, -27.1, -32.8, -38.3, -43.8),
    4: (-17.2, -24.1, -30.1, -35.7, -41.3, -46.8),
}


@pytest.mark.parametrize(("decoders", "place"), [(1, 2), (1, 5), (2, 1), (3, 0), (4, 2), (4, 5)])
def test_lattice_recipe_reaches(decoders: int, place: int) -> None:
    """Integrated ``mse_db`` of the recipe, failures included; two standard errors of slack."""
    session, encoder, decoder = open_cell(Cell("lattice", "gls", decoders, 2 ** (place + 1)), None, 11)
    found = integrate(session, encoder, decoder, SIDE_VARIANCE, 4000, 12)
    assert found.mse_db <= REACH[decoders][place] + 2.0 * found.sem_db
    # Known well enough for the figure to mean something.
    assert found.sem_db < 0.1


def test_search_helps() -> None:
    """The searching encoder is better on the same messages at K = 4, 1 bit, and never picks outside its bin."""
    session, encoder, decoder = open_cell(Cell("lattice", "gls", 4, 2), None, 13)
    plain, searched = (integrate(session, encoder, decoder, SIDE_VARIANCE, 1500, 14, nodes) for nodes in (0, 24))
    assert searched.mse < plain.mse
