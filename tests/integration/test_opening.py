"""Sessions with decoders that are missing or refuse: named with their reasons, and the others go on."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import grpc
import numpy as np
import pytest

from decoder.client import DecoderClient
from encoder.client import EncoderClient
from shared_rng import find_model, load_card
from tests.integration.services import (
    Fleet,
    answered_with,
    dead_address,
    fresh_session,
    gaussian_data,
    lacking,
    run_program,
    until,
)

SOURCES, SIDES = gaussian_data(16, 2)


@pytest.fixture
def dead() -> Iterator[list[str]]:
    """Two addresses at which nobody answers."""
    with ExitStack() as stack:
        yield [stack.enter_context(dead_address()) for _ in range(2)]


def test_missing_decoder_is_named(fleet: Fleet, dead: list[str]) -> None:
    """In the answer, in the log every few seconds, and in the status; the other decoder takes messages."""
    present = fleet.decoders(SIDES[:1])
    encoder = fleet.encoder([*present, dead[0]], "--decoder-wait", "4")
    with EncoderClient(encoder.address) as client:
        session = fresh_session(client)
        opened = client.open(session)
        first, second = opened.decoders
        assert (first.index, first.address, first.ready, first.reason) == (0, present[0].address, True, "")
        assert (second.index, second.address, second.ready) == (1, dead[0], False)
        assert "no answer within 4 s" in second.reason
        assert [state.ready for state in client.status().sessions[0].decoders] == [True, False]
        (answer,) = client.encode(session, SOURCES)
        assert answer.count == 16
        ((index, reason),) = lacking(client, session, 16)
        assert index == 1
        assert "no answer within 4 s" in reason or "no connection" in reason
        assert [(state.next_message, state.lag) for state in client.status().sessions[0].decoders] == [(16, 0), (0, 16)]
    log = encoder.log.read_text()
    waiting = re.findall(r"WARNING waiting for decoder (\d) at (\S+) \((\d) s of 4 s\)", log)
    assert waiting == [("1", dead[0], "3")]
    assert f"ERROR decoder 1 at {dead[0]}: no answer within 4 s" in log


def test_no_decoder_at_all(fleet: Fleet, dead: list[str]) -> None:
    """Refused, with all of them named, and not half open afterwards: once one is there, the same session opens."""
    encoder = fleet.encoder(dead, "--decoder-wait", "1")
    with EncoderClient(encoder.address) as client:
        session = fresh_session(client)
        parts = (f"decoder 0 at {dead[0]}", f"decoder 1 at {dead[1]}", "no answer within 1 s")
        with answered_with(grpc.StatusCode.FAILED_PRECONDITION, "no decoder took the session", *parts):
            client.open(session)
        assert list(client.status().sessions) == []
        # The encoder did not lose its mind: the next attempt waits and answers in the same way.
        with answered_with(grpc.StatusCode.FAILED_PRECONDITION, *parts):
            client.open(session)


def test_send_tells_of_a_missing_decoder(fleet: Fleet, dead: list[str], tmp_path: Path) -> None:
    """Exit code 5; each decoder has a line, the missing one with its reason."""
    (present,) = fleet.decoders(SIDES[:1])
    encoder = fleet.encoder([present, dead[0]], "--decoder-wait", "1")
    np.save(tmp_path / "sources.npy", SOURCES)
    done, _ = run_program("encoder", "send", "sources.npy", "--to", encoder.address, "--batch", "5", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (5, "")
    lines = done.stdout.splitlines()
    assert "16 messages of 4 bits, 10 payload bytes" in lines
    assert f"decoder 0 at {present.address}: 16 acknowledged" in lines
    assert [line for line in lines if line.startswith(f"decoder 1 at {dead[0]}: 0 acknowledged: no ")]


def test_decoder_of_another_model_is_refused(fleet: Fleet, tmp_path: Path) -> None:
    """The reason names the field and both digests; the decoder with the right model goes on."""
    card = json.loads((find_model("gaussian") / "card.json").read_text(encoding="utf-8"))
    card["architecture"]["side_variance"] = 2.0
    folder = tmp_path / "other"
    folder.mkdir()
    (folder / "card.json").write_text(json.dumps(card), encoding="utf-8")
    own, other = load_card(find_model("gaussian")).digest.hex(), load_card(folder).digest.hex()
    right = fleet.launch("decoder", *fleet.decoder_arguments(0, SIDES[0]))
    wrong = fleet.launch("decoder", *fleet.decoder_arguments(1, SIDES[1]), model=folder)
    encoder = fleet.encoder([right.wait_ready(), wrong.wait_ready()])
    with EncoderClient(encoder.address) as client:
        session = fresh_session(client)
        states = client.open(session).decoders
        assert [state.ready for state in states] == [True, False]
        assert "FAILED_PRECONDITION" in states[1].reason
        assert f"model_digest: got {own}, expected {other}" in states[1].reason
        (answer,) = client.encode(session, SOURCES)
        assert answer.count == 16
        assert lacking(client, session, 16) == [(1, states[1].reason)]
    with DecoderClient(wrong.address) as reader:
        assert list(reader.status().sessions) == []


def test_decoder_of_another_version_is_refused(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says which version it speaks, and the others go on; its status tells the version as well."""
    (tmp_path / "sitecustomize.py").write_text("import shared_rng.session as s\ns.PROTOCOL_VERSION = 4\n")
    right = fleet.launch("decoder", *fleet.decoder_arguments(0, SIDES[0]))
    with monkeypatch.context() as changed:
        changed.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *sys.path]))
        later = fleet.start("decoder", *fleet.decoder_arguments(1, SIDES[1]))
    with EncoderClient(fleet.encoder([right.wait_ready(), later.address]).address) as client:
        session = fresh_session(client)
        states = client.open(session).decoders
        assert [state.ready for state in states] == [True, False]
        assert "FAILED_PRECONDITION: protocol_version: got 3, expected 4" in states[1].reason
        list(client.encode(session, SOURCES))
        assert lacking(client, session, 16) == [(1, states[1].reason)]
    with DecoderClient(later.address) as reader:
        assert (reader.status().protocol_version, list(reader.status().sessions)) == (4, [])


