"""The folder that a session's reconstructions go to: complete batches, and beside them how far the decoder came."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np

from decoder.codec import DecodedBatch
from shared_rng import CodecError, Session, SessionMismatch

OUTPUT_TYPE = np.float32
POSITION_NAME = "position.json"


class PositionDamaged(CodecError):
    """The file that says how far the decoder came cannot be understood."""

    status = "DATA_LOSS"


class OutputFailed(CodecError):
    """The folder does not take what belongs there; the batch stays due."""

    status = "FAILED_PRECONDITION"


class Output:
    """One session's folder of one decoder.

    A batch is a ``.npz`` file named by its first message. It is on the disk before the position counts it, and the
    position is on the disk before the batch is acknowledged, so a decoder that ends anywhere in between goes on
    behind its last complete batch. Files may be moved away once the position is past them.
    """

    def __init__(self, out: Path, session: Session, index: int) -> None:
        """The folder of a session in ``out``; nothing is written yet."""
        self.folder = out / session.digest.hex()[:16]
        self._owner = {"session": session.digest.hex(), "index": index}

    def position(self) -> int | None:
        """Number of the message that is due, None if this decoder has not seen the session.

        Raises:
            SessionMismatch: the folder is another decoder's or session's.
            PositionDamaged: the position cannot be understood.
            OutputFailed: it cannot be read.
        """
        path = self.folder / POSITION_NAME
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except OSError as error:
            raise OutputFailed(str(path), error.strerror, "a file that can be read") from error
        try:
            found = json.loads(text)
            owner, due = {name: found[name] for name in self._owner}, found["next_message"]
        except (ValueError, KeyError, TypeError) as error:
            raise PositionDamaged(str(path), "a file that is not what was written", "a decoder's position") from error
        if owner != self._owner:
            raise SessionMismatch(str(path), owner, self._owner)
        if type(due) is not int or due < 0:
            raise PositionDamaged(f"{path}, next_message", due, "a message number")
        return due + self._complete(due)

    def keep(self, batch: DecodedBatch) -> None:
        """Write a batch, complete or not at all, and the position after it.

        Raises:
            OutputFailed: the folder cannot be written.
        """
        _replace(
            self._path(batch.first_message),
            lambda stream: np.savez(
                stream,
                first_message=np.int64(batch.first_message),
                picks=batch.picks,
                reconstructions=batch.reconstructions.astype(OUTPUT_TYPE),
                failed_messages=np.array(sorted(batch.failures), dtype=np.int64),
            ),
        )
        self.keep_position(batch.first_message + len(batch.picks))

    def keep_position(self, next_message: int) -> None:
        """Write which message is due.

        Raises:
            OutputFailed: the folder cannot be written.
        """
        text = json.dumps(self._owner | {"next_message": next_message})
        _replace(self.folder / POSITION_NAME, lambda stream: stream.write(text.encode()))

    def _complete(self, due: int) -> int:
        """Messages of the batch at the position, if the decoder ended just before it counted it."""
        path = self._path(due)
        if not path.exists():
            return 0
        try:
            with path.open("rb") as stream, np.load(stream) as batch:
                return len(batch["picks"])
        except (ValueError, KeyError, EOFError, zipfile.BadZipFile):
            return 0  # decoded again, and replaced

    def _path(self, first_message: int) -> Path:
        return self.folder / f"{first_message:012d}.npz"


def _replace(path: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Write a file so that it is on the disk, with its old content or its new one, whatever happens."""
    partial = path.with_suffix(".partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    except OSError as error:
        raise OutputFailed(str(path), error.strerror or error, "a disk that takes it") from error
