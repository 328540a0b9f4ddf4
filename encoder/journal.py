"""The encoder's journal: every accepted batch, kept before its source's owner or a decoder hears of it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from encoder.journal_file import JournalDamaged, open_journal, telling
from gumbelcast.checksum import batch_checksum
from shared_rng import pack, unpack

ROW_BYTES = 128
"""What a batch takes beside its payload, for the size that retention counts."""

MEMORY_BYTES = 64 * 2**20
"""Limit of a journal in memory where none is given."""

MAX_MESSAGE = 2**62
"""Above every message number; SQLite's integers have 64 bits with a sign."""

_READ_BATCHES = 64
_PRUNED_AT_ONCE = 256


@dataclass(frozen=True)
class Batch:
    """Packed messages as they go to every decoder."""

    first_message: int
    count: int
    payload: bytes
    checksum: int

    @property
    def end(self) -> int:
        """Number after the last message."""
        return self.first_message + self.count

    @classmethod
    def of(cls, digest: bytes, first_message: int, count: int, payload: bytes) -> Batch:
        """A batch of the session with this digest, with its checksum."""
        return cls(first_message, count, payload, batch_checksum(digest, first_message, count, payload))

    def starting_at(self, message: int, digest: bytes, bits: int) -> Batch:
        """The part from one of its messages on, for a decoder that begins in the middle of it."""
        labels = unpack(self.payload, self.count, bits)[message - self.first_message :]
        return Batch.of(digest, message, len(labels), pack(labels, bits))


@dataclass(frozen=True)
class Entry:
    """A batch on its way into the journal: the id of its session and the SHA-256 of its sources."""

    session: int
    batch: Batch
    source: bytes


@dataclass(frozen=True)
class StoredSession:
    """A session in the journal; ``wire`` is empty once it is closed."""

    id: int
    digest: bytes
    wire: bytes
    next_message: int


@dataclass(frozen=True)
class Retention:
    """What the journal keeps: at most so many bytes, and nothing older than so many seconds; None for no limit.

    The oldest batches go first. The newest one always stays.
    """

    size: int | None = None
    age: float | None = None