def test_session_of_another_model_is_refused(fleet: Fleet) -> None:
    """At the encoder, before any decoder hears of it."""
    (decoder,) = fleet.decoders(SIDES[:1])
    encoder = fleet.encoder([decoder])
    with EncoderClient(encoder.address) as client:
        own = client.status().model_digest
        session = fresh_session(client, decoders=1)
        foreign = type(session)(**{**vars(session), "model_digest": b"\1" * 32})
        parts = ("model_digest", "01" * 32, own.hex())
        with answered_with(grpc.StatusCode.FAILED_PRECONDITION, *parts):
            client.open(foreign)
    with DecoderClient(decoder.address) as reader:
        assert list(reader.status().sessions) == []


def test_open_again_is_the_same_session(fleet: Fleet) -> None:
    """Opening twice finds it open, with the number of the next message; closing forgets all but that number."""
    decoders = fleet.decoders(SIDES)
    encoder = fleet.encoder(decoders)
    with EncoderClient(encoder.address) as client, DecoderClient(decoders[1].address) as reader:
        session = fresh_session(client)
        assert client.open(session).next_message == 0
        list(client.encode(session, SOURCES))
        again = client.open(session)
        assert (again.next_message, [state.ready for state in again.decoders]) == (16, [True, True])
        assert [status.session_digest for status in client.status().sessions] == [session.digest]
        assert [status.index for status in reader.status().sessions] == [1]
        client.close(session)
        assert list(client.status().sessions) == []
        assert list(reader.status().sessions) == []
        assert client.open(session).next_message == 16
    until(lambda: decoders[1].log.read_text().count("open as decoder 1") == 2, "opened twice")
