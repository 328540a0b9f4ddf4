"""Random bytes and values at every boundary: whatever comes, it is taken or refused with a ``CodecError``.

A few seconds here; ``make fuzz`` looks for longer, at other examples every time. Every call has a bound on its memory.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import struct
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image
from safetensors.numpy import save

from decoder import Decoder, load_decoder_model
from decoder.store import DecoderSession, read_side_information
from encoder import Encoder, load_encoder_model
from encoder.files import read_sources
from encoder.journal import Batch, Entry, Journal, Retention
from gumbelcast import convert
from gumbelcast.checksum import batch_checksum
from gumbelcast.v1 import decoder_pb2, encoder_pb2, session_pb2
from shared_rng import CodecError, Session, find_model, load_card, unpack
from tests.integration.services import in_process_models
from tests.models import VAE_ARCHITECTURE, make_session, vae_tensors

MEMORY = 2**26
"""Bytes that one call may take, whatever it is given."""

EXAMPLES = int(os.environ.get("GUMBELCAST_FUZZ_EXAMPLES", "20"))
fuzz = settings(max_examples=EXAMPLES, derandomize=EXAMPLES == 20, suppress_health_check=[HealthCheck.too_slow])

numbers = st.one_of(
    st.integers(-2, 70),
    st.sampled_from(
        [2**16, 2**16 + 1, 2**20, 2**24, 2**24 + 1, 2**31 - 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1, 10**400]
    ),
    st.floats(),
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), numbers, st.text(max_size=8)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)


@contextmanager
def taken_or_refused(*also: type[Exception]) -> Iterator[None]:
    """The block ends or raises a CodecError, and the process never holds much more than before."""
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts again
    before = _peak()
    with suppress(CodecError, *also):
        yield
    assert _peak() - before < MEMORY


def _peak() -> int:
    """Peak memory of this process in bytes."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


@pytest.fixture(autouse=True, scope="module")
def imported() -> None:
    """What is imported late is no memory of a call."""
    card = load_card(find_model("mnist"))
    load_encoder_model(card)
    load_decoder_model(card)


