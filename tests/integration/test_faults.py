"""Decoders and encoders that end in the middle of a stream: what was acknowledged stays, what was not comes again."""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest

from decoder.client import DecoderClient
from encoder.client import EncoderClient
from experiments.coding import Outcome, code_in_process
from experiments.processes import ServiceProcess
from gumbelcast.convert import to_tensor
from gumbelcast.v1.encoder_pb2 import EncodeRequest, EncodeResponse
from shared_rng import Session
from tests.integration.services import (
    WAIT_SECONDS,
    Fleet,
    Floats,
    answered_with,
    end,
    fresh_session,
    gaussian_data,
    in_process_models,
    kill,
    lacking,
    until,
)

MESSAGES, BATCH, FEW = 320, 8, 5
SOURCES, SIDES = gaussian_data(MESSAGES, 2)


def undisturbed(session: Session) -> Outcome:
    """What comes of the messages when nothing ends."""
    return code_in_process(session, *in_process_models(), SOURCES, SIDES)


def written(folder: Path, session: Session) -> tuple[list[int], list[int], Floats]:
    """Message numbers in the files of a decoder's folder, as often as they occur, with picks and reconstructions."""
    messages: list[int] = []
    picks: list[int] = []
    parts = [np.empty(0, dtype=np.float32)]
    assert [path.name for path in folder.iterdir()] == [session.digest.hex()[:16]]
    for path in sorted((folder / session.digest.hex()[:16]).glob("*.npz")):
        with np.load(path) as batch:
            assert int(path.stem) == int(batch["first_message"])
            assert batch["failed_messages"].size == 0
            messages.extend(int(batch["first_message"]) + i for i in range(len(batch["picks"])))
            picks.extend(batch["picks"].tolist())
            parts.append(batch["reconstructions"])
    return messages, picks, np.concatenate(parts)


def assert_complete(fleet: Fleet, session: Session, decoder: int) -> None:
    """The decoder's files hold every message once, decoded as in an undisturbed run."""
    folder = fleet.folder / f"out-{decoder}"
    messages, picks, reconstructions = written(folder, session)
    expected = undisturbed(session)
    assert messages == list(range(MESSAGES))
    assert picks == expected.decoder_picks[decoder].tolist()
    assert np.array_equal(reconstructions, expected.reconstructions[decoder].astype(np.float32))
    assert list(folder.rglob("*.partial")) == []


def restart(fleet: Fleet, ended: ServiceProcess, decoder: int, *, out: bool = True) -> ServiceProcess:
    """A decoder anew, on the port that it had."""
    arguments = fleet.decoder_arguments(decoder, SIDES[decoder], out)
    return fleet.launch("decoder", "--bind", ended.address, *arguments)


def take(answers: Iterator[EncodeResponse], count: int = FEW) -> list[EncodeResponse]:
    return [next(answers) for _ in range(count)]


@pytest.mark.parametrize("ending", ["SIGKILL", "SIGTERM"])
def test_decoder_ends_and_comes_back(fleet: Fleet, ending: str) -> None:
    """It goes on at the next message, every message is acknowledged, and its folder lacks none and repeats none."""
    decoders = fleet.decoders(SIDES, out=True)
    encoder = fleet.encoder(decoders)
    with EncoderClient(encoder.address) as client:
        session = fresh_session(client)
        client.open(session)
        answers = client.encode(session, SOURCES, batch=BATCH)
        before = take(answers)
        if ending == "SIGKILL":
            kill(decoders[0])
        else:
            assert end(decoders[0]) == 0
        kept, _, _ = written(fleet.folder / "out-0", session)
        assert kept == list(range(len(kept)))
        back = restart(fleet, decoders[0], 0)
        back.wait_ready()
        answers_of_all = before + list(answers)
        assert [answer.first_message for answer in answers_of_all] == list(range(0, MESSAGES, BATCH))
        assert lacking(client, session, MESSAGES) == []
        expected = undisturbed(session)
        assert [pick for answer in answers_of_all for pick in answer.picks] == expected.encoder_picks.tolist()
        with DecoderClient(back.address) as first, DecoderClient(decoders[1].address) as second:
            (anew,), (steady,) = first.status().sessions, second.status().sessions
        assert (anew.next_message, steady.next_message) == (MESSAGES, MESSAGES)
        # The new process took up the stream where the old one left it, not at its beginning.
        assert anew.decoded == MESSAGES - len(kept)
        assert steady.decoded == MESSAGES
    assert_complete(fleet, session, 0)
    assert_complete(fleet, session, 1)
    assert decoders[1].log.read_text().count("open as decoder") == 1
    assert "WARNING" not in decoders[1].log.read_text()


def test_decoder_stays_away_and_catches_up(fleet: Fleet) -> None:
    """The others and the source's owner go on without it; it is named with the reason, and gets what it lacks."""
    decoders = fleet.decoders(SIDES, out=True)
    encoder = fleet.encoder(decoders, "--decoder-wait", "1")
    with EncoderClient(encoder.address) as client:
        session = fresh_session(client)
        client.open(session)
        list(client.encode(session, SOURCES[:40], batch=BATCH))
        assert lacking(client, session, 40) == []
        kill(decoders[0])
        list(client.encode(session, SOURCES[40:160], 40, BATCH))
        ((index, reason),) = lacking(client, session, 160)
        assert index == 0
        assert "no answer within 1 s" in reason or "no connection" in reason
        (state,) = client.status().sessions
        assert (state.oldest_message, state.next_message) == (0, 160)
        assert [(d.ready, bool(d.reason), d.next_message, d.lag) for d in state.decoders] == [
            (False, True, 40, 120),
            (True, False, 160, 0),
        ]

        back = restart(fleet, decoders[0], 0)
        back.wait_ready()
        until(lambda: client.status().sessions[0].decoders[0].lag == 0, "the decoder has caught up")
        list(client.encode(session, SOURCES[160:], 160, BATCH))
        assert lacking(client, session, MESSAGES) == []
        with DecoderClient(back.address) as reader:
            (anew,) = reader.status().sessions
            assert (anew.decoded, anew.next_message) == (MESSAGES - 40, MESSAGES)
    assert_complete(fleet, session, 0)
    log = encoder.log.read_text()
    assert f"decoder 0 at {decoders[0].address}" in log
    assert "going on without it" in log
    assert "is back, from message 40 on" in log
    assert "decoder 1 at" not in log


