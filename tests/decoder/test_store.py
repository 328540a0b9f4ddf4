"""What a decoder keeps of a session: side information before, reconstructions after, nothing halfway."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from decoder import Decoder
from decoder.codec import DecodedBatch
from decoder.output import Output, OutputFailed
from decoder.rows import BLOCK_BYTES, Rows
from decoder.store import BatchDamaged, DecoderSession, read_side_information
from gumbelcast.checksum import batch_checksum
from shared_rng import CodecError, MissingSideInformation, SequenceError, bin_labels, pack
from tests.models import Floats, gaussian_card, gaussian_models, refused, uniforms

LABELS = (np.arange(12) * 5 % 8).astype(np.uint32)
SIDE = 4.0 * uniforms(12) - 2.0


def npy(array: npt.NDArray[Any]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def write(folder: Path, data: bytes) -> Path:
    path = folder / "side.npy"
    path.write_bytes(data)
    return path


def a_store(file_rows: npt.NDArray[Any] | None = None, out: Path | None = None, start: int = 0) -> DecoderSession:
    session, _, model = gaussian_models(gaussian_card())
    return DecoderSession(
        Decoder(session, 1, model), start, file_rows, None if out is None else Output(out, session, 1)
    )


def payload(first: int, count: int) -> bytes:
    return pack(LABELS[first : first + count], 3)


def receive(store: DecoderSession, first: int, count: int, data: bytes) -> dict[int, str]:
    """With the right checksum."""
    checksum = batch_checksum(store.session.digest, first, count, data) if count > 0 else 0
    return store.receive(first, count, data, checksum)


def contents(rows: Rows) -> dict[int, float]:
    """Scalar rows by message."""
    held = zip(rows._firsts, rows._blocks, strict=True)
    return {first + place: float(row) for first, block in held for place, row in enumerate(block)}


def state(store: DecoderSession) -> tuple[object, ...]:
    """All that a refused call must leave as it was."""
    return (
        store.next_message,
        store.decoded,
        dict(store.failures),
        *(contents(rows) for rows in (store._put, store._picks, store._reconstructions)),
    )


@pytest.mark.parametrize("dtype", ["<f8", "<f4"])
@pytest.mark.parametrize("shape", [(), (3, 2)])
def test_read_side_information(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    rows = uniforms(5 * int(np.prod(shape))).reshape(5, *shape).astype(dtype)
    found = read_side_information(write(tmp_path, npy(rows)), shape)
    assert isinstance(found, np.memmap)
    assert np.array_equal(found, rows)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", "a .npy file"),
        (b"1 2 3", "a .npy file"),
        (npy(SIDE)[:-1], "a .npy file"),
        (npy(SIDE)[:50], "a .npy file"),
        (npy(SIDE)[:70] + b"(" + npy(SIDE)[71:], "a .npy file"),
        (npy(np.zeros((5, 1))), "shape (B,)"),
        (npy(np.zeros(())), "shape (B,)"),
        (npy(np.zeros(5, np.int64)), "float32 or float64"),
        (npy(np.zeros(5, np.uint8)), "float32 or float64"),
        (npy(np.zeros(5, complex)), "float32 or float64"),
    ],
)
def test_bad_side_information_file(tmp_path: Path, data: bytes, expected: str) -> None:
    path = write(tmp_path, data)
    with refused(str(path), expected=expected):
        read_side_information(path, ())


def test_side_information_file_of_another_shape(tmp_path: Path) -> None:
    path = write(tmp_path, npy(np.zeros((5, 3, 3))))
    with refused(str(path), "shape (5, 3, 3)", "shape (B, 3, 2)"):
        read_side_information(path, (3, 2))


@pytest.mark.parametrize("name", ["absent.npy", "."])
def test_no_side_information_file(tmp_path: Path, name: str) -> None:
    with refused("side information", str(tmp_path / name), "a .npy file"):
        read_side_information(tmp_path / name, ())


def decoded(first: int, count: int, side: Floats) -> tuple[list[int], npt.NDArray[np.float32]]:
    """What the codec alone makes of the messages."""
    batch = a_store().decoder.decode(payload(first, count), side[first : first + count], first)
    return batch.picks.tolist(), batch.reconstructions.astype(np.float32)


def assert_read(store: DecoderSession, first: int, count: int, side: Floats) -> None:
    picks, reconstructions = store.read(first, count)
    expected = decoded(first, count, side)
    assert picks.dtype == np.int64
    assert reconstructions.dtype == np.float32
    assert picks.tolist() == expected[0]
    assert np.array_equal(reconstructions, expected[1])


def test_rows_that_are_put() -> None:
    """In any order and split, and counted as they are held and used up."""
    store = a_store()
    assert store.put_side_information(3, SIDE[3:9]) == 6
    assert store.put_side_information(0, SIDE[:3]) == 9
    assert receive(store, 0, 5, payload(0, 5)) == {}
    assert (store.next_message, store.decoded, store.failures) == (5, 5, {})
    assert set(contents(store._put)) == {5, 6, 7, 8}
    assert store.put_side_information(9, SIDE[9:]) == 7
    receive(store, 5, 7, payload(5, 7))
    assert store.decoded == 12
    for first, count in ((0, 12), (4, 3), (11, 1)):
        assert_read(store, first, count, SIDE)


def test_put_replaces_and_goes_before_the_file() -> None:
    store = a_store(SIDE[:8])
    assert store.put_side_information(2, np.full(3, 9.0)) == 3
    assert store.put_side_information(3, np.full(1, -1.5)) == 3
    assert store.put_side_information(8, np.full(4, 0.25)) == 7
    receive(store, 0, 12, payload(0, 12))
    used = np.concatenate([SIDE[:2], [9.0, -1.5, 9.0], SIDE[5:8], np.full(4, 0.25)])
    assert_read(store, 0, 12, used)
    assert store.put_side_information(12, np.zeros(1)) == 1


def test_rows_of_messages_that_never_came() -> None:
    """The service skips messages that were lost for good: their rows are no longer held."""
    store = a_store()
    assert store.put_side_information(0, SIDE[:6]) == 6
    store.next_message = 4
    assert store.put_side_information(6, SIDE[6:8]) == 4
    receive(store, 4, 4, payload(4, 4))
    assert_read(store, 4, 4, SIDE)
    assert len(store._put) == 0


def test_file_may_be_single_precision() -> None:
    store = a_store(SIDE.astype(np.float32))
    receive(store, 0, 3, payload(0, 3))
    assert_read(store, 0, 3, SIDE.astype(np.float32).astype(np.float64))


def test_a_late_decoder_starts_at_its_message() -> None:
    """Rows of a file are those of messages 0, 1, 2 …, wherever the session begins here."""
    store = a_store(SIDE, start=7)
    receive(store, 7, 2, payload(7, 2))
    assert_read(store, 7, 2, SIDE)


PUT_ERRORS: list[tuple[int, Any, type[CodecError], str, str]] = [
    (1, np.zeros(3), SequenceError, "first_message", "2 or later"),
    (2, np.zeros((3, 1)), CodecError, "side information", "shape (B >= 1)"),
    (2, np.zeros(0), CodecError, "side information", "shape (B >= 1)"),
    (2, np.array([0.0, np.nan]), CodecError, "row 1 (message 3)", "finite"),
]


@pytest.mark.parametrize(("first", "rows", "kind", "operand", "expected"), PUT_ERRORS)
def test_put_refused(first: int, rows: Any, kind: type[CodecError], operand: str, expected: str) -> None:
    store = a_store()
    store.put_side_information(0, SIDE[:4])
    receive(store, 0, 2, payload(0, 2))
    before = state(store)
    with refused(operand, expected=expected, kind=kind):
        store.put_side_information(first, rows)
    assert state(store) == before


RECEIVE_ERRORS: list[tuple[int, int, bytes, type[CodecError], str, str]] = [
    (1, 2, bytes(1), SequenceError, "first_message", "2"),
    (3, 2, bytes(1), SequenceError, "first_message", "2"),
    (2, 0, b"", CodecError, "count", "1 … 4096"),
    (2, -1, b"", CodecError, "count", "1 … 4096"),
    (2, 4097, b"", CodecError, "count", "1 … 4096"),
    (2, 5, bytes(2), MissingSideInformation, "message 6", "one row"),
    (2, 3, bytes(1), CodecError, "packed messages", "2 bytes"),
    (2, 3, b"\0\1", CodecError, "packed messages", "zero padding"),
    (2, 4, bytes(2), CodecError, "row 3 (message 5)", "finite"),
]


@pytest.mark.parametrize(("first", "count", "data", "kind", "operand", "expected"), RECEIVE_ERRORS)
def test_receive_refused(
    first: int, count: int, data: bytes, kind: type[CodecError], operand: str, expected: str
) -> None:
    """A batch is decoded as a whole or not at all, and the right one is still taken afterwards."""
    store = a_store(np.concatenate([SIDE[:5], [np.nan]]))
    store.put_side_information(4, SIDE[4:5])
    receive(store, 0, 2, payload(0, 2))
    before = state(store)
    with refused(operand, expected=expected, kind=kind):
        receive(store, first, count, data)
    assert state(store) == before
    receive(store, 2, 3, payload(2, 3))
    assert_read(store, 0, 5, SIDE)


def test_a_batch_that_comes_again() -> None:
    """Its acknowledgement was lost: the answer is the same and nothing is decoded twice."""
    session, _, model = gaussian_models(gaussian_card(), pool_size=17, bins=16)
    store = DecoderSession(Decoder(session, 0, model), 0, SIDE, None)
    labels = bin_labels(session, range(6))[:, 0].copy()
    labels[1] = empty_bin(store, 1)
    failures = receive(store, 0, 3, pack(labels[:3], 4))
    assert set(failures) == {1}
    receive(store, 3, 3, pack(labels[3:], 4))
    before = state(store)
    assert receive(store, 0, 3, pack(labels[:3], 4)) == failures
    assert receive(store, 3, 3, pack(labels[3:], 4)) == receive(store, 0, 1, b"") == {}
    assert repr(state(store)) == repr(before)
    with refused("first_message", "5", "6", SequenceError):
        receive(store, 5, 2, bytes(1))


@pytest.mark.parametrize(
    ("rows", "given"), [(None, "none (no file, 1 rows put)"), (SIDE[:0], "none (a file of 0 rows, 1 rows put)")]
)
def test_missing_side_information_says_what_is_held(rows: Floats | None, given: str) -> None:
    store = a_store(rows)
    store.put_side_information(1, SIDE[1:2])
    with refused("side information of message 0", given, "one row", MissingSideInformation):
        receive(store, 0, 2, payload(0, 2))


def empty_bin(store: DecoderSession, message: int) -> int:
    """A label that no candidate of the message has."""
    used = bin_labels(store.session, [message])[0]
    return next(label for label in range(store.session.bins) if label not in used)


def test_failed_message(tmp_path: Path) -> None:
    """It is counted and named, kept as NaN, and the messages around it are decoded."""
    session, _, model = gaussian_models(gaussian_card(), pool_size=17, bins=16)
    for out in (None, tmp_path):
        store = DecoderSession(Decoder(session, 0, model), 0, SIDE, None if out is None else Output(out, session, 0))
        labels = bin_labels(session, range(3))[:, 0].copy()
        labels[1] = empty_bin(store, 1)
        failures = receive(store, 0, 3, pack(labels, 4))
        assert set(failures) == set(store.failures) == {1}
        assert (store.next_message, store.decoded) == (3, 2)
        receive(store, 3, 1, pack(bin_labels(session, [3])[0, :1], 4))
        assert (set(store.failures), store.decoded) == ({1}, 3)
        if out is None:
            picks, reconstructions = store.read(0, 3)
        else:
            with np.load(tmp_path / session.digest.hex()[:16] / "000000000000.npz") as file:
                picks, reconstructions = file["picks"], file["reconstructions"]
                assert file["failed_messages"].tolist() == [1]
        assert (picks >= 0).tolist() == [True, False, True]
        assert np.isnan(reconstructions).tolist() == [False, True, False]


@pytest.mark.parametrize(("first", "count"), [(0, 0), (0, -1)])
def test_read_nothing(first: int, count: int) -> None:
    with refused("count", str(count), "at least 1"):
        a_store().read(first, count)


@pytest.mark.parametrize(("first", "count", "named"), [(7, 3, 9), (6, 2, 6), (0, 1, 0), (9, 1, 9)])
def test_read_what_is_not_there(first: int, count: int, named: int) -> None:
    store = a_store(SIDE, start=7)
    with refused("message to read", str(first), "none yet", SequenceError):
        store.read(first, count)
    receive(store, 7, 2, payload(7, 2))
    with refused("message to read", str(named), "7 … 8", SequenceError):
        store.read(first, count)


def test_out_folder(tmp_path: Path) -> None:
    """One .npz a batch, named by its first message, in the session's own folder; nothing is kept for reading."""
    store = a_store(SIDE, tmp_path / "deep" / "out", start=5)
    receive(store, 5, 4, payload(5, 4))
    receive(store, 9, 1, payload(9, 1))
    folder = tmp_path / "deep" / "out" / store.session.digest.hex()[:16]
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["000000000005.npz", "000000000009.npz", "position.json"]
    for first, count in ((5, 4), (9, 1)):
        picks, reconstructions = decoded(first, count, SIDE)
        with np.load(folder / f"{first:012d}.npz") as file:
            assert set(file) == {"first_message", "picks", "reconstructions", "failed_messages"}
            assert int(file["first_message"]) == first
            assert file["picks"].tolist() == picks
            assert file["reconstructions"].dtype == np.float32
            assert np.array_equal(file["reconstructions"], reconstructions)
            assert file["failed_messages"].tolist() == []
    assert (len(store._picks), len(store._reconstructions)) == (0, 0)
    with refused("reconstructions", str(folder), "without --out"):
        store.read(5, 1)