def spoilt(draw: Callable[[Any], Any], data: bytes) -> bytes:
    """A valid file with some bytes changed, cut off or added."""
    changed = bytearray(data)
    for _ in range(draw(st.integers(0, 3))):
        place = draw(st.integers(0, len(changed) - 1))
        changed[place] = draw(st.integers(0, 255))
    end = draw(st.sampled_from([len(changed), len(changed) // 2, draw(st.integers(0, len(changed)))]))
    return bytes(changed[:end]) + draw(st.binary(max_size=8))


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def picture(kind: str) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(np.arange(12, dtype=np.uint8).reshape(4, 3)).save(stream, kind)
    return stream.getvalue()


@cache
def files() -> dict[str, bytes]:
    idx = b"\0\0\x08\x03" + struct.pack(">3I", 2, 4, 3) + bytes(24)
    return {
        ".npy": npy(np.zeros((2, 4, 3), np.float32)),
        ".idx": idx,
        ".gz": gzip.compress(idx),
        ".png": picture("PNG"),
        ".gif": picture("GIF"),
        ".jpg": picture("JPEG"),
        ".tif": picture("TIFF"),
        ".bmp": picture("BMP"),
    }


@fuzz
@given(st.data())
def test_source_files(data: st.DataObject) -> None:
    suffix = data.draw(st.sampled_from(sorted(files())))
    shape = data.draw(st.sampled_from([(), (4, 3), (4, 3, 3)]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"file{suffix}"
        path.write_bytes(spoilt(data.draw, files()[suffix]))
        with taken_or_refused():
            read_sources(path, shape)


@fuzz
@given(st.data())
def test_side_information_files(data: st.DataObject) -> None:
    header = data.draw(st.one_of(st.none(), st.fixed_dictionaries({"shape": st.tuples(numbers, numbers)})))
    good = npy(np.zeros((3, 2)))
    if header is not None:
        text = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {header['shape']}, }}".encode().ljust(117) + b"\n"
        good = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + bytes(48)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "side.npy"
        path.write_bytes(spoilt(data.draw, good))
        with taken_or_refused():
            np.asarray(read_side_information(path, (2,)))


@fuzz
@given(st.data())
def test_cards(data: st.DataObject) -> None:
    """Anything in a card, and cards of our own with some fields replaced."""
    good: dict[str, Any] = {"source": "vae", "architecture": dict(VAE_ARCHITECTURE)}
    source = data.draw(st.sampled_from(["vae", "codebook", "gaussian"]))
    extra = {"network": "convolutional", "weights_head": "mixture", "channels": 3, "words": 12, "bins": 4,
             "coupling": "gls", "decoder_width": 8, "prior_variance": 1.0, "noise_variance": 0.1, "side_variance": 1.0,
             "mixture_components": 2, "mixture_hidden": 3, "fusion_hidden": 4, "side": "left"}  # fmt: skip
    architecture = good["architecture"] | {
        name: extra[name] for name in data.draw(st.sets(st.sampled_from(sorted(extra))))
    }
    for name in data.draw(st.sets(st.sampled_from(sorted(architecture)), max_size=3)):
        architecture[name] = data.draw(values)
    card: Any = {"source": source, "architecture": architecture}
    weights = save(vae_tensors())
    if data.draw(st.booleans()):
        card["weights"] = {"file": "weights.safetensors", "sha256": hashlib.sha256(weights).hexdigest()}
    if data.draw(st.integers(0, 9)) == 0:
        card[data.draw(st.sampled_from(sorted(card)))] = data.draw(values)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "weights.safetensors").write_bytes(weights)
        (folder / "card.json").write_text(json.dumps(card), encoding="utf-8")
        _load(folder)


@fuzz
@given(st.data())
def test_card_files(data: st.DataObject) -> None:
    good = json.dumps(
        {"source": "gaussian", "architecture": {"prior_variance": 1, "noise_variance": 1, "side_variance": 1}}
    )
    text = data.draw(st.sampled_from([good.encode(), b"[" * 10**5, b'{"a":' * 10**4, b"9" * 10**5, b"\xff\xfe"]))
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "card.json").write_bytes(spoilt(data.draw, text))
        _load(Path(name))


@fuzz
@given(st.data())
def test_weights(data: st.DataObject) -> None:
    """Damaged files with a card that fits them, and layers of other shapes and types."""
    tensors: dict[str, Any] = dict(vae_tensors())
    for name in data.draw(st.sets(st.sampled_from(sorted(tensors)), max_size=2)):
        shape = data.draw(st.lists(st.integers(0, 3), max_size=3))
        kind = data.draw(st.sampled_from([np.float32, np.float64, np.float16, np.int64, np.uint8, np.bool_]))
        tensors[name] = np.zeros(shape, kind)
    weights = save(tensors)
    if data.draw(st.booleans()):
        weights = spoilt(data.draw, weights)
    card = {
        "source": "vae",
        "architecture": VAE_ARCHITECTURE,
        "weights": {"file": "weights.safetensors", "sha256": hashlib.sha256(weights).hexdigest()},
    }
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "weights.safetensors").write_bytes(weights)
        (Path(name) / "card.json").write_text(json.dumps(card))
        _load(Path(name))


def _load(folder: Path) -> None:
    with taken_or_refused():
        card = load_card(folder)
        # One half may be refused without the other.
        for load in (load_encoder_model, load_decoder_model):
            with suppress(CodecError):
                load(card)


_FIELDS = session_pb2.Session.DESCRIPTOR.fields


@fuzz
@given(st.data())
def test_sessions(data: st.DataObject) -> None:
    """Fields of a session as they may come over the wire; none is affordable for a model of two dimensions."""
    wire = convert.to_session(make_session().wire_fields(share_seed=True))
    for field in data.draw(st.sets(st.sampled_from([field.name for field in _FIELDS]), max_size=3)):
        value = data.draw(st.one_of(numbers, st.booleans(), st.binary(max_size=40)))
        try:
            setattr(wire, field, value)
        except (TypeError, ValueError, OverflowError):
            continue
    with taken_or_refused():
        Session.from_wire_fields(convert.from_session(wire), None, 2)


