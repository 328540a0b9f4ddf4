"""Cells that share their work give what a session alone gives, message for message."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from decoder import load_decoder_model
from encoder import load_encoder_model
from experiments.coding import code_in_process
from experiments.image_cells import CellTrials, code_cells
from shared_rng import Binning, Coupling
from tests.models import make_session, uniforms, write_vae

COUNT = 70
SOURCES = (2.0 * uniforms(COUNT * 12, 2) - 1.0).reshape(COUNT, 4, 3).astype(np.float32)
SIDES = [(2.0 * uniforms(COUNT * 6, 3 + k) - 1.0).reshape(COUNT, 3, 2).astype(np.float32) for k in range(3)]
CELLS: list[tuple[Coupling, int, int]] = [
    *(("gls", k, bins) for k in (1, 2, 3) for bins in (2, 4, 16)),
    *(("baseline", k, bins) for k in (1, 2, 3) for bins in (4, 16)),
]


@pytest.mark.parametrize("binning", ["random", "region"])
def test_cells_equal_sessions(tmp_path: Path, binning: Binning) -> None:
    """Picks exactly, errors to rounding, of more than one batch and from any message number on."""
    card = write_vae(tmp_path)
    ends = load_encoder_model(card), load_decoder_model(card)
    sessions = [
        make_session(model_digest=card.digest, latent_dimension=2, coupling=c, decoders=k, bins=b, binning=binning)
        for c, k, b in CELLS
    ]
    found = code_cells(sessions, *ends, SOURCES, SIDES, first_message=1000)
    assert len(found) == len(CELLS)
    picks = set()
    for session, trials in zip(sessions, found, strict=True):
        expected = code_in_process(session, *ends, SOURCES, SIDES, first_message=1000)
        assert np.array_equal(trials.encoder_picks, expected.encoder_picks)
        assert np.array_equal(trials.decoder_picks, expected.decoder_picks)
        assert trials.payload_bytes == expected.payload_bytes
        errors = np.square(expected.reconstructions - SOURCES).mean(axis=(2, 3))
        np.testing.assert_allclose(trials.errors, errors, rtol=1e-9)
        matched = trials.decoder_picks == trials.encoder_picks
        np.testing.assert_array_equal(trials.matched_errors[matched], trials.errors[matched])
        picks.add(trials.decoder_picks.tobytes())
    # The cells do differ.
    assert len(picks) > len(CELLS) // 2


def test_cells_that_cannot_share(tmp_path: Path) -> None:
    """Sessions of different pools are coded one by one, with the same result."""
    card = write_vae(tmp_path)
    ends = load_encoder_model(card), load_decoder_model(card)
    fields = {"model_digest": card.digest, "latent_dimension": 2}
    sessions = [make_session(pool_size=64, **fields), make_session(pool_size=32, **fields)]
    alone = [code_cells([session], *ends, SOURCES, SIDES, 5)[0] for session in sessions]
    for together, one in zip(code_cells(sessions, *ends, SOURCES, SIDES, 5), alone, strict=True):
        assert np.array_equal(together.decoder_picks, one.decoder_picks)
        np.testing.assert_allclose(together.errors, one.errors, rtol=1e-9)
        np.testing.assert_allclose(together.matched_errors, one.matched_errors, rtol=1e-9)


def test_join() -> None:
    part = CellTrials(np.arange(2), np.zeros((3, 2), np.int64), np.ones((3, 2)), np.zeros((3, 2)), 5)
    joined = CellTrials.join([part, part])
    assert (joined.encoder_picks.shape, joined.errors.shape, joined.payload_bytes) == ((4,), (3, 4), 10)
