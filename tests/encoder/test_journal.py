"""The journal: accepted batches survive, numbers never go back, and a bad file is refused and left as it is."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from encoder.journal import ROW_BYTES, Batch, Entry, Journal, Retention
from encoder.journal_file import VERSION, JournalDamaged, JournalFull, JournalRefused
from shared_rng import CodecError, pack, unpack
from shared_rng.philox import words
from tests.models import refused

DIGEST, WIRE = bytes(range(32)), b"a session"
LABELS = (np.arange(40) * 5 % 8).astype(np.uint32)


def a_batch(first: int, count: int = 4) -> Batch:
    return Batch.of(DIGEST, first, count, pack(LABELS[first : first + count], 3))


@contextmanager
def a_journal(path: Path | None, size: int | None = None, age: float | None = None) -> Iterator[Journal]:
    journal = Journal(path, Retention(size, age))
    try:
        yield journal
    finally:
        journal.close()


def fill(journal: Journal, batches: int) -> None:
    """A session with batches of four messages, each appended by itself."""
    session = journal.put_session(DIGEST, WIRE, 0)
    for first in range(session.next_message, 4 * batches, 4):
        journal.append([Entry(session.id, a_batch(first), b"source %d" % first)])


def firsts(journal: Journal, message: int = 0) -> list[int]:
    (session,) = journal.sessions()
    return [batch.first_message for batch in journal.read(session, message)]


@pytest.fixture(params=["file", "memory"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "journal" if request.param == "file" else None


def test_what_was_appended_is_read(path: Path | None) -> None:
    with a_journal(path) as journal:
        fill(journal, 3)
        (session,) = journal.sessions()
        assert (session.digest, session.wire, session.next_message) == (DIGEST, WIRE, 12)
        assert journal.read(session, 0) == [a_batch(0), a_batch(4), a_batch(8)]
        assert [firsts(journal, message) for message in (3, 4, 11, 12)] == [[0, 4, 8], [4, 8], [8], []]
        assert [journal.source(session.id, *part) for part in ((4, 4), (4, 3), (5, 4), (12, 4))] == [
            b"source 4", None, None, None,
        ]  # fmt: skip
        assert journal.oldest(session.id) == 0


def test_a_file_survives_without_being_closed(tmp_path: Path) -> None:
    """A copy of the files as they are at any moment is what a killed process leaves; nobody but the owner reads it."""
    path, copy = tmp_path / "journal", tmp_path / "copy"
    with a_journal(path) as journal:
        fill(journal, 3)
        copy.write_bytes(path.read_bytes())
        copy.with_name("copy-wal").write_bytes(path.with_name("journal-wal").read_bytes())
        assert {p.stat().st_mode & 0o777 for p in (path, path.with_name("journal-wal"))} == {0o600}
    for left in (path, copy):
        with a_journal(left) as journal:
            assert firsts(journal) == [0, 4, 8]
            assert journal.next_message(DIGEST) == 12


def test_all_or_none(path: Path | None) -> None:
    """Batches of one commit: a number that is taken refuses them all."""
    with a_journal(path) as journal:
        fill(journal, 2)
        (session,) = journal.sessions()
        with pytest.raises(CodecError):
            journal.append([Entry(session.id, a_batch(8), b""), Entry(session.id, a_batch(4), b"")])
        assert (firsts(journal), journal.next_message(DIGEST)) == ([0, 4], 8)
        journal.append([Entry(session.id, a_batch(8), b""), Entry(session.id, a_batch(12), b"")])
        assert (firsts(journal), journal.next_message(DIGEST)) == ([0, 4, 8, 12], 16)


def test_numbers_never_go_back(path: Path | None) -> None:
    """Neither of a session that is opened again, nor of one that was closed, whose batches and seed are gone."""
    with a_journal(path) as journal:
        fill(journal, 2)
        (session,) = journal.sessions()
        assert journal.put_session(DIGEST, WIRE, 3) == session
        journal.close_session(session.id)
        assert (journal.sessions(), journal.next_message(DIGEST)) == ([], 8)
        again = journal.put_session(DIGEST, WIRE, 0)
        assert (again.id, again.next_message, firsts(journal)) == (session.id, 8, [])
        journal.advance(session.id, 20)
        journal.advance(session.id, 10)
        assert journal.next_message(DIGEST) == 20
        assert journal.next_message(bytes(32)) == 0


def test_retention_by_size(path: Path | None) -> None:
    """The oldest go first; the newest stays in any case."""
    with a_journal(path, size=3 * (ROW_BYTES + 2)) as journal:
        fill(journal, 5)
        (session,) = journal.sessions()
        assert (firsts(journal, 8), journal.oldest(session.id)) == ([8, 12, 16], 8)
        assert firsts(journal, 0) == [8, 12, 16]
        assert journal.append([Entry(session.id, a_batch(20), b"")])
        assert firsts(journal) == [12, 16, 20]
    with a_journal(path, size=1) as journal:
        fill(journal, 7)
        assert firsts(journal) == [24]


def test_retention_by_age(path: Path | None, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = 1000.0
    monkeypatch.setattr("encoder.journal.time.time", lambda: clock)
    with a_journal(path, age=60.0) as journal:
        fill(journal, 2)
        clock = 1050.0
        fill(journal, 4)
        assert (firsts(journal), journal.prune()) == ([0, 4, 8, 12], False)
        clock = 1070.0
        assert (journal.prune(), firsts(journal)) == (True, [8, 12])
        clock = 2000.0
        assert (journal.prune(), firsts(journal)) == (True, [12])


def test_disk_full(path: Path | None) -> None:
    """The batch is refused and takes no number; what was accepted stays, and there is room again later."""
    with a_journal(path) as journal:
        fill(journal, 2)
        (session,) = journal.sessions()
        pages = journal._database.execute("PRAGMA page_count").fetchone()[0]
        journal._database.execute(f"PRAGMA max_page_count = {pages}")
        huge = Batch.of(DIGEST, 12, 30, bytes(100_000))
        with refused("journal", "full", "room", JournalFull):
            journal.append([Entry(session.id, a_batch(8), b""), Entry(session.id, huge, b"")])
        assert (firsts(journal), journal.next_message(DIGEST)) == ([0, 4], 8)
        journal._database.execute("PRAGMA max_page_count = 100000")
        fill(journal, 3)
        assert firsts(journal) == [0, 4, 8]


def test_damaged_batch(tmp_path: Path) -> None:
    """It is never sent."""
    with a_journal(tmp_path / "journal") as journal:
        fill(journal, 2)
        journal._database.execute("UPDATE batches SET payload = x'ffff' WHERE first_message = 4")
        with refused("batch of message 4", "checksum", kind=JournalDamaged):
            firsts(journal)


def test_one_encoder_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    with a_journal(path) as journal:
        with refused(str(path), "locked", "no other encoder", JournalRefused):
            Journal(path, Retention())
        fill(journal, 1)
    with a_journal(path) as journal:
        assert firsts(journal) == [0]


def a_file(path: Path, batches: int = 400) -> bytes:
    """A journal of many pages."""
    with a_journal(path) as journal:
        session = journal.put_session(DIGEST, WIRE, 0)
        payload = bytes(200)
        journal.append([Entry(session.id, Batch.of(DIGEST, n, 1, payload), b"") for n in range(batches)])
    return path.read_bytes()


def write(path: Path, change: str) -> None:
    """Change the file behind the journal's back."""
    database = sqlite3.connect(path)
    database.execute(change)
    database.commit()
    database.close()


