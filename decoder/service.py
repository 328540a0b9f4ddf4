"""DecoderService: one decoder of any number of sessions, over gRPC."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import grpc
import numpy.typing as npt

from decoder.codec import Decoder
from decoder.model import DecoderModel
from decoder.output import Output
from decoder.store import DecoderSession
from gumbelcast import convert
from gumbelcast.channels import SESSION_KEY, rows_per_batch
from gumbelcast.metrics import Metrics, Reading, timed
from gumbelcast.security import Gate, client_of, require_room
from gumbelcast.transport import Service, refusing, refusing_stream, until
from gumbelcast.v1 import decoder_pb2 as pb
from gumbelcast.v1 import decoder_pb2_grpc
from shared_rng import CodecError, SequenceError, Session, SessionMismatch
from shared_rng.session import PROTOCOL_VERSION

NAME = pb.DESCRIPTOR.services_by_name["DecoderService"].full_name
MAX_SESSIONS = 512
"""Open sessions."""
MAX_CLIENT_SESSIONS = 256
"""Thereof of one client: as many as an encoder has open."""
_READ_ROWS = 1024

_T = TypeVar("_T")
_log = logging.getLogger("gumbelcast.decoder")


class DecoderService(Service, decoder_pb2_grpc.DecoderServiceServicer):
    """Answers the calls of ``decoder.proto``; numeric work runs in one thread beside the event loop."""

    def __init__(
        self,
        model: DecoderModel,
        *,
        pre_shared_seed: int | None = None,
        side_rows: npt.NDArray[Any] | None = None,
        out: Path | None = None,
        start: int | None = None,
        encoders: Sequence[str] = (),
        readers: Sequence[str] = (),
        metrics: Metrics | None = None,
    ) -> None:
        """Serve one model.

        Args:
            model: the decoder's half of the model.
            pre_shared_seed: what sessions are opened with where their seed does not travel.
            side_rows: side information of messages 0, 1, 2 …
            out: folder for reconstructions.
            start: first message to decode, instead of the one after the last in ``out``.
            encoders: names of certificates that may send messages; without any, all may.
            readers: names of certificates that may put side information and read reconstructions; likewise.
            metrics: what it counts.
        """
        sending = dict.fromkeys(("OpenDecoderSession", "ReceiveMessages", "CloseDecoderSession"), encoders)
        gate = Gate(sending | dict.fromkeys(("PutSideInformation", "ReadReconstructions"), readers))
        super().__init__(gate, metrics or Metrics("decode"))
        self.metrics.read = self._readings
        self._model = model
        self._seed = pre_shared_seed
        self._side_rows = side_rows
        self._out = out
        self._start = start
        self._sessions: dict[bytes, DecoderSession] = {}
        self._owners: dict[bytes, str] = {}
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="decode")

    async def close(self) -> None:
        """Stop the worker thread."""
        self._worker.shutdown()

    async def _work(self, function: Callable[..., _T], *arguments: Any) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._worker, function, *arguments)

    def _session(self, digest: bytes) -> DecoderSession:
        try:
            return self._sessions[digest]
        except KeyError:
            given = digest.hex() or "nothing"
            raise SessionMismatch("session_digest", given, f"one of {len(self._sessions)} open sessions") from None

    def _open(self, session: Session, index: int, first_message: int, owner: str) -> DecoderSession:
        state = self._sessions.get(session.digest)
        if state is None:
            require_room(list(self._owners.values()), owner, MAX_SESSIONS, MAX_CLIENT_SESSIONS)
            state = self._begin(Decoder(session, index, self._model), first_message)
            self._sessions[session.digest] = state
            self._owners[session.digest] = owner
            name = session.digest.hex()[:16]
            text = "session %s open as decoder %d, from message %d on"
            _log.info(text, name, index, state.next_message, extra={"session": name})
        elif state.decoder.index != index:
            raise SessionMismatch("decoder index", index, state.decoder.index)
        if state.next_message < first_message:
            raise _gone(state.next_message, first_message)
        return state

    def _begin(self, decoder: Decoder, first_message: int) -> DecoderSession:
        """A session at the message where this decoder stands, or where it is to start."""
        output = None if self._out is None else Output(self._out, decoder.session, decoder.index)
        position = None if output is None else output.position()
        due = max(position or 0, self._start or 0)
        if position is None and self._start is None:
            due = first_message
            if first_message:
                _log.warning("messages before %d are gone from the encoder", first_message)
        if due < first_message:
            raise _gone(due, first_message)
        if position is not None and position < due:
            _log.warning("messages %d … %d are given up", position, due - 1)
        if output is not None and position != due:
            output.keep_position(due)
        return DecoderSession(decoder, due, self._side_rows, output)

    @refusing(CodecError)
    async def OpenDecoderSession(
        self, request: pb.OpenDecoderSessionRequest, context: Any
    ) -> pb.OpenDecoderSessionResponse:
        """See ``decoder.proto``."""
        session = await self._work(
            Session.from_wire_fields, convert.from_session(request.session), self._seed, self._model.latent_dimension
        )
        session.require_affordable()
        # In the worker, so that a batch in flight is finished before its end is told.
        owner = client_of(context)
        state = await self._work(self._open, session, request.index, request.first_message, owner)
        return pb.OpenDecoderSessionResponse(next_message=state.next_message)

    @refusing_stream(CodecError)
    async def ReceiveMessages(
        self, requests: AsyncIterator[pb.ReceiveMessagesRequest], context: Any
    ) -> AsyncIterator[pb.ReceiveMessagesResponse]:
        """See ``decoder.proto``."""
        digest = dict(context.invocation_metadata() or ()).get(SESSION_KEY, b"")
        state = self._session(digest)
        async for request in until(self.stopping, requests):
            due = state.next_message
            failures, seconds = await self._work(
                timed, state.receive, request.first_message, request.count, request.payload, request.checksum
            )
            if request.first_message >= due:
                bits = state.session.bits
                self.metrics.count(request.count - len(failures), bits, len(request.payload), seconds)
                self.metrics.failed.inc(len(failures))
            for message, reason in failures.items():
                fields = {"session": digest.hex()[:16], "message_number": message}
                _log.warning("message %d: %s", message, reason, extra=fields)
            end = request.first_message + request.count
            yield pb.ReceiveMessagesResponse(next_message=end, failures=_failures(failures))
        if self.stopping.is_set():
            reason = f"decoder is stopping; the next message is {state.next_message}"
            await context.abort(grpc.StatusCode.UNAVAILABLE, reason)

    @refusing(CodecError)
    async def PutSideInformation(
        self, request: pb.PutSideInformationRequest, context: Any
    ) -> pb.PutSideInformationResponse:
        """See ``decoder.proto``."""
        state = self._session(request.session_digest)
        rows = convert.from_tensor(request.side_information)
        held = await self._work(state.put_side_information, request.first_message, rows)
        return pb.PutSideInformationResponse(held=held)

    @refusing_stream(CodecError)
    async def ReadReconstructions(
        self, request: pb.ReadReconstructionsRequest, context: Any
    ) -> AsyncIterator[pb.ReadReconstructionsResponse]:
        """See ``decoder.proto``."""
        state = self._session(request.session_digest)
        end = request.first_message + request.count
        if end > state.next_message:
            raise SequenceError("messages to read up to", end - 1, f"{state.next_message - 1} or earlier")
        picks, reconstructions = await self._work(state.read, request.first_message, request.count)
        size = rows_per_batch(reconstructions[0].nbytes, _READ_ROWS)
        for start in range(0, request.count, size):
            first = request.first_message + start
            part = picks[start : start + size]
            messages = range(first, first + len(part))
            yield pb.ReadReconstructionsResponse(
                first_message=first,
                picks=part,
                reconstructions=convert.to_tensor(reconstructions[start : start + size]),
                failures=_failures({m: state.failures[m] for m in messages if m in state.failures}),
            )

    @refusing(CodecError)
    async def CloseDecoderSession(
        self, request: pb.CloseDecoderSessionRequest, context: Any
    ) -> pb.CloseDecoderSessionResponse:
        """See ``decoder.proto``."""
        digest = self._session(request.session_digest).session.digest
        del self._sessions[digest], self._owners[digest]
        return pb.CloseDecoderSessionResponse()

    def _readings(self) -> list[Reading]:
        """For the metrics; from another thread, so of a copy."""
        positions = [((digest.hex()[:16],), float(s.next_message)) for digest, s in self._sessions.copy().items()]
        return [
            Reading("sessions", "Open sessions", (), [((), float(len(positions)))]),
            Reading("next_message", "Number of the message that is due", ("session",), positions),
        ]

    async def GetDecoderStatus(self, request: pb.GetDecoderStatusRequest, context: Any) -> pb.GetDecoderStatusResponse:
        """See ``decoder.proto``."""
        return pb.GetDecoderStatusResponse(
            protocol_version=PROTOCOL_VERSION,
            model_digest=self._model.digest,
            latent_dimension=self._model.latent_dimension,
            pool_variance=self._model.pool_variance,
            side_shape=self._model.side_shape,
            sessions=[
                pb.DecoderSessionStatus(
                    session_digest=digest,
                    index=state.decoder.index,
                    next_message=state.next_message,
                    decoded=state.decoded,
                    failed=state.failed,
                )
                for digest, state in self._sessions.items()
            ],
        )


def _gone(due: int, oldest: int) -> SequenceError:
    given = f"{due}, which is gone from the encoder"
    return SequenceError("message that is due", given, f"{oldest} or later: start this decoder with --start {oldest}")


def _failures(failures: dict[int, str]) -> list[pb.MessageFailure]:
    return [pb.MessageFailure(message=message, reason=reason) for message, reason in failures.items()]
