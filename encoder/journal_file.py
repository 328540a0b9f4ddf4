"""The journal's SQLite database: made, opened and checked, and its errors told in our own words."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from shared_rng import CodecError

VERSION = 1
"""Of the tables."""

_APPLICATION = 0x476D6263
"""What SQLite calls the application's number; no other database has it."""

_SCHEMA = f"""
CREATE TABLE sessions (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    wire BLOB NOT NULL,            -- gumbelcast.v1.Session as it came; empty once the session is closed
    next_message INTEGER NOT NULL  -- number after the last that was given to a source
);
CREATE TABLE batches (
    id INTEGER PRIMARY KEY,        -- ascending in the order of acceptance
    session INTEGER NOT NULL REFERENCES sessions,
    first_message INTEGER NOT NULL,
    count INTEGER NOT NULL,
    payload BLOB NOT NULL,
    checksum INTEGER NOT NULL,
    source BLOB NOT NULL,          -- SHA-256 of the sources, to know a batch that comes again
    accepted REAL NOT NULL         -- seconds since 1970
);
CREATE UNIQUE INDEX by_number ON batches (session, first_message);
PRAGMA application_id = {_APPLICATION};
PRAGMA user_version = {VERSION};
"""


class JournalFull(CodecError):
    """There is no room for the batch; nothing of it was kept."""

    status = "RESOURCE_EXHAUSTED"


class JournalRefused(CodecError):
    """The file cannot serve as the journal of this encoder; it stays as it is."""

    status = "FAILED_PRECONDITION"


class JournalDamaged(CodecError):
    """The file is no longer what was written."""

    status = "DATA_LOSS"


class JournalFailed(CodecError):
    """The disk does not do what it is told; nothing of the batch was kept."""

    status = "UNAVAILABLE"


def open_journal(path: Path | None) -> sqlite3.Connection:
    """The database of a journal, made if there is none, locked against every other process; or one in memory.

    Every commit is on the disk before it returns (WAL, ``synchronous=FULL``). The file is readable by its owner
    alone, since sessions carry their seed unless it was shared beforehand.

    Raises:
        JournalRefused: another process holds it, it cannot be written, or it is no journal or one of a newer version.
        JournalDamaged: it is not what was written, for instance cut short.
        JournalFull: there is no room for it.
    """
    if path is None:
        memory = _connect(":memory:")
        memory.executescript(_SCHEMA)
        return memory
    if not path.exists():
        _make(path)
    if path.stat().st_size == 0:
        raise JournalDamaged(f"journal {path}", "an empty file", "a journal, or no file to begin one")
    with telling(path):
        opened = _connect(str(path))
        try:
            _check(opened, path)
        except BaseException:
            opened.close()
            raise
    return opened


@contextlib.contextmanager
def telling(path: Path | None) -> Iterator[None]:
    """Around every use of the database: its errors become a :class:`CodecError` with the right status."""
    try:
        yield
    except UnicodeDecodeError as error:  # SQLite quotes what it finds
        raise JournalDamaged(f"journal {path}", str(error), "the tables of a journal") from error
    except sqlite3.Error as error:
        name = "journal in memory" if path is None else f"journal {path}"
        # The lower byte; the upper ones tell more than anybody needs here.
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            raise JournalFull(name, str(error), "room for the batch") from error
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH):
            raise JournalRefused(name, str(error), "a file that can be written") from error
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise JournalRefused(name, str(error), "a file that no other encoder holds") from error
        if code == sqlite3.SQLITE_NOTADB:
            raise JournalRefused(name, str(error), "the journal of an encoder") from error
        # A query of ours that cannot be understood, or a row that does not fit, means other tables than ours.
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH):
            raise JournalDamaged(name, str(error), "the tables of a journal") from error
        raise JournalFailed(name, str(error), "a disk that takes the batch") from error


def _connect(name: str) -> sqlite3.Connection:
    return sqlite3.connect(name, timeout=0.0, isolation_level=None, check_same_thread=False)


def _make(path: Path) -> None:
    """A new file, whole or not there at all."""
    partial = path.with_name(path.name + ".partial")
    try:
        partial.unlink(missing_ok=True)
        os.close(os.open(partial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        with telling(path), contextlib.closing(_connect(str(partial))) as made:
            made.execute("PRAGMA synchronous = FULL")
            made.executescript(_SCHEMA)
        partial.rename(path)
    except OSError as error:
        raise JournalRefused(f"journal {path}", error.strerror or str(error), "a folder that can be written") from error


def _check(opened: sqlite3.Connection, path: Path) -> None:
    """Nothing is changed before the file is known to be ours, of a version that we know, and whole."""
    name = f"journal {path}"
    (application,), (version,) = (
        opened.execute(f"PRAGMA {field}").fetchone() for field in ("application_id", "user_version")
    )
    if application != _APPLICATION:
        raise JournalRefused(name, "a database of something else", "the journal of an encoder")
    if version != VERSION:
        raise JournalRefused(f"{name}, version", version, f"{VERSION}: it was written by another release")
    found = [row[0] for row in opened.execute("PRAGMA quick_check(1)")]
    if found != ["ok"]:
        raise JournalDamaged(name, found[0], "the tables of a journal")
    opened.execute("PRAGMA locking_mode = EXCLUSIVE")
    opened.execute("PRAGMA journal_mode = WAL")
    opened.execute("PRAGMA synchronous = FULL")
    # Takes the lock, which stays, and finds out whether the file can be written.
    opened.execute("BEGIN IMMEDIATE")
    opened.execute(f"PRAGMA user_version = {VERSION}")
    opened.execute("COMMIT")
