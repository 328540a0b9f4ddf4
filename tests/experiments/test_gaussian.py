"""The Gaussian source and the sessions that its schemes open."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from experiments.coding import code_in_process
from experiments.distortion import best_squared_errors
from experiments.gaussian import Cell, draw, gaussian_card, open_cell
from shared_rng import CodecError, MissingSideInformation, SequenceError, SessionMismatch
from tests.integration.services import in_process_models


def test_draw() -> None:
    """Sources do not depend on K; side information has the noise of the experiment and is independent."""
    sources, sides = draw(5, 20000, 2)
    again, one = draw(5, 20000, 1)
    assert np.array_equal(sources, again)
    assert np.array_equal(sides[0], one[0])
    noise = np.stack(sides) - sources
    # Standard error of a variance of 1/2 is 0.005, of a correlation 0.007.
    assert np.abs(noise.var(axis=1) - 0.5).max() < 0.025
    assert np.abs(np.corrcoef([sources, *noise]) - np.eye(3)).max() < 0.035
    assert not np.array_equal(draw(6, 10, 1)[0], sources[:10])


def test_session_fits_the_models() -> None:
    card = gaussian_card(0.003)
    session, _, _ = open_cell(Cell("iid", "gls", 2, 4), 0.003, 9)
    assert session.pool_variance == pytest.approx(1.003)
    assert session.model_digest == card.digest
    # The shipped model is that of the experiment at this s².
    assert in_process_models()[0].digest == card.digest


def test_more_decoders_and_more_bits_help() -> None:
    """In the paper's metric, on a small pool and common sources."""
    encoder, decoder = in_process_models()
    sources, sides = draw(11, 400, 2)

    def mean_db(decoders: int, bins: int) -> float:
        session, _, _ = open_cell(Cell("iid", "gls", decoders, bins), 0.003, 11)
        small = type(session)(**{**vars(session), "pool_size": 2048})
        outcome = code_in_process(small, encoder, decoder, sources, sides[:decoders])
        return float(np.log10(best_squared_errors(sources, outcome.reconstructions)).mean() * 10)

    assert mean_db(1, 2) > mean_db(2, 2) > mean_db(2, 16)
    assert mean_db(1, 2) > mean_db(1, 16) > mean_db(2, 16)


@pytest.mark.parametrize("kind", [CodecError, SessionMismatch, SequenceError, MissingSideInformation])
def test_errors_travel_between_processes(kind: type[CodecError]) -> None:
    """A worker's refusal arrives as it is."""
    error = kind("operand", 1, "two")
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is kind
    assert (found.operand, found.given, found.expected, str(found)) == ("operand", 1, "two", str(error))
