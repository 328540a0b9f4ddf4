"""EncoderService: sources in from their owner, messages out to the K decoders, over gRPC."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import grpc
from google.protobuf.message import DecodeError

from encoder.accepted import JournalWriter
from encoder.broadcast import WINDOW, DecoderLink
from encoder.codec import EncodedBatch, Encoder
from encoder.journal import Batch, Journal
from encoder.journal_file import JournalDamaged
from encoder.model import EncoderModel, Floats
from encoder.open_session import EncoderSession, NoDecoders, connect
from encoder.status import readings, status
from gumbelcast import convert
from gumbelcast.channels import MAX_BATCH
from gumbelcast.metrics import Metrics, timed
from gumbelcast.security import PLAIN, Gate, Security, client_of, require_room
from gumbelcast.transport import Service, refusing, refusing_stream, until
from gumbelcast.v1 import encoder_pb2 as pb
from gumbelcast.v1 import encoder_pb2_grpc
from gumbelcast.v1.session_pb2 import Session as WireSession
from gumbelcast.v1.session_pb2 import Tensor
from shared_rng import CodecError, SequenceError, Session, SessionMismatch

NAME = pb.DESCRIPTOR.services_by_name["EncoderService"].full_name
MAX_SESSIONS = 256
"""Open sessions."""
MAX_CLIENT_SESSIONS = 64
"""Thereof of one client."""

MAX_WAIT_SECONDS = 600.0
"""Bound on one wait for deliveries."""

_DRAIN_SECONDS = 20.0
"""How long closing waits for decoders that still lack messages."""

_T = TypeVar("_T")
_log = logging.getLogger("gumbelcast.encoder")


class EncoderService(Service, encoder_pb2_grpc.EncoderServiceServicer):
    """Answers the calls of ``encoder.proto``; numeric work runs in one thread beside the event loop."""

    def __init__(
        self,
        model: EncoderModel,
        decoder_addresses: Sequence[str],
        journal: Journal,
        *,
        patience: float,
        search: int = 0,
        pre_shared_seed: int | None = None,
        security: Security = PLAIN,
        clients: Sequence[str] = (),
        metrics: Metrics | None = None,
    ) -> None:
        """Serve one model to some decoders.

        Args:
            model: the encoder's half of the model.
            decoder_addresses: ``host:port`` of each, in the order of k.
            journal: keeps what is accepted; this service closes it.
            patience: seconds to wait for a missing decoder.
            search: nodes of a searching encoder, or 0.
            pre_shared_seed: what sessions are opened with where their seed does not travel.
            security: of the links to the decoders.
            clients: names of certificates that may feed this encoder; without any, all may.
            metrics: what it counts.
        """
        gate = Gate(dict.fromkeys(("OpenSession", "Encode", "AwaitDelivery", "CloseSession"), clients))
        super().__init__(gate, metrics or Metrics("encode"))
        self.metrics.read = lambda: readings(self._sessions, self._journal.waiting)
        self._model = model
        self._addresses = list(decoder_addresses)
        self._patience = patience
        self._search = search
        self._seed = pre_shared_seed
        self._security = security
        self._sessions: dict[bytes, EncoderSession] = {}
        self._owners: dict[bytes, str] = {}
        self._opening: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="encode")
        self._journal = JournalWriter(journal)

    async def begin(self) -> None:
        """Go on with the sessions in the journal: decoders get what they lack; once, before the first call.

        Raises:
            CodecError: a session of the journal cannot be served by this encoder; or the journal cannot be read.
        """
        for stored in await self._journal.call(Journal.sessions):
            try:
                wire = WireSession.FromString(stored.wire)
                session, encoder = await self._understand(wire)
                if session.digest != stored.digest:
                    raise SessionMismatch("digest", stored.digest.hex(), session.digest.hex())
            except CodecError as error:
                operand = f"session {stored.digest.hex()[:16]} of the journal, {error.operand}"
                raise type(error)(operand, error.given, error.expected) from error
            except DecodeError as error:
                operand = f"session {stored.digest.hex()[:16]} of the journal"
                raise JournalDamaged(operand, str(error), "a session as it came") from error
            accepted = await self._journal.accepted(stored)
            self._sessions[stored.digest] = EncoderSession(encoder, self._links(session, wire), accepted)
            _log.info("session %s goes on at message %d", stored.digest.hex()[:16], stored.next_message)
        self._journal.start()

    async def close(self) -> None:
        """Deliver what connected decoders still lack, for a bounded time, and stop; decoders keep their sessions."""
        states = list(self._sessions.values())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                ready = [(link, state.accepted.committed) for state in states for link in state.links if link.ready]
                await asyncio.gather(*(link.reached(message) for link, message in ready))
        await asyncio.gather(*(link.close(forget=False) for state in states for link in state.links))
        await self._journal.close()
        self._worker.shutdown()

    async def _understand(self, wire: WireSession) -> tuple[Session, Encoder]:
        """A session from the wire or the journal, and the encoder for it."""
        session = await self._work(
            Session.from_wire_fields, convert.from_session(wire), self._seed, self._model.latent_dimension
        )
        session.require_affordable()
        if session.decoders > len(self._addresses):
            raise CodecError("decoders", session.decoders, f"at most {len(self._addresses)}, those of this encoder")
        return session, Encoder(session, self._model, self._search)

    def _links(self, session: Session, wire: WireSession) -> list[DecoderLink]:
        addresses = self._addresses[: session.decoders]
        return [
            DecoderLink(k, address, session, wire, self._patience, self._security)
            for k, address in enumerate(addresses)
        ]

    async def _work(self, function: Callable[..., _T], *arguments: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, function, *arguments)

    def _session(self, digest: bytes) -> EncoderSession:
        try:
            return self._sessions[digest]
        except KeyError:
            given = digest.hex() or "nothing"
            raise SessionMismatch("session_digest", given, f"one of {len(self._sessions)} open sessions") from None

    def _require_open(self, state: EncoderSession) -> None:
        digest = state.accepted.stored.digest
        if self._sessions.get(digest) is not state:
            raise SessionMismatch("session_digest", digest.hex(), "a session that was not closed meanwhile")

    @refusing(CodecError)
    async def OpenSession(self, request: pb.OpenSessionRequest, context: Any) -> pb.OpenSessionResponse:
        """See ``encoder.proto``."""
        session, encoder = await self._understand(request.session)
        async with self._opening.setdefault(session.digest, asyncio.Lock()):
            state = self._sessions.get(session.digest)
            if state is None:
                owner = client_of(context)
                self._require_room(owner)
                state = await self._open(session, request.session, encoder, context)
                self._sessions[session.digest] = state
                self._owners[session.digest] = owner
                name = session.digest.hex()[:16]
                _log.info("session %s open with %d decoders", name, session.decoders, extra={"session": name})
        return pb.OpenSessionResponse(next_message=state.accepted.next_message, decoders=state.states())

    def _require_room(self, owner: str) -> None:
        owners = [self._owners.get(digest) for digest in self._sessions]
        require_room(owners, owner, MAX_SESSIONS, MAX_CLIENT_SESSIONS)

    async def _open(self, session: Session, wire: WireSession, encoder: Encoder, context: Any) -> EncoderSession:
        """Begin a session, or go on with one that was closed."""
        known = await self._journal.call(Journal.next_message, session.digest)
        links = self._links(session, wire)
        try:
            # Message numbers go on where the furthest decoder stands: no randomness serves two sources.
            furthest = await connect(links, known, self._patience)
            stored = await self._journal.call(
                Journal.put_session, session.digest, wire.SerializeToString(), max(known, furthest)
            )
            accepted = await self._journal.accepted(stored)
        except BaseException as error:
            await asyncio.gather(*(link.close(forget=False) for link in links))
            if isinstance(error, NoDecoders):
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"no decoder took the session: {error}")
            raise
        return EncoderSession(encoder, links, accepted)

    @refusing_stream(CodecError)
    async def Encode(self, requests: AsyncIterator[pb.EncodeRequest], context: Any) -> AsyncIterator[pb.EncodeResponse]:
        """See ``encoder.proto``. Reading goes on while earlier batches are on their way into the journal."""
        accepted: asyncio.Queue[asyncio.Future[pb.EncodeResponse]] = asyncio.Queue(WINDOW)
        reading = asyncio.create_task(self._read(requests, accepted))
        taking: asyncio.Future[asyncio.Future[pb.EncodeResponse]] | None = None
        try:
            while True:
                taking = asyncio.ensure_future(accepted.get())
                await asyncio.wait({taking, reading}, return_when=asyncio.FIRST_COMPLETED)
                if not taking.done():
                    break
                yield await taking.result()
            await reading
        finally:
            reading.cancel()
            if taking is not None:
                taking.cancel()
        if self.stopping.is_set():
            await context.abort(grpc.StatusCode.UNAVAILABLE, "encoder is stopping; what was answered is accepted")

    async def _read(
        self, requests: AsyncIterator[pb.EncodeRequest], accepted: asyncio.Queue[asyncio.Future[pb.EncodeResponse]]
    ) -> None:
        """Encode requests in order and queue the answers-to-be; a full queue holds the reading back."""
        async for request in until(self.stopping, requests):
            state = self._session(request.session_digest)
            sources = convert.from_tensor(request.sources)
            if sources.ndim and len(sources) > MAX_BATCH:
                raise CodecError("sources", f"{len(sources)} messages", f"at most {MAX_BATCH} a batch")
            await accepted.put(await self._accept(state, request, sources))

    async def _accept(
        self, state: EncoderSession, request: pb.EncodeRequest, sources: Floats
    ) -> asyncio.Future[pb.EncodeResponse]:
        """Encode a batch and hand it to the journal; the result is the answer once it is kept."""
        source = await self._work(_digest, request.sources)
        first, count = request.first_message, len(sources) if sources.ndim else 0
        async with state.order:
            self._require_open(state)
            due = state.accepted.next_message
            if first < due and count and await state.accepted.holds(first, count, source):
                return _future(state.again(first, count))
            if first != due:
                raise SequenceError("first_message", first, due)
            encoded, seconds = await self._work(timed, state.encoder.encode, sources, first)
            bits = state.encoder.session.bits
            self.metrics.count(len(encoded.labels), bits, len(encoded.payload), seconds)
            batch = Batch.of(state.accepted.stored.digest, first, len(encoded.labels), encoded.payload)
            kept = state.accepted.append(batch, source)
        return _future(_answer(kept, encoded))

    @refusing(CodecError)
    async def AwaitDelivery(self, request: pb.AwaitDeliveryRequest, context: Any) -> pb.AwaitDeliveryResponse:
        """See ``encoder.proto``."""
        state = self._session(request.session_digest)
        if not 0.0 <= request.seconds <= MAX_WAIT_SECONDS:
            raise CodecError("seconds", request.seconds, f"0 … {MAX_WAIT_SECONDS:g}")
        if request.message > state.accepted.next_message:
            raise SequenceError("message", request.message, f"at most {state.accepted.next_message}, the next one")
        await state.delivered(request.message, request.seconds)
        return pb.AwaitDeliveryResponse(decoders=state.states())

    @refusing(CodecError)
    async def CloseSession(self, request: pb.CloseSessionRequest, context: Any) -> pb.CloseSessionResponse:
        """See ``encoder.proto``."""
        state = self._session(request.session_digest)
        await state.delivered(state.accepted.next_message, _DRAIN_SECONDS)
        async with state.order:
            self._require_open(state)
            del self._sessions[request.session_digest]
            self._owners.pop(request.session_digest, None)
            await self._journal.forget(state.accepted)
        for lacking in (link for link in state.links if link.position < state.accepted.committed):
            _log.warning("%s: closed without messages from %d on", lacking, lacking.position)
        await asyncio.gather(*(link.close(forget=True) for link in state.links))
        return pb.CloseSessionResponse()

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:
        """See ``encoder.proto``."""
        return status(self._model, self._addresses, self._sessions)


def _digest(sources: Tensor) -> bytes:
    """SHA-256 of a batch of sources, by which it is known when it comes again."""
    return hashlib.sha256(sources.SerializeToString(deterministic=True)).digest()


def _future(answer: Coroutine[Any, Any, pb.EncodeResponse]) -> asyncio.Future[pb.EncodeResponse]:
    """An answer on its way; whoever asked may go before it fails."""
    future = asyncio.ensure_future(answer)
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    return future


async def _answer(kept: asyncio.Future[None], encoded: EncodedBatch) -> pb.EncodeResponse:
    await kept
    return pb.EncodeResponse(
        first_message=encoded.first_message,
        count=len(encoded.labels),
        payload_bytes=len(encoded.payload),
        picks=encoded.picks.tolist(),
    )
