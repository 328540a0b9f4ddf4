"""The Gaussian experiment on one cell: near the paper, the same on every run, and refused where it makes no sense."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from experiments import gaussian
from experiments.coding import code_in_process
from experiments.distortion import best_squared_errors
from experiments.gaussian import GaussianOptions, draw, gaussian_card, gaussian_session, run_gaussian
from experiments.plots import paper_value
from shared_rng import CodecError, MissingSideInformation, SequenceError, SessionMismatch
from tests.integration.services import in_process_models
from tests.models import refused


def test_one_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    """L_max = 2 at one decoder: the better s² is chosen, and ``mean_db`` is the paper's within five standard errors."""
    monkeypatch.setattr(gaussian, "VARIANCES", (0.001, 0.01))
    monkeypatch.setattr(gaussian, "_CHUNK", 150)
    (record,) = run_gaussian(GaussianOptions(decoders=(1,), bins=(2,), trials=400, seed=1))
    assert (record.source, record.coupling, record.decoders, record.bins) == ("gaussian", "gls", 1, 2)
    assert (record.messages, record.pool_size, record.failed_messages) == (400, 2**15, 0)
    # Batches of 64 end with each task: two of 150 trials with 8 + 8 + 3 bytes, one of 100 with 8 + 5.
    assert record.payload_bytes == 51
    assert record.noise_variance == 0.01
    assert record.mean_db is not None
    assert record.mean_db_sem is not None
    paper = paper_value("gaussian", "gls", 1, 2)
    assert paper is not None
    assert 0.3 < record.mean_db_sem < 0.8
    assert abs(record.mean_db - paper) < 5 * record.mean_db_sem
    # Convexity: a mean of decibels is below the decibels of the mean.
    assert record.mse_db is not None
    assert record.mse_db > record.mean_db + 1.0


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
    session = gaussian_session("gls", 2, 4, 0.003, 9)
    assert session.pool_variance == pytest.approx(1.003)
    assert session.model_digest == card.digest
    # The shipped model is that of the experiment at this s².
    assert in_process_models()[0].digest == card.digest


def test_more_decoders_and_more_bits_help() -> None:
    """In the paper's metric, on a small pool and common sources."""
    encoder, decoder = in_process_models()
    sources, sides = draw(11, 400, 2)

    def mean_db(decoders: int, bins: int) -> float:
        session = gaussian_session("gls", decoders, bins, 0.003, 11)
        small = type(session)(**{**vars(session), "pool_size": 2048})
        outcome = code_in_process(small, encoder, decoder, sources, sides[:decoders])
        return float(np.log10(best_squared_errors(sources, outcome.reconstructions)).mean() * 10)

    assert mean_db(1, 2) > mean_db(2, 2) > mean_db(2, 16)
    assert mean_db(1, 2) > mean_db(1, 16) > mean_db(2, 16)


@pytest.mark.parametrize(
    ("decoders", "bins", "trials", "operand"),
    [
        ((1,), (2,), 99, "trials"),
        ((1,), (2, 3), 100, "bins"),
        ((1, 0), (2,), 100, "decoders"),
        ((1,), (2**16,), 100, "bins"),
    ],
)
def test_refusals(decoders: tuple[int, ...], bins: tuple[int, ...], trials: int, operand: str) -> None:
    """Before the first cell is run."""
    with refused(operand):
        next(iter(run_gaussian(GaussianOptions(decoders, bins, trials))))


@pytest.mark.parametrize("kind", [CodecError, SessionMismatch, SequenceError, MissingSideInformation])
def test_errors_travel_between_processes(kind: type[CodecError]) -> None:
    """A worker's refusal arrives as it is."""
    error = kind("operand", 1, "two")
    found = pickle.loads(pickle.dumps(error))
    assert type(found) is kind
    assert (found.operand, found.given, found.expected, str(found)) == ("operand", 1, "two", str(error))
