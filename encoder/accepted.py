"""The journal beside the event loop: batches that wait at the same time share a commit, and links follow the end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from encoder.journal import Batch, Entry, Journal, StoredSession
from shared_rng import CodecError, SequenceError

TAIL_BATCHES = 64
"""Newest batches of a session that are kept in memory, for decoders that keep up."""

_PRUNE_SECONDS = 60.0

_T = TypeVar("_T")
_log = logging.getLogger("gumbelcast.encoder")


@dataclass
class _Waiting:
    accepted: Accepted
    entry: Entry
    done: asyncio.Future[None] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class JournalWriter:
    """A journal and the one thread that uses it."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="journal")
        self._waiting: list[_Waiting] = []
        self._wake = asyncio.Event()
        self._sessions: list[Accepted] = []
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def waiting(self) -> int:
        """Batches that are not committed yet."""
        return len(self._waiting)

    def start(self) -> None:
        """Begin to commit; within an event loop."""
        self._task = asyncio.create_task(self._run(), name="journal")

    async def close(self) -> None:
        """Commit what waits, and close the file."""
        self._closing = True
        self._wake.set()
        if self._task is not None:
            await self._task
        await self.call(Journal.close)
        self._worker.shutdown()

    async def call(self, method: Callable[..., _T], *arguments: Any) -> _T:
        """Call a method of the journal in its thread."""
        return await asyncio.get_running_loop().run_in_executor(self._worker, method, self._journal, *arguments)

    async def accepted(self, stored: StoredSession) -> Accepted:
        """The accepted batches of an open session."""
        oldest = await self.call(Journal.oldest, stored.id)
        accepted = Accepted(self, stored, stored.next_message if oldest is None else oldest)
        self._sessions.append(accepted)
        return accepted

    async def forget(self, accepted: Accepted) -> None:
        """Close a session in the journal."""
        await accepted.settled()
        await self.call(Journal.close_session, accepted.stored.id)
        self._sessions.remove(accepted)

    def submit(self, accepted: Accepted, entry: Entry) -> asyncio.Future[None]:
        """Queue a batch for the next commit; the result is there once it is kept."""
        waiting = _Waiting(accepted, entry)
        # Whoever asked may have gone; an error that nobody waits for is in the log.
        waiting.done.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._waiting.append(waiting)
        self._wake.set()
        return waiting.done

    async def _run(self) -> None:
        while self._waiting or not self._closing:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), _PRUNE_SECONDS)
            self._wake.clear()
            if self._waiting:
                await self._commit()
            elif not self._closing:
                await self._prune()

    async def _commit(self) -> None:
        taken, self._waiting = self._waiting, []
        try:
            pruned = await self.call(Journal.append, [waiting.entry for waiting in taken])
        except CodecError as error:
            _log.error("not accepted: %s", error)
            # Those that came meanwhile have numbers that would leave a gap.
            failed, self._waiting = taken + self._waiting, []
            for waiting in failed:
                waiting.accepted.roll_back()
                if not waiting.done.done():
                    waiting.done.set_exception(error)
            return
        for waiting in taken:
            waiting.accepted.commit(waiting.entry.batch)
        if pruned:
            await self._find_oldest()
        for waiting in taken:
            if not waiting.done.done():
                waiting.done.set_result(None)

    async def _prune(self) -> None:
        try:
            if await self.call(Journal.prune):
                await self._find_oldest()
        except CodecError as error:
            _log.error("old batches stay: %s", error)

    async def _find_oldest(self) -> None:
        for accepted in list(self._sessions):
            try:
                oldest = await self.call(Journal.oldest, accepted.stored.id)
            except CodecError as error:
                _log.error("cannot tell what is left of session %s: %s", accepted.stored.digest.hex()[:16], error)
            else:
                accepted.oldest_message = accepted.committed if oldest is None else oldest


class Accepted:
    """The accepted batches of one session: the end grows, links read from wherever their decoder stands.

    Attributes:
        stored: the session in the journal.
        next_message: number of the next message, those on their way into the journal counted.
        committed: number after the last message that is in the journal; nothing beyond it leaves this process.
        oldest_message: number of the oldest message that the journal holds.
        watchers: set whenever a batch was accepted.
    """

    def __init__(self, writer: JournalWriter, stored: StoredSession, oldest_message: int) -> None:
        self.stored = stored
        self.next_message = stored.next_message
        self.committed = stored.next_message
        self.oldest_message = oldest_message
        self.watchers: list[asyncio.Event] = []
        self._writer = writer
        self._tail: deque[Batch] = deque(maxlen=TAIL_BATCHES)
        self._last: asyncio.Future[None] | None = None

    def append(self, batch: Batch, source: bytes) -> asyncio.Future[None]:
        """Accept a batch; the result is there once it is in the journal, and then its links have been told.

        Raises:
            SequenceError: the batch does not begin at the next message.
        """
        if batch.first_message != self.next_message:
            raise SequenceError("first_message", batch.first_message, self.next_message)
        self.next_message = batch.end
        self._last = self._writer.submit(self, Entry(self.stored.id, batch, source))
        return self._last

    async def holds(self, first_message: int, count: int, source: bytes) -> bool:
        """Whether a batch of just these messages was accepted, from these sources."""
        await self.settled()
        return await self._writer.call(Journal.source, self.stored.id, first_message, count) == source

    async def settled(self) -> None:
        """Wait until every batch that was handed in is in the journal or refused."""
        while self._last is not None and not self._last.done():
            await asyncio.wait({self._last})

    async def advance(self, message: int) -> None:
        """Give up the numbers before ``message``, which a decoder has seen and this journal has not."""
        await self.settled()
        await self._writer.call(Journal.advance, self.stored.id, message)
        if message > self.next_message:
            _log.error("messages %d … %d are not in the journal; going on after them", self.next_message, message - 1)
            self.next_message = self.committed = message
            self._tail.clear()

    async def read(self, message: int) -> list[Batch]:
        """Some batches from the one that holds ``message`` on, none if that is the next message.

        Raises:
            SequenceError: the message is no longer, or never was, in the journal.
            CodecError: the journal cannot be read.
        """
        if message >= self.committed:
            return []
        if self._tail and self._tail[0].first_message <= message:
            batches = [batch for batch in self._tail if batch.end > message]
        else:
            batches = await self._writer.call(Journal.read, self.stored, message)
        if not batches or batches[0].first_message > message:
            held = batches[0].first_message if batches else self.committed
            raise SequenceError("message that is due", f"{message}, which is gone from the journal", f"{held} or later")
        return batches

    def commit(self, batch: Batch) -> None:
        """Told by the writer: the batch is in the journal."""
        self.committed = batch.end
        self._tail.append(batch)
        for event in self.watchers:
            event.set()

    def roll_back(self) -> None:
        """Told by the writer: what is not in the journal by now never will be."""
        self.next_message = self.committed