class Journal:
    """One database, used by one thread at a time. Every method raises the errors of ``journal_file``.

    A batch is in the journal as a whole or not at all, and what a method has returned from survives the end of
    the process and of the machine, if the journal is a file.
    """

    def __init__(self, path: Path | None, retention: Retention) -> None:
        """Open a file, made if it is missing, or with None a journal in memory."""
        self.path = path
        self._retention = retention
        self._database = open_journal(path)
        with telling(path):
            query = f"SELECT COALESCE(SUM(LENGTH(payload) + {ROW_BYTES}), 0) FROM batches"
            self._size = int(self._database.execute(query).fetchone()[0])

    def close(self) -> None:
        """Write everything into the one file, and let others open it."""
        self._database.close()

    def sessions(self) -> list[StoredSession]:
        """The open sessions."""
        with telling(self.path):
            query = "SELECT id, digest, wire, next_message FROM sessions WHERE wire != x'' ORDER BY id"
            found = self._database.execute(query).fetchall()
        for row in found:
            self._require_types(f"session {row[0]}", row, (int, bytes, bytes, int))
        return [StoredSession(*row) for row in found]

    def next_message(self, digest: bytes) -> int:
        """Number of the next message of a session, open or closed; 0 for one that was never here."""
        with telling(self.path):
            query = "SELECT next_message FROM sessions WHERE digest = ?"
            row = self._database.execute(query, (digest,)).fetchone()
        return 0 if row is None else int(row[0])

    def put_session(self, digest: bytes, wire: bytes, next_message: int) -> StoredSession:
        """Begin a session, or open a closed one again; numbers never go back."""
        with telling(self.path), self._transaction():
            row = self._database.execute(
                "INSERT INTO sessions (digest, wire, next_message) VALUES (?, ?, ?) ON CONFLICT (digest) DO UPDATE "
                "SET wire = excluded.wire, next_message = MAX(next_message, excluded.next_message) "
                "RETURNING id, digest, wire, next_message",
                (digest, wire, next_message),
            ).fetchall()
        return StoredSession(*row[0])

    def close_session(self, session: int) -> None:
        """Forget a session's batches and its seed; the number of its next message stays."""
        with telling(self.path), self._transaction():
            freed = self._database.execute(
                f"SELECT COALESCE(SUM(LENGTH(payload) + {ROW_BYTES}), 0) FROM batches WHERE session = ?", (session,)
            ).fetchone()[0]
            self._database.execute("DELETE FROM batches WHERE session = ?", (session,))
            self._database.execute("UPDATE sessions SET wire = x'' WHERE id = ?", (session,))
        self._size -= freed

    def advance(self, session: int, message: int) -> None:
        """Give up the numbers before ``message``: somebody has seen them, and the journal has not."""
        with telling(self.path), self._transaction():
            self._database.execute(
                "UPDATE sessions SET next_message = MAX(next_message, ?) WHERE id = ?", (message, session)
            )

    def append(self, entries: Sequence[Entry]) -> bool:
        """Keep batches, all or none, and let go what is beyond the retention; whether anything was let go."""
        now = time.time()
        with telling(self.path), self._transaction():
            self._database.executemany(
                "INSERT INTO batches (session, first_message, count, payload, checksum, source, accepted) "
                "VALUES (?, ?, ?, ?, ?, ?, ?)",
                [
                    (e.session, e.batch.first_message, e.batch.count, e.batch.payload, e.batch.checksum, e.source, now)
                    for e in entries
                ],
            )
            last = {entry.session: entry.batch.end for entry in entries}
            self._database.executemany(
                "UPDATE sessions SET next_message = ? WHERE id = ?", [(end, session) for session, end in last.items()]
            )
            size = self._size + sum(len(entry.batch.payload) + ROW_BYTES for entry in entries)
            kept = self._prune(size, now)
        self._size = kept
        return kept < size

    def prune(self) -> bool:
        """Let go what is beyond the retention; whether there was anything."""
        with telling(self.path), self._transaction():
            kept = self._prune(self._size, time.time())
        pruned, self._size = kept < self._size, kept
        return pruned

    def read(self, session: StoredSession, message: int) -> list[Batch]:
        """Up to 64 batches from the one that holds ``message`` on, or from the next one that is here.

        Raises:
            JournalDamaged: a batch does not fit its checksum.
        """
        with telling(self.path):
            query = (
                "SELECT first_message, count, payload, checksum FROM batches WHERE session = ?1 AND first_message >= "
                "COALESCE((SELECT first_message FROM (SELECT first_message, count FROM batches WHERE session = ?1 "
                "AND first_message <= ?2 ORDER BY first_message DESC LIMIT 1) WHERE first_message + count > ?2), ?2) "
                "ORDER BY first_message LIMIT ?3"
            )
            rows = self._database.execute(query, (session.id, message, _READ_BATCHES)).fetchall()
        for row in rows:
            self._require_types(f"batch of message {row[0]}", row, (int, int, bytes, int))
        batches = [Batch(*row) for row in rows]
        for batch in batches:
            name = f"journal {self.path}, batch of message {batch.first_message}"
            if batch.first_message < 0 or not 0 < batch.count < 2**32:
                raise JournalDamaged(name, f"{batch.count} messages", "1 or more")
            own = batch_checksum(session.digest, batch.first_message, batch.count, batch.payload)
            if batch.checksum != own:
                raise JournalDamaged(name, f"checksum {own:08x}", f"{batch.checksum:08x}")
        return batches

    def source(self, session: int, first_message: int, count: int) -> bytes | None:
        """SHA-256 of the sources of a batch, None if there is no batch of just these messages."""
        with telling(self.path):
            query = "SELECT source FROM batches WHERE session = ? AND first_message = ? AND count = ?"
            row = self._database.execute(query, (session, first_message, count)).fetchone()
        return None if row is None else bytes(row[0])

    def oldest(self, session: int) -> int | None:
        """Number of the oldest message of a session that is here."""
        with telling(self.path):
            query = "SELECT MIN(first_message) FROM batches WHERE session = ?"
            (first,) = self._database.execute(query, (session,)).fetchone()
        return None if first is None else int(first)

    def _require_types(self, what: str, row: tuple[Any, ...], types: tuple[type, ...]) -> None:
        """SQLite keeps values of any type in any column."""
        found = [type(value).__name__ for value in row]
        expected = [kind.__name__ for kind in types]
        if found != expected:
            raise JournalDamaged(f"journal {self.path}, {what}", ", ".join(found), ", ".join(expected))

    def _prune(self, size: int, now: float) -> int:
        """Within a transaction; returns the size that is left."""
        limit, age = self._retention.size, self._retention.age
        while (limit is not None and size > limit) or age is not None:
            gone: list[int] = []
            for batch, length, accepted in self._oldest_batches():
                if not ((limit is not None and size > limit) or (age is not None and accepted < now - age)):
                    break
                gone.append(batch)
                size -= length + ROW_BYTES
            if not gone:
                break
            self._database.execute("DELETE FROM batches WHERE id <= ?", (gone[-1],))
        return size

    def _oldest_batches(self) -> list[tuple[int, int, float]]:
        """Ids, payload lengths and times of the oldest batches, the newest of all left out."""
        query = (
            "SELECT id, LENGTH(payload), accepted FROM batches WHERE id < (SELECT MAX(id) FROM batches) "
            "ORDER BY id LIMIT ?"
        )
        return self._database.execute(query, (_PRUNED_AT_ONCE,)).fetchall()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._database.execute("COMMIT")
        finally:
            # Some errors have ended the transaction by themselves.
            if self._database.in_transaction:
                self._database.execute("ROLLBACK")
