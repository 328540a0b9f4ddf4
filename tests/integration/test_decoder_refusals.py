"""Bad requests to a decoder: the status, what came and what was expected; and the service goes on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from decoder.service import MAX_CLIENT_SESSIONS
from encoder.codec import EncodedBatch, Encoder
from gumbelcast.channels import SESSION_KEY
from gumbelcast.checksum import batch_checksum
from gumbelcast.convert import from_tensor, to_session, to_tensor
from gumbelcast.v1 import decoder_pb2 as pb
from gumbelcast.v1.decoder_pb2_grpc import DecoderServiceStub
from gumbelcast.v1.session_pb2 import Tensor
from shared_rng import Session, bin_labels, pack
from tests.integration.services import Fleet, Floats, answered_with, channel_to, gaussian_data, in_process_models

INVALID = grpc.StatusCode.INVALID_ARGUMENT
MISMATCH = grpc.StatusCode.FAILED_PRECONDITION
SEQUENCE = grpc.StatusCode.OUT_OF_RANGE
DAMAGED = grpc.StatusCode.DATA_LOSS
SOURCES, SIDES = gaussian_data(64, 2)
_seeds = itertools.count(1)


class World:
    """A decoder, and a session of its own in which four messages of 3 bits are decoded and four more are due."""

    def __init__(self, stub: DecoderServiceStub) -> None:
        self.stub = stub
        self.session = make_session()
        self.open(self.session)
        self.put(SIDES[1][:8])
        (answer,) = self.receive(0, 4, self.encoded(0, 4).payload)
        assert (answer.next_message, list(answer.failures)) == (4, [])

    def encoded(self, first: int, count: int) -> EncodedBatch:
        return Encoder(self.session, in_process_models()[0]).encode(SOURCES[first : first + count], first)

    def open(self, session: Session, index: int = 1, first_message: int = 0) -> int:
        wire = to_session(session.wire_fields(share_seed=True))
        request = pb.OpenDecoderSessionRequest(session=wire, index=index, first_message=first_message)
        return int(self.stub.OpenDecoderSession(request, timeout=60).next_message)

    def put(self, side: Floats | Tensor, first: int = 0, digest: bytes | None = None) -> int:
        rows = side if isinstance(side, Tensor) else to_tensor(side)
        request = pb.PutSideInformationRequest(
            session_digest=self.session.digest if digest is None else digest, first_message=first, side_information=rows
        )
        return int(self.stub.PutSideInformation(request, timeout=60).held)

    def receive(
        self,
        first: int,
        count: int,
        payload: bytes,
        metadata: Sequence[tuple[str, bytes]] | None = None,
        checksum: int | None = None,
    ) -> list[pb.ReceiveMessagesResponse]:
        """Send one batch of messages, by default with the right checksum."""
        own = batch_checksum(self.session.digest, first, count, payload)
        request = pb.ReceiveMessagesRequest(
            first_message=first, count=count, payload=payload, checksum=own if checksum is None else checksum
        )
        names = ((SESSION_KEY, self.session.digest),) if metadata is None else metadata
        return list(self.stub.ReceiveMessages(iter([request]), timeout=60, metadata=names))

    def read(self, first: int, count: int, digest: bytes | None = None) -> list[pb.ReadReconstructionsResponse]:
        request = pb.ReadReconstructionsRequest(
            session_digest=self.session.digest if digest is None else digest, first_message=first, count=count
        )
        return list(self.stub.ReadReconstructions(request, timeout=60))

    def close(self, digest: bytes) -> None:
        self.stub.CloseDecoderSession(pb.CloseDecoderSessionRequest(session_digest=digest), timeout=60)

    def go_on(self) -> None:
        """The four messages that are due decode, and all eight can be read."""
        batch = self.encoded(4, 4)
        (answer,) = self.receive(4, 4, batch.payload)
        assert (answer.next_message, list(answer.failures)) == (8, [])
        (part,) = self.read(0, 8)
        assert min(part.picks) >= 0
        assert np.isfinite(from_tensor(part.reconstructions)).all()
        self.close(self.session.digest)


def make_session(**changes: Any) -> Session:
    model, _ = in_process_models()
    fields = {"pool_size": 128, "bins": 8, "decoders": 2, "seed": next(_seeds), "model_digest": model.digest}
    return Session(**(fields | {"pool_variance": model.pool_variance} | changes))


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DecoderServiceStub]:
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(tmp_path_factory.mktemp("refusals")))
        yield DecoderServiceStub(stack.enter_context(channel_to(fleet.start("decoder").address)))


@pytest.fixture
def world(stub: DecoderServiceStub) -> World:
    return World(stub)


def good(world: World) -> bytes:
    return world.encoded(4, 4).payload


def right(world: World) -> int:
    return batch_checksum(world.session.digest, 4, 4, good(world))


def padded(world: World) -> bytes:
    """Three messages of 3 bits, with the lowest padding bit set."""
    payload = bytearray(world.encoded(4, 3).payload)
    payload[-1] |= 1
    return bytes(payload)


CASES: dict[str, tuple[Callable[[World], Any], grpc.StatusCode, tuple[str, ...]]] = {
    "gap": (lambda w: w.receive(5, 3, w.encoded(5, 3).payload), SEQUENCE, ("first_message: got 5", "expected 4")),
    "overlap": (lambda w: w.receive(3, 4, good(w)), SEQUENCE, ("first_message: got 3", "expected 4")),
    "no message": (lambda w: w.receive(4, 0, b""), INVALID, ("count: got 0", "1 … 4096")),
    "too many": (lambda w: w.receive(4, 2**31, b""), INVALID, ("count: got 2147483648", "1 … 4096")),
    "short payload": (lambda w: w.receive(4, 4, good(w)[:-1]), INVALID, ("got 1 bytes", "2 bytes for 4 of 3 bits")),
    "long payload": (lambda w: w.receive(4, 4, good(w) + b"\0"), INVALID, ("got 3 bytes", "2 bytes for 4 of 3 bits")),
    "set padding": (lambda w: w.receive(4, 3, padded(w)), INVALID, ("padding bits that are set", "zero padding")),
    "no checksum": (lambda w: w.receive(4, 4, good(w), checksum=0), DAMAGED, ("checksum", "message 4: got 00000000")),
    "another payload": (
        lambda w: w.receive(4, 4, bytes([good(w)[0] ^ 1]) + good(w)[1:], checksum=right(w)), DAMAGED, ("checksum",),
    ),
    "another number": (lambda w: w.receive(5, 4, good(w), checksum=right(w)), DAMAGED, ("checksum of the batch of",)),
    "another count": (lambda w: w.receive(4, 3, good(w), checksum=right(w)), DAMAGED, ("checksum", "message 4")),
    "another session": (
        lambda w: w.receive(4, 4, good(w), checksum=batch_checksum(b"1" * 32, 4, 4, good(w))), DAMAGED, ("checksum",),
    ),
    "no side information": (
        lambda w: w.receive(4, 5, w.encoded(4, 5).payload),
        MISMATCH, ("side information of message 8: got none (no file, 4 rows put)", "one row"),
    ),
    "no metadata": (lambda w: w.receive(4, 4, good(w), ()), MISMATCH, ("session_digest: got nothing", "open sessions")),
    "foreign metadata": (
        lambda w: w.receive(4, 4, good(w), ((SESSION_KEY, b"\1"),)), MISMATCH, ("session_digest: got 01", "1 open"),
    ),
    "side shape": (
        lambda w: w.put(SIDES[1][:6].reshape(3, 2), 8), INVALID, ("side information: got shape (3, 2)", "(B >= 1)"),
    ),
    "no side rows": (lambda w: w.put(SIDES[1][:0], 8), INVALID, ("side information: got shape (0,)", "(B >= 1)")),
    "side NaN": (
        lambda w: w.put(np.array([0.0, np.nan]), 8),
        INVALID, ("side information, row 1 (message 9)", "NaN or infinity", "finite values"),
    ),
    "side tensor": (
        lambda w: w.put(Tensor(type=Tensor.TYPE_FLOAT64, shape=[1], data=b"1"), 8),
        INVALID, ("tensor data: got 1 bytes", "expected 8"),
    ),
    "side too late": (lambda w: w.put(SIDES[1][3:5], 3), SEQUENCE, ("side information: got 3", "4 or later")),
    "side of no session": (lambda w: w.put(SIDES[1], 4, b"\2"), MISMATCH, ("session_digest: got 02", "1 open")),
    "read beyond": (lambda w: w.read(0, 5), SEQUENCE, ("messages to read up to: got 4", "3 or earlier")),
    "read far beyond": (lambda w: w.read(2**63, 2**63), SEQUENCE, ("messages to read up to: got ", "3 or earlier")),
    "read nothing": (lambda w: w.read(0, 0), INVALID, ("count: got 0", "at least 1")),
    "read no session": (lambda w: w.read(0, 1, b"\3"), MISMATCH, ("session_digest: got 03", "1 open")),
    "index K": (lambda w: w.open(make_session(), 2), INVALID, ("decoder: got 2", "0 … 1")),
    "another index": (lambda w: w.open(w.session, 0), MISMATCH, ("decoder index: got 0", "expected 1")),
    "another model": (
        lambda w: w.open(make_session(model_digest=b"\4" * 32)), MISMATCH, ("model_digest: got " + "04" * 32,),
    ),
    "another pool": (
        lambda w: w.open(make_session(pool_variance=0.5)), MISMATCH, ("pool_variance: got 0.5", "expected 1.003"),
    ),
    "close no session": (lambda w: w.close(b"\5"), MISMATCH, ("session_digest: got 05", "1 open")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_refusal(world: World, case: str) -> None:
    call, code, parts = CASES[case]
    with answered_with(code, *parts):
        call(world)
    world.go_on()


def test_decoded_batch_is_acknowledged_again(world: World) -> None:
    """Its acknowledgement may have been lost: the answer is the same, and the reconstructions stay."""
    before = world.read(0, 4)
    for first, count in ((0, 4), (1, 2), (3, 1)):
        (answer,) = world.receive(first, count, world.encoded(first, count).payload)
        assert (answer.next_message, list(answer.failures)) == (first + count, [])
    assert world.read(0, 4) == before
    world.go_on()


def test_message_to_an_empty_bin_fails_alone(stub: DecoderServiceStub) -> None:
    """The acknowledgement names it, its reconstruction is NaN, and its neighbours decode as they would without it."""
    world = World(stub)
    world.session = make_session(pool_size=20, bins=16)
    world.open(world.session)
    world.put(SIDES[1][:3])
    labels = bin_labels(world.session, range(3))
    empty = min(set(range(16)) - set(labels[1].tolist()))
    forged = np.array([labels[0, 0], empty, labels[2, 5]], dtype=np.uint32)
    (answer,) = world.receive(0, 3, pack(forged, 4))
    assert answer.next_message == 3
    assert [(failure.message, failure.reason) for failure in answer.failures] == [
        (1, "the bin is empty: no honest message points to it")
    ]
    (part,) = world.read(0, 3)
    assert list(part.failures) == list(answer.failures)
    reconstructions = from_tensor(part.reconstructions)
    assert np.isnan(reconstructions).tolist() == [False, True, False]
    assert part.picks[1] == -1
    assert [labels[m, part.picks[m]] for m in (0, 2)] == [forged[0], forged[2]]
    (status,) = [s for s in stub.GetDecoderStatus(pb.GetDecoderStatusRequest()).sessions if s.failed]
    assert (status.session_digest, status.decoded, status.failed) == (world.session.digest, 2, 1)
    # Sent again, it is told again.
    (again,) = world.receive(0, 3, pack(forged, 4))
    assert again == answer


def test_reading_what_went_to_files(fleet: Fleet, tmp_path: Path) -> None:
    """A decoder with ``--out`` says where its reconstructions are."""
    with channel_to(fleet.start("decoder", "--out", str(tmp_path / "out")).address) as channel:
        world = World(DecoderServiceStub(channel))
        with answered_with(INVALID, f"reconstructions: got files in {tmp_path / 'out'}/", "without --out"):
            world.read(0, 4)
        (answer,) = world.receive(4, 4, good(world))
        assert answer.next_message == 8
        assert len(list((tmp_path / "out").rglob("*.npz"))) == 2


def test_sessions_of_one_client(fleet: Fleet) -> None:
    """As many as an encoder has, and what is closed is free again."""
    with channel_to(fleet.start("decoder").address) as channel:
        world = World(DecoderServiceStub(channel))
        for _ in range(MAX_CLIENT_SESSIONS - 1):
            world.open(make_session())
        with answered_with(grpc.StatusCode.RESOURCE_EXHAUSTED, "open sessions of 127.0.0.1", "at most 256"):
            world.open(make_session())
        world.go_on()
        world.open(make_session())
