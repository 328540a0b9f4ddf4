"""Deliver accepted batches to one decoder: in order, acknowledged, from where it stands, also after a while away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from typing import Any, TypeAlias

import grpc
import grpc.aio

from encoder.accepted import Accepted
from encoder.failures import DecoderDistrusts, DecoderLost, DecoderRefused, ended, explained
from encoder.journal import MAX_MESSAGE, Batch
from gumbelcast.channels import CALL_SECONDS, SESSION_KEY, STREAM_SECONDS, open_channel
from gumbelcast.probe import NotTrusted, require_trust
from gumbelcast.security import PLAIN, Security
from gumbelcast.v1 import decoder_pb2 as pb
from gumbelcast.v1.decoder_pb2_grpc import DecoderServiceStub
from gumbelcast.v1.session_pb2 import Session as WireSession
from shared_rng import CodecError, Session

WINDOW = 4
"""Batches on their way to one decoder without an acknowledgement."""

RETRY_SECONDS = 2.0
"""Pause between attempts to reach a decoder that was given up."""

_DISTRUST_SECONDS = 60.0
"""Longest pause where one side does not trust the other: it doubles up to here."""
_RECONNECT_SECONDS = 0.1
_MAX_LOSSES = 5
"""Connections lost one after another without an acknowledgement before a decoder is given up."""

_Stream: TypeAlias = "grpc.aio.StreamStreamCall[pb.ReceiveMessagesRequest, pb.ReceiveMessagesResponse]"
_log = logging.getLogger("gumbelcast.encoder")


class DecoderLink:
    """One decoder of one session, as the encoder sees it.

    The link asks the decoder which message it waits for, and goes on from there: with the newest batches from
    memory, with older ones from the journal, of which it holds a bounded number. A lost decoder is tried again at
    once for ``patience`` seconds; after that, or when it refuses, it is given up, and asked again every two
    seconds, or ever more rarely where one side does not trust the other. Nobody waits for it: the journal keeps what
    it lacks.

    Attributes:
        ready: whether the decoder holds the session and takes batches.
        reason: why not.
        position: number after the last message that it has acknowledged, as far as this encoder knows.
    """

    def __init__(
        self,
        index: int,
        address: str,
        session: Session,
        wire: WireSession,
        patience: float,
        security: Security = PLAIN,
    ) -> None:
        self.index = index
        self.address = address
        self.ready = False
        self.reason = "not connected yet"
        self.position = 0
        self._session = session
        self._wire = wire
        self._patience = patience
        self._given_up = False
        self._losses = 0
        self._ahead: deque[Batch] = deque()
        self._wake = asyncio.Event()
        self._moved = asyncio.Event()
        self._security = security
        self._material = security.material()
        self._channel = open_channel(address, security)
        self._stub = DecoderServiceStub(self._channel)
        self._task: asyncio.Task[None] | None = None

    async def open(self, oldest_message: int) -> int:
        """Open the session at the decoder, waiting for it; returns the message number it waits for.

        Raises:
            DecoderRefused: the decoder refuses the session.
            DecoderLost: it cannot be reached within the patience.
        """
        try:
            self.position = await self._open(oldest_message, self._patience, wait=True)
        except (DecoderRefused, DecoderLost) as error:
            self._give_up(str(error))
            raise
        self.ready, self.reason = True, ""
        return self.position

    def start(self, accepted: Accepted) -> None:
        """Begin to deliver; once."""
        accepted.watchers.append(self._wake)
        self._task = asyncio.create_task(self._run(accepted), name=f"decoder {self.index}")

    async def reached(self, message: int) -> None:
        """Wait until every message before a number is acknowledged, or the decoder is given up."""
        while self.position < message and not self._given_up:
            await self._moved.wait()

    async def close(self, *, forget: bool) -> None:
        """Drop the connection; with ``forget`` the decoder closes the session first, if it answers."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        if forget and self.ready:
            try:
                closing = pb.CloseDecoderSessionRequest(session_digest=self._session.digest)
                await self._stub.CloseDecoderSession(closing, timeout=CALL_SECONDS)
            except grpc.aio.AioRpcError as error:
                _log.warning("%s did not close the session: %s", self, error.details())
        await self._channel.close()

    def __str__(self) -> str:
        return f"decoder {self.index} at {self.address}"

    async def _require_trust(self) -> None:
        """Learn what gRPC would not tell, and take certificates that changed since the last connection.

        Raises:
            DecoderDistrusts: one side does not trust the other.
        """
        try:
            await asyncio.to_thread(require_trust, "decoder", self.address, self._security)
        except NotTrusted as error:
            raise DecoderDistrusts(str(error)) from error
        if self._security.material() is not self._material:
            self._material = self._security.material()
            await self._channel.close()
            self._channel = open_channel(self.address, self._security)
            self._stub = DecoderServiceStub(self._channel)

    async def _open(self, oldest_message: int, seconds: float, *, wait: bool) -> int:
        await self._require_trust()
        request = pb.OpenDecoderSessionRequest(session=self._wire, index=self.index, first_message=oldest_message)
        try:
            response = await self._stub.OpenDecoderSession(request, timeout=max(seconds, 0.1), wait_for_ready=wait)
        except grpc.aio.AioRpcError as error:
            raise explained(error, seconds) from error
        if response.next_message > MAX_MESSAGE:
            raise DecoderRefused(f"it waits for message {response.next_message}, which there will never be")
        return int(response.next_message)

    async def _run(self, accepted: Accepted) -> None:
        pause = RETRY_SECONDS
        while True:
            try:
                await self._connect(accepted)
                pause = RETRY_SECONDS
                await self._stream(accepted)
            except DecoderLost as error:
                self._losses += 1
                if self.ready and self._losses < _MAX_LOSSES:
                    _log.warning("%s: %s; trying again for %.0f s", self, error, self._patience)
                else:
                    self._give_up(str(error))
            except DecoderDistrusts as error:
                self._give_up(str(error), answered=True)
                pause = min(2 * pause, _DISTRUST_SECONDS)
            except DecoderRefused as error:
                self._give_up(str(error), answered=True)
            except CodecError as error:
                self._give_up(f"{error.status}: {error}", answered=True)
            self.ready = False
            await asyncio.sleep(pause if self._given_up else _RECONNECT_SECONDS)

    async def _connect(self, accepted: Accepted) -> None:
        """Learn from the decoder which message is due."""
        if self._given_up:
            due = await self._open(accepted.oldest_message, RETRY_SECONDS, wait=False)
        else:
            due = await self._open(accepted.oldest_message, self._patience, wait=True)
        if due > accepted.next_message:
            await accepted.advance(due)
        self.position = due
        self._ahead.clear()
        self._ahead.extend(await accepted.read(due))
        if self._given_up:
            _log.info("%s is back, from message %d on", self, due)
        self.ready, self.reason, self._given_up = True, "", False
        self._tell()

    async def _stream(self, accepted: Accepted) -> None:
        """Write batches and read acknowledgements until the connection or the deadline ends; always raises."""
        metadata = ((SESSION_KEY, self._session.digest),)
        call = self._stub.ReceiveMessages(timeout=STREAM_SECONDS, metadata=metadata)
        sent, under_way = self.position, deque[int]()
        reading = _read(call)
        try:
            while True:
                self._wake.clear()
                while len(under_way) < WINDOW and (batch := await self._take(accepted, sent)) is not None:
                    await call.write(_request(batch))
                    sent = batch.end
                    under_way.append(sent)
                waking: asyncio.Future[Any] = asyncio.ensure_future(self._wake.wait())
                limit = CALL_SECONDS if under_way else None
                # What is new cannot go before something is acknowledged, once the window is full.
                waited = {reading} if len(under_way) == WINDOW else {reading, waking}
                done, _ = await asyncio.wait(waited, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                if not done:
                    raise DecoderRefused(f"no acknowledgement within {CALL_SECONDS:.0f} s")
                if reading not in done:
                    continue
                acknowledgement = reading.result()
                if acknowledgement is grpc.aio.EOF:
                    raise await ended(call)
                self._acknowledge(acknowledgement, under_way)
                reading = _read(call)
        except grpc.aio.AioRpcError as error:
            raise explained(error, STREAM_SECONDS) from error
        except asyncio.InvalidStateError as error:
            raise await ended(call) from error
        finally:
            reading.cancel()
            call.cancel()

    async def _take(self, accepted: Accepted, message: int) -> Batch | None:
        """The batch that begins with a message, None if it is not accepted yet."""
        while self._ahead and self._ahead[0].end <= message:
            self._ahead.popleft()
        if not self._ahead:
            self._ahead.extend(await accepted.read(message))
        if not self._ahead:
            return None
        batch = self._ahead.popleft()
        if batch.first_message < message:
            return batch.starting_at(message, self._session.digest, self._session.bits)
        return batch

    def _acknowledge(self, response: pb.ReceiveMessagesResponse, under_way: deque[int]) -> None:
        if not under_way or response.next_message != under_way[0]:
            expected = under_way[0] if under_way else "nothing"
            raise DecoderRefused(f"it acknowledged up to message {response.next_message}, expected {expected}")
        for failure in response.failures:
            _log.warning("%s could not decode message %d: %s", self, failure.message, failure.reason)
        self._losses = 0
        self.position = under_way.popleft()
        self._tell()

    def _give_up(self, reason: str, *, answered: bool = False) -> None:
        # Attempts to reach it that fail as before are no news; another answer is.
        if not self._given_up or (answered and reason != self.reason):
            _log.error("%s: %s; going on without it until it is back", self, reason)
        self._given_up, self.reason, self.ready = True, reason, False
        self._tell()

    def _tell(self) -> None:
        """Wake whoever waits for this decoder."""
        self._moved.set()
        self._moved = asyncio.Event()


def _request(batch: Batch) -> pb.ReceiveMessagesRequest:
    return pb.ReceiveMessagesRequest(
        first_message=batch.first_message, count=batch.count, payload=batch.payload, checksum=batch.checksum
    )


def _read(call: _Stream) -> asyncio.Future[Any]:
    reading: asyncio.Future[Any] = asyncio.ensure_future(call.read())
    # A failed read that nobody waits for any more is no news: the write has failed as well.
    reading.add_done_callback(lambda done: done.cancelled() or done.exception())
    return reading
