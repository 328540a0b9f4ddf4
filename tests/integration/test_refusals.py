"""Bad requests to the encoder: the status, what came and what was expected; and the service goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import grpc
import numpy as np
import pytest

from decoder.client import DecoderClient
from encoder.client import EncoderClient
from gumbelcast.convert import to_session, to_tensor
from gumbelcast.v1 import session_pb2
from gumbelcast.v1.encoder_pb2 import CloseSessionRequest, EncodeRequest, EncodeResponse, OpenSessionRequest
from shared_rng import Session
from tests.integration.services import Fleet, Floats, answered_with, fresh_session, gaussian_data, lacking

INVALID = grpc.StatusCode.INVALID_ARGUMENT
MISMATCH = grpc.StatusCode.FAILED_PRECONDITION
SEQUENCE = grpc.StatusCode.OUT_OF_RANGE
SOURCES, SIDES = gaussian_data(512, 2)
Tensor = session_pb2.Tensor


@dataclass
class World:
    """An encoder with two decoders, an open session, and the number of its next message."""

    client: EncoderClient
    session: Session
    next_message: int = 0

    def encode(self, sources: Floats | Tensor, gap: int = 0, digest: bytes | None = None) -> list[EncodeResponse]:
        """Send one batch, of an array or a tensor, as message ``next_message + gap``."""
        request = EncodeRequest(
            session_digest=self.session.digest if digest is None else digest,
            first_message=self.next_message + gap,
            sources=sources if isinstance(sources, Tensor) else to_tensor(sources),
        )
        return list(self.client._stub.Encode(iter([request]), timeout=60))

    def open(self, **changes: Any) -> None:
        """Try to open a session whose wire form differs from a good one in some fields."""
        wire = to_session(fresh_session(self.client).wire_fields(share_seed=True))
        for name, value in changes.items():
            setattr(wire, name, value)
        self.client._stub.OpenSession(OpenSessionRequest(session=wire), timeout=60)

    def go_on(self) -> None:
        """A good message with the next number is encoded and acknowledged by both decoders."""
        (answer,) = self.encode(SOURCES[self.next_message : self.next_message + 1])
        assert answer.first_message == self.next_message
        self.next_message += 1
        assert lacking(self.client, self.session, self.next_message) == []


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(tmp_path_factory.mktemp("refusals")))
        decoders = fleet.decoders(SIDES)
        client = stack.enter_context(EncoderClient(fleet.encoder(decoders).address))
        session = fresh_session(client)
        client.open(session)
        yield World(client, session)
        # Nothing of what was refused went to a decoder, and no session stayed behind.
        assert [status.session_digest for status in client.status().sessions] == [session.digest]
        for decoder in decoders:
            with DecoderClient(decoder.address) as reader:
                (status,) = reader.status().sessions
                assert (status.session_digest, status.failed) == (session.digest, 0)


def extreme(value: float, row: int = 2) -> Floats:
    """Five sources of which one is far outside any pool."""
    sources = SOURCES[:5].copy()
    sources[row] = value
    return sources


OPENING: list[tuple[dict[str, Any], grpc.StatusCode, tuple[str, ...]]] = [
    ({"digest": b"\1" * 32}, MISMATCH, ("session digest: got " + "01" * 32, "expected ")),
    ({"digest": b""}, MISMATCH, ("session digest: got nothing", "expected ")),
    ({"seed_digest": b"\2" * 32}, MISMATCH, ("seed_digest: got " + "02" * 32, "expected ")),
    ({"seed": b"\3" * 16}, MISMATCH, ("seed_digest: got ", "expected ")),
    ({"seed": b"\3" * 15}, INVALID, ("seed: got 15 bytes", "16 bytes")),
    ({"seed": b""}, MISMATCH, ("seed: got no seed", "pre-shared")),
    ({"protocol_version": 2}, MISMATCH, ("protocol_version: got 2", "expected 3")),
    ({"protocol_version": 0}, MISMATCH, ("protocol_version: got 0", "expected 3")),
    ({"bins": 12}, INVALID, ("bins: got 12", "power of two")),
    ({"bins": 1}, INVALID, ("bins: got 1,", "power of two")),
    ({"bins": 2048}, INVALID, ("bins: got 2048", "at most pool_size, 1024")),
    ({"pool_size": 2**24 + 1}, INVALID, ("pool_size: got 16777217", "2^24")),
    ({"decoders": 0}, INVALID, ("decoders: got 0", "1 … 65536")),
    ({"decoders": 1}, MISMATCH, ("session digest: got ", "expected ")),
    ({"latent_dimension": 0}, INVALID, ("latent_dimension: got 0", "1 … 65536")),
    ({"pool_variance": float("nan")}, INVALID, ("pool_variance: got nan", "finite number above 0")),
    ({"pool_kind": session_pb2.POOL_KIND_UNSPECIFIED}, INVALID, ("pool_kind: got 'unspecified'", "gaussian")),
    ({"pool_kind": 77}, INVALID, ("pool_kind: got 'unspecified'", "gaussian, discrete or lattice")),
    ({"coupling": session_pb2.COUPLING_UNSPECIFIED}, INVALID, ("coupling: got 'unspecified'", "gls, baseline or list")),
    ({"coupling": session_pb2.COUPLING_LIST}, INVALID, ("coupling: got list with a gaussian pool", "a discrete pool")),
    ({"binning": session_pb2.BINNING_UNSPECIFIED}, INVALID, ("binning: got 'unspecified'", "random, modulo or region")),
    ({"binning": session_pb2.BINNING_MODULO}, MISMATCH, ("session digest: got ", "expected ")),
    ({"model_digest": b"\4" * 31}, INVALID, ("model_digest: got ", "32 bytes")),
]


@pytest.mark.parametrize(("changes", "code", "parts"), OPENING, ids=[next(iter(case[0])) for case in OPENING])
def test_opening(world: World, changes: dict[str, Any], code: grpc.StatusCode, parts: tuple[str, ...]) -> None:
    with answered_with(code, *parts):
        world.open(**changes)
    world.go_on()


SESSIONS: list[tuple[dict[str, Any], grpc.StatusCode, tuple[str, ...]]] = [
    ({"decoders": 3}, INVALID, ("decoders: got 3", "at most 2")),
    ({"pool_kind": "discrete"}, MISMATCH, ("pool_kind: got discrete", "expected gaussian")),
    ({"pool_size": 2**18 + 1, "race_order": "index"}, INVALID, ("pool_size: got 262145 candidates", "at most 262144")),
    ({"latent_dimension": 2**16}, MISMATCH, ("latent_dimension: got 65536", "expected 1")),
    ({"latent_dimension": 2}, MISMATCH, ("latent_dimension: got 2", "expected 1")),
    ({"pool_variance": 2.0}, MISMATCH, ("pool_variance: got 2.0", "expected 1.003")),
    ({"model_digest": b"\5" * 32}, MISMATCH, ("model_digest: got " + "05" * 32, "expected ")),
]


@pytest.mark.parametrize(("changes", "code", "parts"), SESSIONS, ids=[next(iter(case[0])) for case in SESSIONS])
def test_opening_a_session_of_others(
    world: World, changes: dict[str, Any], code: grpc.StatusCode, parts: tuple[str, ...]
) -> None:
    """Complete and consistent sessions that this encoder cannot serve."""
    fields = {name: getattr(world.session, name) for name in Session.__dataclass_fields__}
    if changes.get("pool_kind") == "discrete":
        changes = changes | {"pool_variance": 1.0, "race_order": "index", "binning": None}
    with answered_with(code, *parts):
        world.client.open(Session(**(fields | {"seed": 3} | changes)))
    world.go_on()


ENCODING: dict[str, tuple[Callable[[World], Any], grpc.StatusCode, tuple[str, ...]]] = {
    "unknown session": (
        lambda w: w.encode(SOURCES[:1], digest=b"\6" * 32), MISMATCH, ("session_digest: got " + "06" * 32, "1 open"),
    ),
    "no session": (lambda w: w.encode(SOURCES[:1], digest=b""), MISMATCH, ("session_digest: got nothing", "1 open")),
    "NaN": (
        lambda w: w.encode(extreme(np.nan)), INVALID, ("sources, row 2 (message {2})", "NaN or infinity", "finite"),
    ),
    "infinity": (lambda w: w.encode(extreme(-np.inf, 4)), INVALID, ("sources, row 4 (message {4})", "finite values")),
    "underflow": (lambda w: w.encode(extreme(1e200)), INVALID, ("message {2}: got all importance weights are zero",)),
    "shape": (lambda w: w.encode(SOURCES[:6].reshape(3, 2)), INVALID, ("sources: got shape (3, 2)", "(B >= 1)")),
    "scalar": (lambda w: w.encode(np.float64(0.5).reshape(())), INVALID, ("sources: got shape ()", "(B >= 1)")),
    "empty batch": (lambda w: w.encode(SOURCES[:0]), INVALID, ("sources: got shape (0,)", "(B >= 1)")),
    "no tensor": (lambda w: w.encode(Tensor()), INVALID, ("tensor type: got 0", "uint8, float32 or float64")),
    "unknown type": (
        lambda w: w.encode(Tensor(type=9, shape=[1], data=bytes(8))), INVALID, ("tensor type: got 9", "float64"),
    ),
    "short data": (
        lambda w: w.encode(Tensor(type=Tensor.TYPE_FLOAT64, shape=[2], data=bytes(15))),
        INVALID, ("tensor data: got 15 bytes", "expected 16", "(2,)"),
    ),
    "long data": (
        lambda w: w.encode(Tensor(type=Tensor.TYPE_FLOAT32, shape=[2], data=bytes(9))),
        INVALID, ("tensor data: got 9 bytes", "expected 8"),
    ),
    "huge shape": (
        lambda w: w.encode(Tensor(type=Tensor.TYPE_UINT8, shape=[2**63, 2**63], data=b"")),
        INVALID, ("tensor data: got 0 bytes",),
    ),
    "too many": (
        lambda w: w.encode(np.zeros(4097)), INVALID, ("sources: got 4097 messages", "at most 4096"),
    ),
    "above the message limit": (
        lambda w: w.encode(np.zeros(2**19 + 1)), grpc.StatusCode.RESOURCE_EXHAUSTED, ("larger than max", "4194304"),
    ),
    "gap": (lambda w: w.encode(SOURCES[:1], gap=1), SEQUENCE, ("first_message: got {1}", "expected {0}")),
    "repetition": (lambda w: w.encode(SOURCES[-1:], gap=-1), SEQUENCE, ("first_message: got {-1}", "expected {0}")),
    "close unknown": (
        lambda w: w.client._stub.CloseSession(CloseSessionRequest(session_digest=b"\7"), timeout=60),
        MISMATCH, ("session_digest: got 07", "1 open"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ENCODING)
def test_encoding(world: World, case: str) -> None:
    """``{n}`` in the expected text is the number of the message that is due, plus n."""
    call, code, parts = ENCODING[case]
    if world.next_message == 0:
        world.go_on()
    numbers = {f"{{{n}}}": str(world.next_message + n) for n in range(-1, 5)}
    for placeholder, number in numbers.items():
        parts = tuple(part.replace(placeholder, number) for part in parts)
    with answered_with(code, *parts):
        call(world)
    world.go_on()


def test_refusal_in_the_middle_of_a_stream(world: World) -> None:
    """Batches before the bad one are answered, the bad one and those after it are not, and take no number."""
    first = world.next_message
    good = [SOURCES[first + i : first + i + 1] for i in range(3)]
    batches = [*good[:2], np.array([1e200]), good[2]]
    requests = [
        EncodeRequest(session_digest=world.session.digest, first_message=first + i, sources=to_tensor(batch))
        for i, batch in enumerate(batches)
    ]
    answers: list[EncodeResponse] = []
    with answered_with(INVALID, f"message {first + 2}: got all importance weights are zero"):
        answers.extend(world.client._stub.Encode(iter(requests), timeout=60))
    assert [answer.first_message for answer in answers] in ([], [first], [first, first + 1])
    world.next_message += 2
    world.go_on()
