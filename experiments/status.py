"""What encoders and decoders say of themselves, in one table: sessions, positions, lags, rates, errors."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from gumbelcast.channels import open_blocking_channel
from gumbelcast.probe import NotTrusted, require_trust
from gumbelcast.security import Security
from gumbelcast.v1 import decoder_pb2, encoder_pb2
from gumbelcast.v1.decoder_pb2_grpc import DecoderServiceStub
from gumbelcast.v1.encoder_pb2_grpc import EncoderServiceStub

ANSWER_SECONDS = 5.0
"""Deadline of each question."""

COLUMNS = ("service", "state", "session", "position", "lag", "messages / s", "errors")


@dataclass(frozen=True)
class Line:
    """One session of one service, or a service without any.

    Attributes:
        service: address and role.
        state: of its health, or why there is none.
        session: first digits of the digest, and k at a decoder.
        position: number of the next message.
        lag: messages that decoders lack, by index.
        errors: messages that failed at a decoder, or decoders that an encoder misses.
        notes: what is wrong, in full.
    """

    service: str
    state: str
    session: str = ""
    position: int | None = None
    lag: str = ""
    errors: str = ""
    notes: tuple[str, ...] = ()

    def row(self, rate: str) -> tuple[str, ...]:
        """What stands in the table."""
        position = "" if self.position is None else str(self.position)
        return self.service, self.state, self.session, position, self.lag, rate, self.errors


def ask(address: str, security: Security) -> list[Line]:
    """One service.

    Raises:
        ValueError: the address needs certificates that there are not.
    """
    try:
        require_trust("service", address, security)
        with open_blocking_channel(address, security) as channel:
            health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=ANSWER_SECONDS)
            state = health_pb2.HealthCheckResponse.ServingStatus.Name(health.status).lower().replace("_", " ")
            if health.status != health_pb2.HealthCheckResponse.SERVING:
                return [Line(address, state)]
            for role, question in (("encoder", _encoder), ("decoder", _decoder)):
                try:
                    lines = question(channel, f"{address} ({role})", state)
                except grpc.RpcError as error:
                    if error.code() is not grpc.StatusCode.UNIMPLEMENTED:
                        raise
                else:
                    return lines or [Line(f"{address} ({role})", state)]
    except NotTrusted as error:
        return [Line(address, "not trusted", notes=(str(error),))]
    except grpc.RpcError as error:
        return [Line(address, error.code().name.lower().replace("_", " "), notes=(f"{address}: {error.details()}",))]
    return [Line(address, "neither encoder nor decoder")]


def _encoder(channel: grpc.Channel, service: str, state: str) -> list[Line]:
    answer = EncoderServiceStub(channel).GetStatus(encoder_pb2.GetStatusRequest(), timeout=ANSWER_SECONDS)
    lines = []
    for session in answer.sessions:
        away = [decoder for decoder in session.decoders if not decoder.ready]
        lines.append(
            Line(
                service,
                state,
                session.session_digest.hex()[:16],
                session.next_message,
                ", ".join(str(decoder.lag) for decoder in session.decoders),
                f"{len(away)} decoders away" if away else "",
                tuple(f"{service}: decoder {d.index} at {d.address}: {d.reason}" for d in away),
            )
        )
    return lines


def _decoder(channel: grpc.Channel, service: str, state: str) -> list[Line]:
    request = decoder_pb2.GetDecoderStatusRequest()
    answer = DecoderServiceStub(channel).GetDecoderStatus(request, timeout=ANSWER_SECONDS)
    return [
        Line(
            service,
            state,
            f"{session.session_digest.hex()[:16]}, k = {session.index}",
            session.next_message,
            errors=f"{session.failed} messages failed" if session.failed else "",
        )
        for session in answer.sessions
    ]


def status_rows(
    addresses: Sequence[str], security: Security, seconds: float
) -> tuple[list[tuple[str, ...]], list[str], bool]:
    """Ask every service twice, some seconds apart.

    Returns:
        Rows of :data:`COLUMNS`, what is wrong in full, and whether all are serving.

    Raises:
        ValueError: an address needs certificates that there are not.
    """
    before = {}
    for address in addresses:
        asked = time.monotonic()
        before.update({(line.service, line.session): (line.position, asked) for line in ask(address, security)})
    time.sleep(seconds)
    rows, notes, serving = [], list[str](), True
    for address in addresses:
        asked = time.monotonic()
        for line in ask(address, security):
            position, then = before.get((line.service, line.session), (None, asked))
            known = line.position is not None and position is not None and asked > then
            rate = f"{(line.position - position) / (asked - then):.1f}" if known else ""  # type: ignore[operator]
            rows.append(line.row(rate))
            notes += [note for note in line.notes if note not in notes]
            serving = serving and line.state == "serving"
    return rows, notes, serving