@fuzz
@given(st.integers(0, 2**64 - 1), st.integers(-1, 2**32 - 1), st.binary(max_size=40), st.booleans())
def test_batches(first: int, count: int, payload: bytes, checked: bool) -> None:
    model = in_process_models()[1]
    session = make_session(model_digest=model.digest, pool_variance=model.pool_variance)
    state = DecoderSession(Decoder(session, 0, model), first if checked else 0, np.zeros(20), None)
    checksum = batch_checksum(session.digest, first, count, payload) if checked and count >= 0 else 0
    with taken_or_refused():
        state.receive(first, count, payload, checksum)
    with taken_or_refused():
        unpack(payload, max(count, 0), 3)


@settings(fuzz, max_examples=max(8, EXAMPLES // 20))  # every one waits for the disk
@given(st.data())
def test_journals(data: st.DataObject) -> None:
    """A damaged file is refused, or what is read from it is."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "journal"
        damaged = bytearray(_journal())
        # Pages of SQLite are mostly empty: places near what is written.
        written = [place for place, byte in enumerate(damaged) if byte]
        for _ in range(data.draw(st.integers(1, 4))):
            damaged[data.draw(st.sampled_from(written))] = data.draw(st.integers(0, 255))
        path.write_bytes(damaged[: data.draw(st.sampled_from([len(damaged), data.draw(st.integers(0, len(damaged)))]))])
        with taken_or_refused():
            journal = Journal(path, Retention(size=1000))
            try:
                for session in journal.sessions():
                    for batch in journal.read(session, 0):
                        assert batch.checksum == batch_checksum(DIGEST, batch.first_message, batch.count, batch.payload)
                journal.put_session(DIGEST, b"wire", 9)
                journal.prune()
            finally:
                journal.close()


DIGEST = bytes(range(32))


@cache
def _journal() -> bytes:
    """A journal's file; made once, as it holds the time."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / "journal"
        with mock.patch("encoder.journal.time.time", return_value=2e9):
            journal = Journal(path, Retention())
            session = journal.put_session(DIGEST, b"wire", 0)
            for first in (0, 8, 16):
                journal.append([Entry(session.id, Batch.of(DIGEST, first, 8, bytes([first] * 3)), b"source")])
            journal.close()
        return path.read_bytes()


@fuzz
@given(st.integers(0, 2**32 - 1), st.lists(st.integers(0, 2**64 - 1), max_size=70), st.binary(max_size=64))
def test_tensors(kind: int, shape: list[int], data: bytes) -> None:
    """A tensor is taken, or refused with a ValueError, which services answer with INVALID_ARGUMENT."""
    tensor = session_pb2.Tensor(shape=shape, data=data)
    tensor.type = kind & 7  # type: ignore[assignment]
    with taken_or_refused(ValueError):
        array = convert.from_tensor(tensor)
        model = in_process_models()[0]
        Encoder(make_session(model_digest=model.digest, pool_variance=model.pool_variance), model).encode(array)


@pytest.mark.parametrize(
    "kind",
    [
        session_pb2.Session,
        encoder_pb2.OpenSessionRequest,
        encoder_pb2.EncodeRequest,
        decoder_pb2.OpenDecoderSessionRequest,
        decoder_pb2.ReceiveMessagesRequest,
        decoder_pb2.PutSideInformationRequest,
    ],
)
@fuzz
@given(data=st.data())
def test_wire_bytes(kind: type[Message], data: st.DataObject) -> None:
    """Damaged bytes of the wire are no message, or one that is taken or refused."""
    wire = convert.to_session(make_session().wire_fields(share_seed=True))
    message = wire if kind is session_pb2.Session else kind()
    if "session" in kind.DESCRIPTOR.fields_by_name:
        message.session.CopyFrom(wire)  # type: ignore[attr-defined]
    with taken_or_refused(DecodeError, ValueError):
        came: Any = kind.FromString(spoilt(data.draw, message.SerializeToString() or b"\0"))
        if "session" in kind.DESCRIPTOR.fields_by_name or kind is session_pb2.Session:
            Session.from_wire_fields(convert.from_session(getattr(came, "session", came)), None, 1)
