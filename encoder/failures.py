"""Why a decoder has no messages: it refused, or it does not answer."""

from __future__ import annotations

import grpc
import grpc.aio

CONNECTION_LOST = {
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    # What gRPC's core says when a connection breaks in the middle of a write.
    grpc.StatusCode.INTERNAL,
    # The batch did not arrive as it was sent: it is sent again.
    grpc.StatusCode.DATA_LOSS,
}
"""Statuses after which a message is tried again."""


class DecoderRefused(Exception):
    """A decoder answered, and said no."""


class DecoderDistrusts(DecoderRefused):
    """A decoder does not let this encoder in, or this encoder does not trust it."""


class DecoderLost(Exception):
    """A decoder does not answer."""


def explained(error: grpc.aio.AioRpcError, seconds: float) -> DecoderLost | DecoderRefused:
    """What a failed call that had ``seconds`` says."""
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DecoderLost(f"no answer within {seconds:g} s")
    if error.code() in CONNECTION_LOST:
        return DecoderLost(f"no connection ({error.details()})")
    kind = DecoderDistrusts if error.code() is grpc.StatusCode.PERMISSION_DENIED else DecoderRefused
    return kind(f"refused, {error.code().name}: {error.details()}")


async def ended(call: grpc.aio.Call) -> DecoderLost | DecoderRefused:
    """Why a stream ended, from its status."""
    code, details = await call.code(), await call.details()
    if code in CONNECTION_LOST or code is grpc.StatusCode.OK:
        return DecoderLost(f"the stream ended ({details or code.name})")
    return DecoderRefused(f"refused, {code.name}: {details}")
