"""Pixels out of range at running services: refused by name, nothing of the batch is kept, and the service goes on."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np

from decoder.client import DecoderClient
from decoder.model import load_decoder_model
from encoder.client import EncoderClient
from encoder.model import load_encoder_model
from experiments.coding import code_in_process
from shared_rng import ModelCard, Session
from tests.integration.services import Fleet, Floats, answered_with, end, fresh_session, lacking, until
from tests.models import uniforms, write_vae

INVALID = grpc.StatusCode.INVALID_ARGUMENT
SOURCES = 2.0 * uniforms(6 * 12, 2).reshape(6, 4, 3) - 1.0
SIDE = 2.0 * uniforms(6 * 6, 3).reshape(6, 3, 2) - 1.0


def spoiled(rows: Floats, row: int, value: float) -> Floats:
    """Images of which one has a pixel out of range, its last."""
    changed = rows.copy()
    changed[row].flat[-1] = value
    return changed


def expected(card: ModelCard, session: Session) -> list[int]:
    """The picks of decoder 0 in one process."""
    models = load_encoder_model(card), load_decoder_model(card)
    picks: list[int] = code_in_process(session, *models, SOURCES, [SIDE]).decoder_picks[0].tolist()
    return picks


def test_sources_and_side_information(fleet: Fleet, tmp_path: Path) -> None:
    """A batch with one bad image takes no number, and rows with one replace none that are held."""
    card = write_vae(tmp_path)
    decoder = fleet.start("decoder", model=tmp_path)
    with ExitStack() as stack:
        encoder = fleet.start("encoder", "--decoder", decoder.address, model=tmp_path)
        client = stack.enter_context(EncoderClient(encoder.address))
        reader = stack.enter_context(DecoderClient(decoder.address))
        session = fresh_session(client, decoders=1)
        client.open(session)
        reader.put_side_information(session.digest, SIDE)
        with answered_with(INVALID, "side information, row 1 (message 3), pixel (2, 1): got 1.5", "pixels in [-1, 1]"):
            reader.put_side_information(session.digest, spoiled(SIDE[2:], 1, 1.5), 2)
        list(client.encode(session, SOURCES[:2]))
        with answered_with(INVALID, "sources, row 2 (message 4), pixel (3, 2): got -300.0", "pixels in [-1, 1]"):
            list(client.encode(session, spoiled(SOURCES[2:], 2, -300.0), 2))
        (answer,) = client.encode(session, SOURCES[2:], 2)
        assert (answer.first_message, answer.count) == (2, 4)
        assert lacking(client, session, 6) == []
        assert reader.read(session.digest, 6)[0].tolist() == expected(card, session)


def test_file_of_side_information(fleet: Fleet, tmp_path: Path) -> None:
    """The batch that needs the bad row is refused whole, the encoder says why, and it arrives once the file is good."""
    card = write_vae(tmp_path)
    options = [*fleet.decoder_arguments(0, spoiled(SIDE, 3, 2.0), out=True), "--bind", "127.0.0.1:0"]
    decoder = fleet.start("decoder", *options, model=tmp_path)
    encoder = fleet.start("encoder", "--decoder", decoder.address, "--decoder-wait", "1", model=tmp_path)
    with EncoderClient(encoder.address) as client:
        session = fresh_session(client, decoders=1)
        client.open(session)
        list(client.encode(session, SOURCES, batch=2))
        ((index, reason),) = lacking(client, session, 6)
        assert index == 0
        assert "side information, row 1 (message 3), pixel (2, 1): got 2.0, expected pixels in [-1, 1]" in reason
        with DecoderClient(decoder.address) as reader:
            assert [state.next_message for state in reader.status().sessions] == [2]
        assert end(decoder) == 0
        options = [*fleet.decoder_arguments(0, SIDE, out=True), "--bind", decoder.address]
        fleet.start("decoder", *options, model=tmp_path)
        until(lambda: lacking(client, session, 6) == [], "every message at the decoder")
    picks: list[int] = []
    for path in sorted((tmp_path / "out-0").rglob("*.npz")):
        with np.load(path) as batch:
            picks += batch["picks"].tolist()
    assert picks == expected(card, session)