def test_a_batch_that_is_not_what_was_sent() -> None:
    """Nothing of it is decoded, and the right one is still taken."""
    store = a_store(SIDE)
    data = payload(0, 3)
    right = batch_checksum(store.session.digest, 0, 3, data)
    before = state(store)
    flipped = bytes([data[0] ^ 16]) + data[1:]
    for first, count, came, checksum in (
        (0, 3, flipped, right),
        (0, 2, data[:1], right),
        (3, 3, data, right),
        (0, 3, data, batch_checksum(bytes(32), 0, 3, data)),
        (0, 3, data, 0),
    ):
        with refused(f"batch of message {first}", f"{checksum:08x}", kind=BatchDamaged):
            store.receive(first, count, came, checksum)
        assert state(store) == before
    assert store.receive(0, 3, data, right) == {}
    assert_read(store, 0, 3, SIDE)


def test_out_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """The batch stays due, so that it can be sent again."""
    (tmp_path / "out").write_text("a file where the folder should be", encoding="utf-8")
    store = a_store(SIDE, tmp_path / "out")
    before = state(store)
    with refused("000000000000.npz", "Not a directory", "a disk that takes it", OutputFailed):
        receive(store, 0, 2, payload(0, 2))
    assert state(store) == before
    (tmp_path / "out").unlink()
    assert receive(store, 0, 2, payload(0, 2)) == {}


