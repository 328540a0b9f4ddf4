"""Addresses that a service binds."""

from __future__ import annotations

import socket


class BindError(Exception):
    """The address cannot be bound."""


def check_free(bind: str) -> None:
    """Bind an address for a moment: the system's reason is clearer than gRPC's, which logs lines of its own.

    Raises:
        BindError: ``bind`` is no ``host:port``, or it cannot be bound.
    """
    host, _, port = bind.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise BindError(f"bind: got {bind!r}, expected host:port with a port in 0 … 65535")
    try:
        name = host.strip("[]")
        family, kind, number, _, address = socket.getaddrinfo(name, int(port), type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, number) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise BindError(f"cannot bind {bind}: {error.strerror or error}") from error