def test_decoder_that_cannot_write(fleet: Fleet) -> None:
    """A fault of one decoder's disk is named and costs nothing: it gets the messages of that time afterwards."""
    decoders = fleet.decoders(SIDES, out=True)
    encoder = fleet.encoder(decoders)
    with EncoderClient(encoder.address) as client:
        session = fresh_session(client)
        client.open(session)
        obstacle = fleet.folder / "out-0" / session.digest.hex()[:16] / "000000000000.npz"
        obstacle.mkdir()
        list(client.encode(session, SOURCES[:80], batch=BATCH))
        ((index, reason),) = lacking(client, session, 80)
        assert (index, f"FAILED_PRECONDITION: {obstacle}" in reason) == (0, True), reason
        obstacle.rmdir()
        until(lambda: client.status().sessions[0].decoders[0].ready, "the decoder is back")
        list(client.encode(session, SOURCES[80:], 80, BATCH))
        assert lacking(client, session, MESSAGES) == []
    for k in range(2):
        assert_complete(fleet, session, k)
        assert "Traceback" not in decoders[k].log.read_text()


def test_encoder_ends_in_the_middle_of_a_stream(fleet: Fleet) -> None:
    """SIGTERM: what was answered is delivered, the client learns it, and numbers go on after a restart."""
    decoders = fleet.decoders(SIDES)
    encoder = fleet.encoder(decoders)
    with EncoderClient(encoder.address) as client:
        session = fresh_session(client)
        client.open(session)
        answers = client.encode(session, SOURCES, batch=BATCH)
        before = take(answers)
        encoder.process.terminate()
        with answered_with(grpc.StatusCode.UNAVAILABLE):
            before.extend(answers)
        assert encoder.process.wait(60) == 0
    answered = before[-1].first_message + before[-1].count
    assert FEW * BATCH <= answered < MESSAGES
    with DecoderClient(decoders[0].address) as first, DecoderClient(decoders[1].address) as second:
        readers = first, second
        due = [reader.status().sessions[0].next_message for reader in readers]
        assert due[0] == due[1] >= answered

        anew = fleet.encoder(decoders)
        with EncoderClient(anew.address) as client:
            opened = client.open(session)
            assert opened.next_message == due[0]
            assert [state.ready for state in opened.decoders] == [True, True]
            list(client.encode(session, SOURCES[due[0] :], due[0], BATCH))
            assert lacking(client, session, MESSAGES) == []
        expected = undisturbed(session)
        for k, reader in enumerate(readers):
            picks, reconstructions = reader.read(session.digest, MESSAGES)
            assert np.array_equal(picks, expected.decoder_picks[k])
            assert np.array_equal(reconstructions, expected.reconstructions[k].astype(np.float32))


def leave_in_a_flood(client: EncoderClient, session: Session, due: int) -> None:
    """Drop the connection while batches are on their way."""
    take(client.encode(session, SOURCES[due:], due, 1))


def leave_when_idle(client: EncoderClient, session: Session, due: int) -> None:
    """Cancel the call while the encoder waits for the next batch."""
    hold = threading.Event()

    def requests() -> Iterator[EncodeRequest]:
        for message in range(due, due + FEW):
            sources = to_tensor(SOURCES[message : message + 1])
            yield EncodeRequest(session_digest=session.digest, first_message=message, sources=sources)
        hold.wait(WAIT_SECONDS)

    call = client._stub.Encode(requests(), timeout=WAIT_SECONDS)
    try:
        take(call)
        call.cancel()
    finally:
        hold.set()


@pytest.mark.parametrize("leave", [leave_in_a_flood, leave_when_idle])
def test_clients_that_leave(fleet: Fleet, leave: Callable[[EncoderClient, Session, int], None]) -> None:
    """Owners of sources that disappear leave the session usable, and no error in the log."""
    decoders = fleet.decoders(SIDES)
    encoder = fleet.encoder(decoders)

    def send_next(client: EncoderClient, count: int) -> list[EncodeResponse]:
        """Nothing, if a message of a stream that was left came in between."""
        due = client.open(session).next_message
        with contextlib.suppress(grpc.RpcError):
            return list(client.encode(session, SOURCES[due : due + count], due, BATCH))
        return []

    with EncoderClient(encoder.address) as client:
        session = fresh_session(client)
    due = 0
    for _ in range(8):
        with EncoderClient(encoder.address) as client:
            client.open(session)
            leave(client, session, due)
        with EncoderClient(encoder.address) as client:
            (answer,) = until(functools.partial(send_next, client, 1), "the stream that was left is over")
            assert due + FEW <= answer.first_message < MESSAGES // 2
            assert lacking(client, session, answer.first_message + 1) == []
            due = answer.first_message + 1
    with EncoderClient(encoder.address) as client:
        send_next(client, MESSAGES)
        assert lacking(client, session, MESSAGES) == []
    with DecoderClient(decoders[0].address) as reader:
        picks, _ = reader.read(session.digest, MESSAGES)
        assert picks.tolist() == undisturbed(session).decoder_picks[0].tolist()
    assert end(encoder) == 0
    assert "ERROR" not in encoder.log.read_text()