BAD = {
    "newer": (lambda path: write(path, f"PRAGMA user_version = {VERSION + 1}"), JournalRefused, "version", "2"),
    "another database": (lambda path: write(path, "PRAGMA application_id = 1"), JournalRefused, "", "something else"),
    "text": (lambda path: path.write_text("a text that is no database\n" * 50), JournalRefused, "", "not a database"),
    "empty": (lambda path: path.write_bytes(b""), JournalDamaged, "", "an empty file"),
    "cut to half": (lambda path: os.truncate(path, path.stat().st_size // 2), JournalDamaged, "", "malformed"),
    "cut by a page": (lambda path: os.truncate(path, path.stat().st_size - 4096), JournalDamaged, "", ""),
    "cut to 100 bytes": (lambda path: os.truncate(path, 100), CodecError, "", ""),
    "other tables": (lambda path: write(path, "DROP TABLE batches"), JournalDamaged, "", "no such table"),
    "overwritten": (lambda path: path.write_bytes(path.read_bytes()[:8192] + os.urandom(4096)), JournalDamaged, "", ""),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_file(tmp_path: Path, case: str) -> None:
    change, kind, operand, given = BAD[case]
    path = tmp_path / "journal"
    a_file(path)
    change(path)
    before = path.read_bytes()
    with pytest.raises(CodecError) as caught:
        Journal(path, Retention())
    assert isinstance(caught.value, kind), caught.value
    assert str(path) in caught.value.operand
    assert (operand in caught.value.operand, given in str(caught.value.given)) == (True, True), caught.value
    assert path.read_bytes() == before


def test_any_damage_is_told(tmp_path: Path) -> None:
    """Bytes that change anywhere in the file: a clear error, or what is read is what was written."""
    path = tmp_path / "journal"
    whole = a_file(path, 60)
    with a_journal(path) as journal:
        (session,) = journal.sessions()
        written = journal.read(session, 0)
    numbers = words(5, 98, 0, 0, 240)
    refused_at: list[str] = []
    for case in range(80):
        place, mask, length = (int(number) for number in numbers[3 * case : 3 * case + 3])
        content = bytearray(whole)
        for i in range(place % len(whole), min(len(whole), place % len(whole) + 1 + length % 8)):
            content[i] ^= 1 + mask % 255
        path.write_bytes(content)
        try:
            with a_journal(path) as journal:
                for stored in journal.sessions():
                    found = journal.read(stored, 0)
                    assert stored != session or found == [b for b in written if b in found]
                    journal.oldest(stored.id)
                    journal.source(stored.id, 0, 1)
                journal.next_message(DIGEST)
        except CodecError as error:
            refused_at.append(error.operand)
    assert len(refused_at) > 10
    assert [operand for operand in refused_at if str(path) not in operand] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_read_only_file(tmp_path: Path) -> None:
    """For a user who may read it, and for one who may not begin one."""
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)
    path = tmp_path / "journal"
    a_file(path)
    path.chmod(0o644)
    before = path.read_bytes()
    os.seteuid(65534)
    try:
        for name in ("journal", "another"):
            with pytest.raises(JournalRefused) as caught:
                Journal(tmp_path / name, Retention())
            assert "can be written" in str(caught.value.expected), caught.value
    finally:
        os.seteuid(0)
    assert path.read_bytes() == before


def test_no_folder(tmp_path: Path) -> None:
    with refused("journal", "No such file", "can be written", JournalRefused):
        Journal(tmp_path / "nowhere" / "journal", Retention())


def test_part_of_a_batch() -> None:
    """For a decoder that begins in the middle: the rest, packed anew, with its own number and checksum."""
    whole = a_batch(4, 10)
    for message in range(4, 14):
        part = whole.starting_at(message, DIGEST, 3)
        assert part == a_batch(message, 14 - message)
        assert unpack(part.payload, part.count, 3).tolist() == LABELS[message:14].tolist()
