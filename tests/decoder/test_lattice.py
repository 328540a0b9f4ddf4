"""What a decoder answers on a lattice: points of truncated normals, against SciPy, also far out in the tails."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from decoder import Decoder, DecoderModel
from decoder.gaussian import GaussianDecoderModel
from shared_rng import Session, pack
from shared_rng.lattice import TEMPERATURE, lattice_for
from tests.models import Floats, gaussian_card, make_session, refused

SIDE_VARIANCE = 0.5
POSTERIOR_VARIANCE = 1 / 3
DISTANCES = (0.0, 0.01, -0.3, 1.0, -1.0, 3.0, 5.0, -5.0, 8.0, -12.0, 20.0, -30.0, 34.0, -36.0)
"""Of the picked point from the posterior mean, in standard deviations of the truncated normal."""


def a_session(decoders: int, bins: int, side: float = SIDE_VARIANCE) -> Session:
    recipe = lattice_for(decoders, bins, 1.0, SIDE_VARIANCE)
    return make_session(
        pool_kind="lattice",
        pool_size=recipe.pool_size,
        cell_width=recipe.cell_width,
        bins=bins,
        decoders=decoders,
        model_digest=gaussian_card(side=side).digest,
    )


def a_model(session: Session, index: int) -> DecoderModel:
    return GaussianDecoderModel.from_card(gaussian_card(side=SIDE_VARIANCE)).for_session(session, index)


def truncated(session: Session, points: Floats, mean: Floats, spread: float) -> stats.rv_continuous:
    """N(mean, spread²) in the cells around points."""
    half = session.cell_width / 2
    return stats.truncnorm((points - half - mean) / spread, (points + half - mean) / spread, mean, spread)


CELLS = [(1, 2), (1, 16), (2, 4), (3, 8), (4, 2), (4, 64)]


@pytest.mark.parametrize(("decoders", "bins"), CELLS)
def test_points_are_those_of_the_truncated_normal(decoders: int, bins: int) -> None:
    """K = 1: the mean in the picked cell; K > 1: decoder k's quantile (k + ½) / K, of a wider normal."""
    session = a_session(decoders, bins)
    spread = math.sqrt(POSTERIOR_VARIANCE * (1 if decoders == 1 else 3))
    side = np.linspace(-4.0, 4.0, len(DISTANCES))
    mean = side / (1 + SIDE_VARIANCE)
    points = mean + spread * np.array(DISTANCES)
    normal = truncated(session, points, mean, spread)
    answers = []
    for k in range(decoders):
        found = a_model(session, k).reconstruct(points[:, None], side)
        expected = normal.mean() if decoders == 1 else normal.ppf((k + 0.5) / decoders)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9 * session.cell_width)
        answers.append(found)
    # Every answer lies in the cell, and those of several decoders are apart and in the order of k.
    assert np.abs(answers - points).max() <= session.cell_width / 2 * (1 + 1e-12)
    assert (np.diff(answers, axis=0) > 0).all()


@pytest.mark.parametrize(("decoders", "bins"), CELLS)
def test_where_nothing_is_left_of_the_normal(decoders: int, bins: int) -> None:
    """Beyond what doubles can tell: the edge of the cell that is nearest to the posterior mean, for all decoders."""
    session = a_session(decoders, bins)
    spread = math.sqrt(POSTERIOR_VARIANCE * (1 if decoders == 1 else 3))
    side = np.array([0.4, -0.4, 0.0, 0.0])
    far = np.array([60.0, -60.0, 1e4, -1e8])
    points = side / 1.5 + spread * far
    for k in range(decoders):
        found = a_model(session, k).reconstruct(points[:, None], side)
        np.testing.assert_allclose(found, points - np.sign(far) * session.cell_width / 2, rtol=1e-12)


@pytest.mark.parametrize("decoders", [1, 2])
def test_a_failed_message_stays_no_number(decoders: int) -> None:
    found = a_model(a_session(decoders, 8), 0).reconstruct(np.array([[0.1], [np.nan], [0.2]]), np.zeros(3))
    assert np.isnan(found).tolist() == [False, True, False]


def test_proposal() -> None:
    """Mean c·t and the posterior's variance times the temperature, and weights that follow from both."""
    session = a_session(2, 8)
    model = a_model(session, 1)
    side, rows = np.array([0.3, -1.2]), np.array([0, 0, 1])
    mean, variance = model.proposal(side)  # type: ignore[attr-defined]
    np.testing.assert_allclose(mean[:, 0], side / 1.5)
    np.testing.assert_allclose(variance, TEMPERATURE * POSTERIOR_VARIANCE)
    points = np.array([[0.1], [0.7], [-2.0]])
    found = model.log_weights(side, points, rows)
    expected = stats.norm.logpdf(points[:, 0], mean[rows, 0], np.sqrt(variance[rows, 0]))
    np.testing.assert_allclose(found - found[0], expected - expected[0])


def test_without_side_information_there_is_no_lattice() -> None:
    session = a_session(1, 8, side=math.inf)
    with refused("side_variance", "inf", "a finite one for a lattice"):
        Decoder(session, 0, GaussianDecoderModel.from_card(gaussian_card(side=math.inf)))


def test_decoder_answers_by_its_own_model() -> None:
    """The codec hands every decoder its number: same message, same side information, another point."""
    session = a_session(2, 4)
    model = GaussianDecoderModel.from_card(gaussian_card(side=SIDE_VARIANCE))
    payload, side = pack(np.array([2, 2], dtype=np.uint32), 2), np.array([0.2, 0.2])
    batches = [Decoder(session, k, model).decode(payload, side, 8) for k in range(2)]
    same = batches[0].picks == batches[1].picks
    assert same.any()
    assert (batches[0].reconstructions < batches[1].reconstructions)[same].all()
