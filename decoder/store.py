"""What a decoder keeps of one session: side information to come, and reconstructions or the files they went to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from decoder.codec import DecodedBatch, Decoder
from decoder.model import Floats
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
    _put_rows: dict[int, Floats] = field(default_factory=dict)
    _kept: dict[int, tuple[int, npt.NDArray[np.float32]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.start = self.next_message

    def skip_to(self, message: int) -> None:
        """Give up the messages before ``message``, which went on without this decoder."""
        for number in range(self.next_message, message):
            self._put_rows.pop(number, None)
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
        self._put_rows.update(zip(range(first_message, first_message + len(checked)), checked, strict=True))
        return len(self._put_rows)

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
        if self.start <= first_message and first_message + count <= self.next_message:
            return {m: self.failures[m] for m in range(first_message, first_message + count) if m in self.failures}
        if first_message != self.next_message:
            raise SequenceError("first_message", first_message, self.next_message)
        side = np.stack([self._side_row(m) for m in range(first_message, first_message + count)])
        batch = self.decoder.decode(payload, side, first_message)
        if self.out is not None:
            _write(self.out / self.session.digest.hex()[:16], batch)
        else:
            kept = batch.reconstructions.astype(_OUTPUT_TYPE)
            for b, pick in enumerate(batch.picks):
                self._kept[first_message + b] = (int(pick), kept[b])
        for message in range(first_message, first_message + count):
            self._put_rows.pop(message, None)
        self.next_message = first_message + count
        self.decoded += count - len(batch.failures)
        self.failures |= batch.failures
        return batch.failures

    def _side_row(self, message: int) -> Floats:
        if (put := self._put_rows.get(message)) is not None:
            return put
        if self.file_rows is not None and message < len(self.file_rows):
            return np.asarray(self.file_rows[message], dtype=np.float64)
        held = f"a file of {len(self.file_rows)} rows" if self.file_rows is not None else "no file"
        given = f"none ({held}, {len(self._put_rows)} rows put)"
        raise MissingSideInformation(f"side information of message {message}", given, "one row")

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
        wanted = range(first_message, first_message + count)
        for message in wanted:
            if message not in self._kept:
                held = f"{min(self._kept)} … {max(self._kept)}" if self._kept else "none yet"
                raise SequenceError("message to read", message, f"a decoded message ({held})")
        picks = np.array([self._kept[m][0] for m in wanted], dtype=np.int64)
        return picks, np.stack([self._kept[m][1] for m in wanted])


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
