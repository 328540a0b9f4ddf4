"""Channels to a service, and the limits that both of its ends hold to."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from gumbelcast.security import PLAIN, Security, is_loopback

MESSAGE_LIMIT = 4 * 2**20
"""gRPC's default limit on one received message, in bytes; batches are split below it."""

MAX_BATCH = 4096
"""Messages a batch; more would outlast the time in which a decoder must acknowledge one."""

SESSION_KEY = "gumbelcast-session-bin"
"""Metadata key that names the session of a message stream."""

STREAM_SECONDS = 3600.0
"""Deadline of a stream; whoever needs it longer opens it again."""

CALL_SECONDS = 60.0
"""Deadline of every other call, unless the call waits for something."""

KEEPALIVE_SECONDS = 20.0
"""How long a connection may be silent before it is asked for a sign of life, and how long that may take: the other
host may be gone without a word."""

CONNECT_SECONDS = 10.0
"""How long one attempt to connect may take, TLS included: a link may be slow, or a host too busy to answer at once."""


def _channel_options(address: str) -> list[tuple[str, Any]]:
    options: list[tuple[str, Any]] = [
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", round(CONNECT_SECONDS * 1000)),
        ("grpc.max_reconnect_backoff_ms", 2000),
        ("grpc.keepalive_time_ms", round(KEEPALIVE_SECONDS * 1000)),
        ("grpc.keepalive_timeout_ms", round(KEEPALIVE_SECONDS * 1000)),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    if is_loopback(address):
        # A proxy from the environment would otherwise capture even loopback connections.
        options.append(("grpc.enable_http_proxy", 0))
    return options


def open_channel(address: str, security: Security = PLAIN) -> grpc.aio.Channel:
    """An asynchronous channel, for services.

    Raises:
        ValueError: the address needs certificates that ``security`` does not have.
    """
    security.require("address", address)
    options = _channel_options(address)
    if security.encrypted:
        return grpc.aio.secure_channel(address, security.channel_credentials(), options=options)
    return grpc.aio.insecure_channel(address, options=options)


def open_blocking_channel(address: str, security: Security = PLAIN) -> grpc.Channel:
    """A blocking channel, for clients.

    Raises:
        ValueError: the address needs certificates that ``security`` does not have.
    """
    security.require("address", address)
    options = _channel_options(address)
    if security.encrypted:
        return grpc.secure_channel(address, security.channel_credentials(), options=options)
    return grpc.insecure_channel(address, options=options)


def rows_per_batch(row_bytes: int, wanted: int) -> int:
    """Rows of a tensor that fit into one message, at most ``wanted`` and at least one."""
    return max(1, min(wanted, (MESSAGE_LIMIT - 2**16) // max(1, row_bytes)))
