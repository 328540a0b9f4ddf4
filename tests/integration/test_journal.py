"""Encoders that are killed, stopped decoders, full disks: nothing accepted is lost, and no number is given twice."""

from __future__ import annotations

import os
import resource
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from decoder.client import DecoderClient
from encoder.client import EncoderClient
from encoder.journal import Journal, Retention
from experiments.coding import Outcome, code_in_process
from experiments.processes import ServiceProcess
from gumbelcast.convert import to_session
from gumbelcast.v1.encoder_pb2 import AwaitDeliveryRequest, EncodeResponse
from shared_rng import Session
from tests.integration.recorder import Recorder
from tests.integration.services import (
    Fleet,
    answered_with,
    dead_address,
    fresh_session,
    gaussian_data,
    in_process_models,
    kill,
    lacking,
    run_program,
    until,
)

MESSAGES, BATCH = 320, 8
SOURCES, SIDES = gaussian_data(MESSAGES, 2)
OTHER_SOURCES, _ = gaussian_data(MESSAGES, 2, seed=8)


def undisturbed(session: Session) -> Outcome:
    return code_in_process(session, *in_process_models(), SOURCES, SIDES)


def picks_in_files(folder: Path) -> dict[int, int]:
    """Message number to pick of everything that a decoder wrote; no message is there twice."""
    picks: dict[int, int] = {}
    for path in sorted(folder.rglob("*.npz")):
        with np.load(path) as batch:
            numbered = {int(batch["first_message"]) + i: int(pick) for i, pick in enumerate(batch["picks"])}
        assert not picks.keys() & numbered.keys()
        picks |= numbered
    return picks


def assert_complete(fleet: Fleet, session: Session, decoder: int, first: int = 0) -> None:
    """The decoder wrote every message from ``first`` on once, as in an undisturbed run."""
    expected = undisturbed(session).decoder_picks[decoder].tolist()
    assert picks_in_files(fleet.folder / f"out-{decoder}") == dict(enumerate(expected[first:], first))


def journal_of(fleet: Fleet) -> list[str]:
    return ["--journal", str(fleet.folder / "journal"), "--decoder-wait", "2"]


def again(fleet: Fleet, killed: ServiceProcess, decoders: list[ServiceProcess]) -> ServiceProcess:
    """An encoder anew, with the same journal, on the port that it had."""
    return fleet.encoder(decoders, "--bind", killed.address, *journal_of(fleet))


def test_encoder_killed_in_a_batch(fleet: Fleet) -> None:
    """The sender goes on by itself once the encoder is back, and a decoder that was away then gets what it lacks."""
    decoders = fleet.decoders(SIDES, out=True)
    encoder = fleet.encoder(decoders, *journal_of(fleet))
    with EncoderClient(encoder.address) as client:
        session = fresh_session(client)
        client.open(session)
        answers: list[EncodeResponse] = []

        def send() -> None:
            answers.extend(client.send(session, SOURCES, 0, BATCH))

        sending = threading.Thread(target=send)
        with DecoderClient(decoders[1].address) as reader:
            sending.start()
            until(lambda: reader.status().sessions[0].next_message >= 5 * BATCH, "messages arrive")
        kill(encoder)
        kill(decoders[0])
        anew = again(fleet, encoder, decoders)
        sending.join(120)
        assert not sending.is_alive()
        assert [answer.first_message for answer in answers] == list(range(0, MESSAGES, BATCH))
        assert [index for index, _ in lacking(client, session, MESSAGES)] == [0]
        arguments = fleet.decoder_arguments(0, SIDES[0], out=True)
        fleet.start("decoder", "--bind", decoders[0].address, *arguments)
        until(lambda: client.status().sessions[0].decoders[0].lag == 0, "the decoder has caught up")
        expected = undisturbed(session).encoder_picks
        for answer in answers:
            part = expected[answer.first_message : answer.first_message + answer.count].tolist()
            assert list(answer.picks) in (part, [])
    for k in range(2):
        assert_complete(fleet, session, k)
    assert f"session {session.digest.hex()[:16]} goes on at message" in anew.log.read_text()
    for service in (encoder, anew):
        assert f"{session.seed:032x}" not in service.log.read_text()


