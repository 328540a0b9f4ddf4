"""What a decoder keeps of one session: side information to come, and reconstructions or the files they went to."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from decoder.codec import Decoder
from decoder.model import Floats
from decoder.output import OUTPUT_TYPE, Output
from decoder.rows import BLOCK_BYTES, Rows
from gumbelcast.channels import MAX_BATCH
from gumbelcast.checksum import batch_checksum
from shared_rng import CodecError, MissingSideInformation, SequenceError, Session, checked_batch, load_npy

MAX_SIDE_BYTES = 2**28
"""Side information of one session that is held for messages to come."""
MAX_KEPT_BYTES = 2**28
"""Picks and reconstructions of one session that are kept for reading; the oldest go first."""
MAX_FAILURES = 2**16
"""Failed messages of one session whose reasons are kept; the oldest go first."""


class BatchDamaged(CodecError):
    """A batch did not arrive as it was sent; it must be sent again."""

    status = "DATA_LOSS"


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
        output: takes the reconstructions, or None to keep them for reading.
        decoded: messages decoded since this service started, failed ones not counted.
        failed: messages that failed since then.
        failures: message number → reason, of the last ones.
    """

    decoder: Decoder
    next_message: int
    file_rows: npt.NDArray[Any] | None
    output: Output | None
    decoded: int = 0
    failed: int = 0
    failures: dict[int, str] = field(default_factory=dict)
    _put: Rows = field(default_factory=Rows)
    _picks: Rows = field(default_factory=Rows)
    _reconstructions: Rows = field(default_factory=Rows)

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
        size = self._put.nbytes + checked.nbytes + BLOCK_BYTES
        if size > MAX_SIDE_BYTES:
            raise CodecError("side information", f"{size} bytes with what is held", f"at most {MAX_SIDE_BYTES}")
        self._put.put(first_message, checked)
        return len(self._put)

    def receive(self, first_message: int, count: int, payload: bytes, checksum: int) -> dict[int, str]:
        """Decode one batch and keep its reconstructions; returns the failures among its messages.

        A batch that is already past came again because its acknowledgement was lost; it changes nothing.

        Raises:
            BatchDamaged: the checksum is not that of such a batch of this session.
            SequenceError: the batch neither starts at the message that is due nor is already past.
            MissingSideInformation: there is none for a message of the batch.
            CodecError: the payload's length does not belong to the count, or the side information is bad.
        """
        if not 1 <= count <= MAX_BATCH:
            raise CodecError("count", count, f"1 … {MAX_BATCH}")
        own = batch_checksum(self.session.digest, first_message, count, payload)
        if checksum != own:
            raise BatchDamaged(f"checksum of the batch of message {first_message}", f"{checksum:08x}", f"{own:08x}")
        end = first_message + count
        if end <= self.next_message:
            return {message: reason for message, reason in self.failures.items() if first_message <= message < end}
        if first_message != self.next_message:
            raise SequenceError("first_message", first_message, self.next_message)
        batch = self.decoder.decode(payload, self._side_rows(first_message, end), first_message)
        if self.output is not None:
            self.output.keep(batch)
        else:
            reconstructions = batch.reconstructions.astype(OUTPUT_TYPE)
            self._picks.put(first_message, batch.picks)
            self._reconstructions.put(first_message, reconstructions)
            self._forget()
        self._put.drop(0, end)
        self.next_message = end
        self.decoded += count - len(batch.failures)
        self.failed += len(batch.failures)
        self.failures |= batch.failures
        while len(self.failures) > MAX_FAILURES:
            del self.failures[next(iter(self.failures))]
        return batch.failures

    def _forget(self) -> None:
        """Let the oldest batches go where there are too many to keep, the last one never."""
        while self._picks.nbytes + self._reconstructions.nbytes > MAX_KEPT_BYTES:
            if (end := self._picks.second_block) is None:
                return
            self._picks.drop(0, end)
            self._reconstructions.drop(0, end)

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
            SequenceError: a message is not decoded, or was decoded before this service started, or is gone.
        """
        if self.output is not None:
            raise CodecError(
                "reconstructions", f"files in {self.output.folder}", "a decoder that was started without --out"
            )
        if count < 1:
            raise CodecError("count", count, "at least 1")
        missing = self._picks.missing(first_message, first_message + count)
        if missing is not None:
            raise SequenceError("message to read", missing, f"a decoded message that is kept ({self._picks})")
        return self._picks.read(first_message, count), self._reconstructions.read(first_message, count)
