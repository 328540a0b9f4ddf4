"""Deliver message batches to one decoder: in order, acknowledged, again after a lost connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import grpc
import grpc.aio

from gumbelcast.probe import NotTrusted, require_trust
from gumbelcast.security import PLAIN, Security
from gumbelcast.transport import CALL_SECONDS, SESSION_KEY, STREAM_SECONDS, open_channel
from gumbelcast.v1 import decoder_pb2 as pb
from gumbelcast.v1.decoder_pb2_grpc import DecoderServiceStub
from gumbelcast.v1.session_pb2 import Session

WINDOW = 4
"""Batches on their way to one decoder without an acknowledgement."""

RETRY_SECONDS = 2.0
"""Pause between attempts to reach a decoder that was given up."""

_RECONNECT_SECONDS = 0.1
_MAX_LOSSES = 5
"""Connections lost one after another without an acknowledgement before a decoder is given up."""

_CONNECTION_LOST = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    # What gRPC's core says when a connection breaks in the middle of a write.
    grpc.StatusCode.INTERNAL,
}
_Stream: TypeAlias = "grpc.aio.StreamStreamCall[pb.ReceiveMessagesRequest, pb.ReceiveMessagesResponse]"
_log = logging.getLogger("gumbelcast.encoder")


class DecoderRefused(Exception):
    """A decoder answered, and said no."""


class DecoderLost(Exception):
    """A decoder does not answer."""


@dataclass
class _Pending:
    request: pb.ReceiveMessagesRequest
    done: asyncio.Future[str] = field(default_factory=lambda: asyncio.get_running_loop().create_future())

    @property
    def end(self) -> int:
        return self.request.first_message + self.request.count

    def settle(self, reason: str) -> None:
        if not self.done.done():
            self.done.set_result(reason)


class DecoderLink:
    """One decoder of one session, as the encoder sees it.

    A link that loses its decoder keeps unacknowledged batches and tries again for ``patience`` seconds.
    After that, or when the decoder refuses, the batches are reported with the reason, later ones fail at
    once so that the other decoders go on, and the decoder rejoins at the next message once it answers.

    Attributes:
        ready: whether the decoder holds the session and takes batches.
        reason: why not.
    """

    def __init__(self, index: int, address: str, session: Session, patience: float, security: Security = PLAIN) -> None:
        self.index = index
        self.address = address
        self.ready = False
        self.reason = "not connected yet"
        self._session = session
        self._patience = patience
        self._given_up = False
        self._losses = 0
        self._next_message = 0
        self._pending: deque[_Pending] = deque()
        self._wake = asyncio.Event()
        self._security = security
        self._material = security.material()
        self._channel = open_channel(address, security)
        self._stub = DecoderServiceStub(self._channel)
        self._task: asyncio.Task[None] | None = None

    async def open(self, first_message: int) -> int:
        """Open the session at the decoder, waiting for it; returns the message number it waits for.

        Raises:
            DecoderRefused: the decoder refuses the session.
            DecoderLost: it cannot be reached within the patience.
        """
        self._next_message = first_message
        try:
            due = await self._open(first_message, self._patience, wait=True)
        except (DecoderRefused, DecoderLost) as error:
            self._give_up(str(error))
            raise
        self.ready, self.reason = True, ""
        return due

    def start(self, first_message: int) -> None:
        """Begin to take batches, the first with number ``first_message``; once, after :meth:`open`."""
        self._next_message = first_message
        self._task = asyncio.create_task(self._run(), name=f"decoder {self.index}")

    def deliver(self, request: pb.ReceiveMessagesRequest) -> asyncio.Future[str]:
        """Queue a batch; the result is an empty string once it is acknowledged, or why it was not."""
        pending = _Pending(request)
        self._next_message = pending.end
        if self._given_up:
            pending.settle(self.reason)
        else:
            self._pending.append(pending)
            self._wake.set()
        return pending.done

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
        self._settle_all("the session was closed")
        await self._channel.close()

    def __str__(self) -> str:
        return f"decoder {self.index} at {self.address}"

    async def _require_trust(self) -> None:
        """Learn what gRPC would not tell, and take certificates that changed since the last connection.

        Raises:
            DecoderRefused: one side does not trust the other.
        """
        try:
            await asyncio.to_thread(require_trust, "decoder", self.address, self._security)
        except NotTrusted as error:
            raise DecoderRefused(str(error)) from error
        if self._security.material() is not self._material:
            self._material = self._security.material()
            await self._channel.close()
            self._channel = open_channel(self.address, self._security)
            self._stub = DecoderServiceStub(self._channel)

    async def _open(self, first_message: int, seconds: float, *, wait: bool) -> int:
        await self._require_trust()
        request = pb.OpenDecoderSessionRequest(session=self._session, index=self.index, first_message=first_message)
        try:
            response = await self._stub.OpenDecoderSession(request, timeout=max(seconds, 0.1), wait_for_ready=wait)
        except grpc.aio.AioRpcError as error:
            raise _explain(error, seconds) from error
        return int(response.next_message)

    async def _run(self) -> None:
        while True:
            try:
                await self._connect()
                await self._stream()
            except DecoderLost as error:
                self._losses += 1
                if self.ready and self._losses < _MAX_LOSSES:
                    _log.warning("%s: %s; trying again for %.0f s", self, error, self._patience)
                else:
                    self._give_up(str(error))
            except DecoderRefused as error:
                self._give_up(str(error))
            self.ready = False
            await asyncio.sleep(RETRY_SECONDS if self._given_up else _RECONNECT_SECONDS)

    async def _connect(self) -> None:
        """Agree with the decoder on the next message, and settle what it already has."""
        while True:
            first = self._pending[0].request.first_message if self._pending else self._next_message
            if self._given_up:
                due = await self._open(first, RETRY_SECONDS, wait=False)
            else:
                due = await self._open(first, self._patience, wait=True)
            while self._pending and self._pending[0].end <= due:
                self._pending.popleft().settle("")
            expected = self._pending[0].request.first_message if self._pending else self._next_message
            # While a given-up decoder was asked, messages may have gone on without it: ask again.
            if expected > due and self._given_up:
                continue
            if expected != due:
                raise DecoderRefused(f"it waits for message {due}, the encoder is at {expected}")
            break
        if self._given_up:
            _log.info("%s is back, from message %d on", self, due)
        self.ready, self.reason, self._given_up = True, "", False

    async def _stream(self) -> None:
        """Write batches and read acknowledgements until the connection or the deadline ends; always raises."""
        metadata = ((SESSION_KEY, self._session.digest),)
        call = self._stub.ReceiveMessages(timeout=STREAM_SECONDS, metadata=metadata)
        written = 0
        reading = _read(call)
        try:
            while True:
                while written < min(len(self._pending), WINDOW):
                    await call.write(self._pending[written].request)
                    written += 1
                self._wake.clear()
                waking: asyncio.Future[Any] = asyncio.ensure_future(self._wake.wait())
                limit = CALL_SECONDS if written else None
                done, _ = await asyncio.wait({reading, waking}, timeout=limit, return_when=asyncio.FIRST_COMPLETED)
                waking.cancel()
                if not done:
                    raise DecoderRefused(f"no acknowledgement within {CALL_SECONDS:.0f} s")
                if reading not in done:
                    continue
                acknowledgement = reading.result()
                if acknowledgement is grpc.aio.EOF:
                    raise await _ended(call)
                self._acknowledge(acknowledgement)
                written -= 1
                reading = _read(call)
        except grpc.aio.AioRpcError as error:
            raise _explain(error, STREAM_SECONDS) from error
        except asyncio.InvalidStateError as error:
            raise await _ended(call) from error
        finally:
            reading.cancel()
            call.cancel()

    def _acknowledge(self, response: pb.ReceiveMessagesResponse) -> None:
        head = self._pending[0]
        if response.next_message != head.end:
            raise DecoderRefused(f"it acknowledged up to message {response.next_message}, expected {head.end}")
        for failure in response.failures:
            _log.warning("%s could not decode message %d: %s", self, failure.message, failure.reason)
        self._losses = 0
        self._pending.popleft().settle("")

    def _give_up(self, reason: str) -> None:
        if not self._given_up:
            _log.error("%s: %s; going on without it", self, reason)
        self._given_up, self.reason, self.ready = True, reason, False
        self._settle_all(reason)

    def _settle_all(self, reason: str) -> None:
        while self._pending:
            self._pending.popleft().settle(reason)


def _explain(error: grpc.aio.AioRpcError, seconds: float) -> DecoderLost | DecoderRefused:
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DecoderLost(f"no answer within {seconds:g} s")
    if error.code() in _CONNECTION_LOST:
        return DecoderLost(f"no connection ({error.details()})")
    return DecoderRefused(f"refused, {error.code().name}: {error.details()}")


def _read(call: _Stream) -> asyncio.Future[Any]:
    reading: asyncio.Future[Any] = asyncio.ensure_future(call.read())
    # A failed read that nobody waits for any more is no news: the write has failed as well.
    reading.add_done_callback(lambda done: done.cancelled() or done.exception())
    return reading


async def _ended(call: _Stream) -> DecoderLost | DecoderRefused:
    """Why a stream ended, from its status."""
    code, details = await call.code(), await call.details()
    if code in _CONNECTION_LOST or code is grpc.StatusCode.OK:
        return DecoderLost(f"the stream ended ({details or code.name})")
    return DecoderRefused(f"refused, {code.name}: {details}")