def test_side_information_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """In bytes, of all that is held and what each block takes beside it; what was decoded makes room."""
    monkeypatch.setattr("decoder.store.MAX_SIDE_BYTES", 8 * 8 + 2 * BLOCK_BYTES)
    store = a_store()
    assert store.put_side_information(0, SIDE[:8]) == 8
    with refused("side information", f"{72 + 2 * BLOCK_BYTES} bytes", f"at most {64 + 2 * BLOCK_BYTES}"):
        store.put_side_information(100, SIDE[8:9])
    receive(store, 0, 1, payload(0, 1))
    assert store.put_side_information(100, SIDE[8:9]) == 8


def test_reconstructions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest batches go, and whoever asks for them is told what is left; the last one stays in any case."""
    monkeypatch.setattr("decoder.store.MAX_KEPT_BYTES", 4 * BLOCK_BYTES + 8 * (8 + 4))
    store = a_store(SIDE)
    for first in range(0, 12, 4):
        receive(store, first, 4, payload(first, 4))
    assert_read(store, 4, 8, SIDE)
    with refused("message to read", "3", "a decoded message that is kept (4 … 11)", SequenceError):
        store.read(3, 2)
    assert (store.next_message, store.decoded) == (12, 12)
    monkeypatch.setattr("decoder.store.MAX_KEPT_BYTES", 1)
    store = a_store(SIDE)
    receive(store, 0, 4, payload(0, 4))
    receive(store, 4, 8, payload(4, 8))
    assert_read(store, 4, 8, SIDE)


def test_reasons_of_failures_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """All are counted, the last ones are told."""
    monkeypatch.setattr("decoder.store.MAX_FAILURES", 2)
    monkeypatch.setattr("decoder.codec.Decoder.decode", lambda *_: failing)
    store = a_store(SIDE)
    for message in range(3):
        failing = DecodedBatch(message, np.array([-1]), np.full((1, 1), np.nan), np.array([np.nan]), {message: "why"})
        assert receive(store, message, 1, payload(message, 1)) == {message: "why"}
    assert (store.failed, store.failures) == (3, {1: "why", 2: "why"})
