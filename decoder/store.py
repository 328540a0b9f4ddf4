"""What a decoder keeps of one session: side information to come, and reconstructions or the files they went to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from decoder.codec import DecodedBatch, Decoder
from decoder.model import Floats
from decoder.rows import Rows
from shared_rng import CodecError, MissingSideInformation, SequenceError, Session, checked_batch, load_npy

_OUTPUT_TYPE = np.float32


def read_side_information(path: Path, side_shape: tuple[int, ...]) -> npt.NDArray[Any]:
    """Side information of messages 0, 1, 2 … from a ``.npy`` file, one row a message, not yet in memory.

    Raises:
        CodecError: no such file, no ``.npy`` file, or rows of another shape or type.
    """
    rows = load_npy(path, "side information", mmap_mode="r")
    if rows.ndim != 1 + len(side_shape) or rows.shape[1:] != side_shape:
        raise CodecError(str(path), f"shape {rows.shape}", f"shape {('B', *side_shape)}".replace("'", ""))
    if rows.dtype.kind != "f" or rows.dtype.itemsize not in (4, 8):
        raise CodecError(str(path), f"dtype {rows.dtype}", "float32 or float64")
    return rows


@dataclass
class DecoderSession:
    """One open session of a decoder.

    Attributes:
        decoder: the codec, bound to the session and k.
        next_message: number of the message that is due.
        file_rows: side information from a file, or None.
        out: folder that takes the reconstructions, or None to keep them for reading.
        decoded: messages decoded, failed ones not counted.
        failures: message number → reason.
        start: every message from this one to the one that is due was decoded here.
    """

    decoder: Decoder
    next_message: int
    file_rows: npt.NDArray[Any] | None
    out: Path | None
    decoded: int = 0
    failures: dict[int, str] = field(default_factory=dict)
    start: int = field(init=False)
    _put: Rows = field(default_factory=Rows)
    _picks: Rows = field(default_factory=Rows)
    _reconstructions: Rows = field(default_factory=Rows)

    def __post_init__(self) -> None:
        self.start = self.next_message

    def skip_to(self, message: int) -> None:
        """Give up the messages before ``message``, which went on without this decoder."""
        self._put.drop(self.next_message, message)
        self.start = self.next_message = message

    @property
    def session(self) -> Session:
        """The agreement."""
        return self.decoder.session

    def put_side_information(self, first_message: int, rows: npt.NDArray[Any]) -> int:
        """Take side information of messages from ``first_message`` on; returns how many rows are held.

        Rows that were put before are replaced, and go before the file's.

        Raises:
            CodecError: the shape is wrong, or a value is not finite.
            SequenceError: a message is already decoded.
        """
        if first_message < self.next_message:
            raise SequenceError("first_message of side information", first_message, f"{self.next_message} or later")
        checked = checked_batch("side information", rows, self.decoder.model.side_shape, first_message)
        self._put.drop(0, self.next_message)
        self._put.put(first_message, checked)
        return len(self._put)

    def receive(self, first_message: int, count: int, payload: bytes) -> dict[int, str]:
        """Decode one batch and keep its reconstructions; returns the failures among its messages.

        A batch that is already decoded came again because its acknowledgement was lost; it changes nothing.

        Raises:
            SequenceError: the batch neither starts at the message that is due nor is already decoded.
            MissingSideInformation: there is none for a message of the batch.
            CodecError: the payload's length does not belong to the count, or the side information is bad.
        """
        if count < 1:
            raise CodecError("count", count, "at least 1")
        end = first_message + count
        if self.start <= first_message and end <= self.next_message:
            return {message: reason for message, reason in self.failures.items() if first_message <= message < end}
        if first_message != self.next_message:
            raise SequenceError("first_message", first_message, self.next_message)
        batch = self.decoder.decode(payload, self._side_rows(first_message, end), first_message)
        if self.out is not None:
            _write(self.out / self.session.digest.hex()[:16], batch)
        else:
            reconstructions = batch.reconstructions.astype(_OUTPUT_TYPE)
            self._picks.put(first_message, batch.picks)
            self._reconstructions.put(first_message, reconstructions)
        self._put.drop(0, end)
        self.next_message = end
        self.decoded += count - len(batch.failures)
        self.failures |= batch.failures
        return batch.failures

    def _side_rows(self, first_message: int, end: int) -> Floats:
        """Side information of messages ``first_message`` … ``end - 1``: [B, *side_shape]."""
        in_file = 0 if self.file_rows is None else len(self.file_rows)
        missing = self._put.missing(first_message, end)
        if missing is not None and missing < in_file:
            missing = self._put.missing(in_file, end)
        if missing is not None:
            held = "no file" if self.file_rows is None else f"a file of {in_file} rows"
            given = f"none ({held}, {len(self._put)} rows put)"
            raise MissingSideInformation(f"side information of message {missing}", given, "one row")
        side = np.empty((end - first_message, *self.decoder.model.side_shape))
        if self.file_rows is not None:
            from_file = self.file_rows[first_message:end]
            side[: len(from_file)] = from_file
        self._put.copy_into(side, first_message)
        return side

    def read(self, first_message: int, count: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Picks [count] and reconstructions [count, *source_shape] of decoded messages.

        Raises:
            CodecError: reconstructions go to a folder instead.
            SequenceError: a message is not decoded, or was decoded before this service started.
        """
        if self.out is not None:
            raise CodecError("reconstructions", f"files in {self.out}", "a decoder that was started without --out")
        if count < 1:
            raise CodecError("count", count, "at least 1")
        missing = self._picks.missing(first_message, first_message + count)
        if missing is not None:
            raise SequenceError("message to read", missing, f"a decoded message ({self._picks})")
        return self._picks.read(first_message, count), self._reconstructions.read(first_message, count)


def _write(folder: Path, batch: DecodedBatch) -> None:
    """One ``.npz`` a batch, named by its first message; complete or absent, whatever happens."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{batch.first_message:012d}.npz"
    partial = path.with_suffix(".partial")
    with partial.open("wb") as stream:
        np.savez(
            stream,
            first_message=np.int64(batch.first_message),
            picks=batch.picks,
            reconstructions=batch.reconstructions.astype(_OUTPUT_TYPE),
            failed_messages=np.array(sorted(batch.failures), dtype=np.int64),
        )
    partial.replace(path)
