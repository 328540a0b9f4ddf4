"""EncoderService: sources in from their owner, messages out to the K decoders, over gRPC."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import grpc

from encoder.broadcast import WINDOW, DecoderLink, DecoderLost, DecoderRefused
from encoder.codec import EncodedBatch, Encoder
from encoder.gaussian import GaussianEncoderModel
from encoder.model import AlphabetModel, EncoderModel
from gumbelcast import convert
from gumbelcast.security import PLAIN, Gate, Security
from gumbelcast.transport import Service, refusing, refusing_stream, until
from gumbelcast.v1 import encoder_pb2 as pb
from gumbelcast.v1 import encoder_pb2_grpc
from gumbelcast.v1.decoder_pb2 import ReceiveMessagesRequest
from shared_rng import CodecError, SequenceError, Session, SessionMismatch
from shared_rng.session import PROTOCOL_VERSION

NAME = pb.DESCRIPTOR.services_by_name["EncoderService"].full_name
MAX_BATCH = 4096
"""Messages a batch; more would outlast the time in which a decoder must acknowledge one."""

_REPORT_SECONDS = 3.0

_T = TypeVar("_T")
_log = logging.getLogger("gumbelcast.encoder")


class EncoderSession:
    """One open session: the codec, the links to its decoders and the number of the next message."""

    def __init__(self, encoder: Encoder, links: list[DecoderLink]) -> None:
        self.encoder = encoder
        self.links = links
        self.next_message = 0
        self.order = asyncio.Lock()

    async def connect(self, patience: float) -> None:
        """Open the session at every decoder; tell the log every few seconds who is missing.

        Raises:
            NoDecoders: none is left.
        """
        opening = {asyncio.ensure_future(link.open(0)): link for link in self.links}
        waiting, waited = set(opening), 0.0
        while waiting:
            _, waiting = await asyncio.wait(waiting, timeout=_REPORT_SECONDS)
            waited += _REPORT_SECONDS
            for task in waiting:
                _log.warning("waiting for %s (%.0f s of %.0f s)", opening[task], waited, patience)
        due = {}
        for task, link in opening.items():
            try:
                due[link] = task.result()
            except (DecoderLost, DecoderRefused) as error:
                _log.error("%s: %s", link, error)
        if not due:
            raise NoDecoders("; ".join(f"{link}: {link.reason}" for link in self.links))
        # Message numbers go on where the furthest decoder stands: no randomness serves two sources.
        self.next_message = max(due.values())
        for link in self.links:
            link.start(self.next_message)

    def states(self) -> list[pb.DecoderState]:
        """The decoders, for the wire."""
        return [
            pb.DecoderState(index=link.index, address=link.address, ready=link.ready, reason=link.reason)
            for link in self.links
        ]


class NoDecoders(Exception):
    """No decoder took the session."""


class EncoderService(Service, encoder_pb2_grpc.EncoderServiceServicer):
    """Answers the calls of ``encoder.proto``; numeric work runs in one thread beside the event loop."""

    def __init__(
        self,
        model: EncoderModel,
        decoder_addresses: Sequence[str],
        *,
        patience: float,
        search: int = 0,
        pre_shared_seed: int | None = None,
        security: Security = PLAIN,
        clients: Sequence[str] = (),
    ) -> None:
        """Serve one model to some decoders.

        Args:
            model: the encoder's half of the model.
            decoder_addresses: ``host:port`` of each, in the order of k.
            patience: seconds to wait for a missing decoder.
            search: nodes of a searching encoder, or 0.
            pre_shared_seed: what sessions are opened with where their seed does not travel.
            security: of the links to the decoders.
            clients: names of certificates that may feed this encoder; without any, all may.
        """
        super().__init__(Gate(dict.fromkeys(("OpenSession", "Encode", "CloseSession"), clients)))
        self._model = model
        self._addresses = list(decoder_addresses)
        self._patience = patience
        self._search = search
        self._seed = pre_shared_seed
        self._security = security
        self._sessions: dict[bytes, EncoderSession] = {}
        self._opening: WeakValueDictionary[bytes, asyncio.Lock] = WeakValueDictionary()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="encode")

    async def close(self) -> None:
        """Drop the connections to the decoders, which keep their sessions, and stop the worker thread."""
        for state in self._sessions.values():
            await asyncio.gather(*(link.close(forget=False) for link in state.links))
        self._worker.shutdown()

    async def _work(self, function: Callable[..., _T], *arguments: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, function, *arguments)

    def _session(self, digest: bytes) -> EncoderSession:
        try:
            return self._sessions[digest]
        except KeyError:
            given = digest.hex() or "nothing"
            raise SessionMismatch("session_digest", given, f"one of {len(self._sessions)} open sessions") from None

    @refusing(CodecError)
    async def OpenSession(self, request: pb.OpenSessionRequest, context: Any) -> pb.OpenSessionResponse:
        """See ``encoder.proto``."""
        session = await self._work(
            Session.from_wire_fields, convert.from_session(request.session), self._seed, self._model.latent_dimension
        )
        session.require_affordable()
        if session.decoders > len(self._addresses):
            raise CodecError("decoders", session.decoders, f"at most {len(self._addresses)}, those of this encoder")
        encoder = Encoder(session, self._model, self._search)
        async with self._opening.setdefault(session.digest, asyncio.Lock()):
            state = self._sessions.get(session.digest)
            if state is None:
                addresses = self._addresses[: session.decoders]
                links = [
                    DecoderLink(k, address, request.session, self._patience, self._security)
                    for k, address in enumerate(addresses)
                ]
                state = EncoderSession(encoder, links)
                try:
                    await state.connect(self._patience)
                except NoDecoders as error:
                    await asyncio.gather(*(link.close(forget=False) for link in links))
                    await context.abort(grpc.StatusCode.FAILED_PRECONDITION, f"no decoder took the session: {error}")
                self._sessions[session.digest] = state
                name = session.digest.hex()[:16]
                _log.info("session %s open with %d decoders", name, session.decoders, extra={"session": name})
        return pb.OpenSessionResponse(next_message=state.next_message, decoders=state.states())

    @refusing_stream(CodecError)
    async def Encode(self, requests: AsyncIterator[pb.EncodeRequest], context: Any) -> AsyncIterator[pb.EncodeResponse]:
        """See ``encoder.proto``. Reading goes on while earlier batches wait for acknowledgements."""
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
            await context.abort(grpc.StatusCode.UNAVAILABLE, "encoder is stopping; what was answered is delivered")

    async def _read(
        self, requests: AsyncIterator[pb.EncodeRequest], accepted: asyncio.Queue[asyncio.Future[pb.EncodeResponse]]
    ) -> None:
        """Encode requests in order and queue the answers-to-be; a full queue holds the reading back."""
        async for request in until(self.stopping, requests):
            state = self._session(request.session_digest)
            sources = convert.from_tensor(request.sources)
            if sources.ndim and len(sources) > MAX_BATCH:
                raise CodecError("sources", f"{len(sources)} messages", f"at most {MAX_BATCH} a batch")
            async with state.order:
                if request.first_message != state.next_message:
                    raise SequenceError("first_message", request.first_message, state.next_message)
                batch = await self._work(state.encoder.encode, sources, request.first_message)
                state.next_message += len(batch.labels)
                answer = _broadcast(state.links, batch)
            await accepted.put(answer)

    @refusing(CodecError)
    async def CloseSession(self, request: pb.CloseSessionRequest, context: Any) -> pb.CloseSessionResponse:
        """See ``encoder.proto``."""
        state = self._session(request.session_digest)
        async with state.order:
            del self._sessions[request.session_digest]
        await asyncio.gather(*(link.close(forget=True) for link in state.links))
        return pb.CloseSessionResponse()

    async def GetStatus(self, request: pb.GetStatusRequest, context: Any) -> pb.GetStatusResponse:
        """See ``encoder.proto``."""
        return pb.GetStatusResponse(
            protocol_version=PROTOCOL_VERSION,
            model_digest=self._model.digest,
            latent_dimension=self._model.latent_dimension,
            pool_variance=self._model.pool_variance,
            source_shape=self._model.source_shape,
            side=self._model.side,
            decoder_addresses=self._addresses,
            gaussian=_gaussian_source(self._model),
            codebook=_codebook(self._model),
            sessions=[
                pb.EncoderSessionStatus(session_digest=digest, next_message=state.next_message, decoders=state.states())
                for digest, state in self._sessions.items()
            ],
        )


def _gaussian_source(model: EncoderModel) -> pb.GaussianSource | None:
    if not isinstance(model, GaussianEncoderModel):
        return None
    return pb.GaussianSource(prior_variance=model.prior_variance, side_variance=model.side_variance)


def _codebook(model: EncoderModel) -> pb.Codebook | None:
    if not isinstance(model, AlphabetModel):
        return None
    book = model.codebook
    return pb.Codebook(words=book.words, bins=book.bins, list=book.coupling == "list")


def _broadcast(links: list[DecoderLink], batch: EncodedBatch) -> asyncio.Future[pb.EncodeResponse]:
    """Hand one batch to every link, in order; the result is the answer once all are settled."""
    message = ReceiveMessagesRequest(first_message=batch.first_message, count=len(batch.labels), payload=batch.payload)
    reasons = [link.deliver(message) for link in links]

    async def answer() -> pb.EncodeResponse:
        deliveries = [
            pb.Delivery(index=link.index, acknowledged=not (reason := await waiting), reason=reason)
            for link, waiting in zip(links, reasons, strict=True)
        ]
        return pb.EncodeResponse(
            first_message=batch.first_message,
            count=len(batch.labels),
            payload_bytes=len(batch.payload),
            picks=batch.picks.tolist(),
            deliveries=deliveries,
        )

    return asyncio.ensure_future(answer())