def test_a_number_is_given_once(fleet: Fleet) -> None:
    """A batch whose answer was lost in the end of its encoder: its number is spent, for its own sources alone."""
    decoders = fleet.decoders(SIDES, out=True)
    encoder = fleet.encoder(decoders, *journal_of(fleet))
    with Recorder(encoder.address) as recorder, EncoderClient(recorder.address) as client:
        session = fresh_session(client)
        client.open(session)
        (answer,) = client.encode(session, SOURCES[:BATCH], 0, BATCH)
        assert (answer.count, len(answer.picks)) == (BATCH, BATCH)
        recorder.deaf = True
        lost = client.encode(session, SOURCES[BATCH : 2 * BATCH], BATCH, BATCH)
        with DecoderClient(decoders[0].address) as reader:
            reading = threading.Thread(target=lambda: _end_of(lost))
            reading.start()
            until(lambda: reader.status().sessions[0].next_message == 2 * BATCH, "it arrives")
        kill(encoder)
        recorder.cut()
        reading.join(60)
    anew = again(fleet, encoder, decoders)
    with EncoderClient(anew.address) as client:
        assert client.open(session).next_message == 2 * BATCH
        for first in (0, BATCH):
            with answered_with(grpc.StatusCode.OUT_OF_RANGE, f"first_message: got {first}, expected {2 * BATCH}"):
                list(client.encode(session, OTHER_SOURCES[first : first + BATCH], first, BATCH))
            (answer,) = client.encode(session, SOURCES[first : first + BATCH], first, BATCH)
            assert (answer.first_message, answer.count, answer.payload_bytes) == (first, BATCH, BATCH // 2)
            assert list(answer.picks) == []
        # Another division into batches is another batch.
        with answered_with(grpc.StatusCode.OUT_OF_RANGE, "first_message: got 0"):
            list(client.encode(session, SOURCES[:4], 0, 4))
        list(client.encode(session, SOURCES[2 * BATCH :], 2 * BATCH, BATCH))
        assert lacking(client, session, MESSAGES) == []
    for k in range(2):
        assert_complete(fleet, session, k)


def _end_of(answers: Iterator[EncodeResponse]) -> None:
    with pytest.raises(grpc.RpcError):
        list(answers)


def test_stopped_decoder_delays_nobody(fleet: Fleet) -> None:
    """A decoder that answers nothing: everybody else has everything meanwhile, and its lag is told."""
    decoders = fleet.decoders(SIDES, out=True)
    encoder = fleet.encoder(decoders)
    assert "journal in memory" in encoder.log.read_text()
    with EncoderClient(encoder.address) as client, DecoderClient(decoders[1].address) as reader:
        session = fresh_session(client)
        client.open(session)
        list(client.encode(session, SOURCES[:BATCH], 0, BATCH))
        assert lacking(client, session, BATCH) == []
        os.kill(decoders[0].process.pid, signal.SIGSTOP)
        list(client.encode(session, SOURCES[BATCH:], BATCH, BATCH))
        until(lambda: reader.status().sessions[0].next_message == MESSAGES, "the other has everything")
        waiting = AwaitDeliveryRequest(session_digest=session.digest, message=MESSAGES, seconds=0.1)
        slow, quick = client._stub.AwaitDelivery(waiting, timeout=60).decoders
        assert (slow.next_message, slow.lag, quick.lag) == (BATCH, MESSAGES - BATCH, 0)
        os.kill(decoders[0].process.pid, signal.SIGCONT)
        assert lacking(client, session, MESSAGES) == []
    for k in range(2):
        assert_complete(fleet, session, k)


def test_connection_that_falls_silent(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other host is gone without a word: the sender learns it, and does not wait for hours."""
    monkeypatch.setattr("gumbelcast.channels.KEEPALIVE_SECONDS", 1.0)
    encoder = fleet.encoder(fleet.decoders(SIDES))
    with Recorder(encoder.address) as recorder, EncoderClient(recorder.address) as client:
        session = fresh_session(client)
        client.open(session)
        recorder.deaf = True
        with answered_with(grpc.StatusCode.UNAVAILABLE):
            list(client.encode(session, SOURCES, 0, BATCH))


def test_decoder_that_joins_late(fleet: Fleet) -> None:
    """At any message that the journal holds, also in the middle of a batch; its messages from there on are there."""
    (decoder,) = fleet.decoders(SIDES[:1])
    with dead_address() as address:
        encoder = fleet.encoder([decoder.address, address], *journal_of(fleet))
        with EncoderClient(encoder.address) as client:
            session = fresh_session(client)
            client.open(session)
            list(client.encode(session, SOURCES, 0, BATCH))
            assert [index for index, _ in lacking(client, session, MESSAGES)] == [1]
    arguments = fleet.decoder_arguments(1, SIDES[1], out=True)
    fleet.start("decoder", "--bind", address, "--start", "13", *arguments)
    with EncoderClient(encoder.address) as client:
        until(lambda: client.status().sessions[0].decoders[1].lag == 0, "the decoder has caught up")
    assert_complete(fleet, session, 1, 13)


def test_disk_full(fleet: Fleet) -> None:
    """A batch that the disk does not take is refused with the reason, takes no number, and is taken later."""
    decoders = fleet.decoders(SIDES)
    encoder = fleet.encoder(decoders, *journal_of(fleet))
    with EncoderClient(encoder.address) as client:
        session = fresh_session(client)
        client.open(session)
        list(client.encode(session, SOURCES[:BATCH], 0, BATCH))
        # From here on no file of this process grows.
        largest = max(path.stat().st_size for path in fleet.folder.glob("journal*"))
        resource.prlimit(encoder.process.pid, resource.RLIMIT_FSIZE, (largest, resource.RLIM_INFINITY))
        for _ in range(2):
            with answered_with(grpc.StatusCode.UNAVAILABLE, f"journal {fleet.folder / 'journal'}", "disk I/O error"):
                list(client.encode(session, SOURCES[BATCH:], BATCH, BATCH))
            assert client.status().sessions[0].next_message == BATCH
        resource.prlimit(encoder.process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        list(client.encode(session, SOURCES[BATCH:], BATCH, BATCH))
        assert lacking(client, session, MESSAGES) == []
    assert "Traceback" not in encoder.log.read_text()


def a_newer(path: Path) -> None:
    Journal(path, Retention()).close()
    content = bytearray(path.read_bytes())
    content[60:64] = (9).to_bytes(4, "big")  # SQLite's field user_version
    path.write_bytes(content)


def a_session_of_another_model(path: Path) -> None:
    model, _ = in_process_models()
    session = Session(seed=3, pool_size=64, bins=4, decoders=1, model_digest=b"\1" * 32,
                      pool_variance=model.pool_variance)  # fmt: skip
    journal = Journal(path, Retention())
    wire = to_session(session.wire_fields(share_seed=True))
    journal.put_session(session.digest, wire.SerializeToString(), 0)
    journal.close()


REFUSED = {
    "newer": (a_newer, ("journal journal, version: got 9", "expected 1")),
    "text": (lambda path: path.write_text("no database\n" * 100), ("journal journal: got ", "not a database")),
    "another model": (a_session_of_another_model, ("of the journal, model_digest: got " + "01" * 32, "expected ")),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_journals(tmp_path: Path, case: str) -> None:
    """One line, exit code 3, and the file keeps what it has."""
    make, parts = REFUSED[case]
    make(tmp_path / "journal")
    size = (tmp_path / "journal").stat().st_size
    command = ["encoder", "serve", "--model", "gaussian", "--decoder", "127.0.0.1:9", "--journal", "journal"]
    done, _ = run_program(*command, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    lines = [line for line in done.stderr.splitlines() if "INFO" not in line]
    assert len(lines) == 1, done.stderr
    assert [part for part in parts if part not in lines[0]] == [], done.stderr
    assert (tmp_path / "journal").stat().st_size == size
