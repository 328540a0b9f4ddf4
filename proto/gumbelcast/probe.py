"""Ask an address whether it trusts us and we trust it, before gRPC does: gRPC only says that there is no connection."""

from __future__ import annotations

import contextlib
import socket
import ssl

from gumbelcast.security import Security

PROBE_SECONDS = 2.0
"""Bound on one question; whoever is slower is left to gRPC."""

# What an HTTP/2 client says first.
_GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
_TLS_HANDSHAKE = b"\x16"
_TRIES = 2


class NotTrusted(ConnectionError):
    """One side does not accept the other's certificate, or only one of them uses TLS."""


def require_trust(peer: str, address: str, security: Security) -> None:
    """Connect once, like gRPC will, and learn what it would not tell; blocks for some seconds at most.

    Says nothing where nobody answers: whether to wait for a peer is the caller's business.

    Args:
        peer: who is at the address, for the error.
        address: ``host:port``.
        security: of this program.

    Raises:
        NotTrusted: a connection cannot work as things are.
        ValueError: the address needs certificates that ``security`` does not have.
    """
    security.require("address", address)
    for _ in range(_TRIES):  # once more, since a peer that is just stopping closes connections too
        if (reason := _ask(address, security)) is None:
            return
    raise NotTrusted(f"{peer} at {address}: {reason}")


def _ask(address: str, security: Security) -> str | None:
    if (connection := _connect(address)) is None:
        return None
    with connection:
        if not security.encrypted:
            # Closed without a word: either it is stopping, or it took the greeting for a bad TLS handshake.
            wants_tls = _greet(connection) == b"" and _speaks_tls(address)
            return "it wants TLS, and this program has no certificates" if wants_tls else None
        host = address.rpartition(":")[0].strip("[]")
        try:
            encrypted = security.material().client_context.wrap_socket(connection, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            return f"its certificate is not trusted: {error.verify_message}"
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return None
        except ssl.SSLError as error:
            return f"TLS is impossible: {(error.reason or str(error)).replace('_', ' ').lower()}"
        except OSError:
            return None
        with encrypted:
            # A server that trusts its client says something at once; another has closed the connection.
            if _greet(encrypted) != b"":
                return None
            return "it refused " + ("the certificate of this program" if security.has_certificate else
                                    "a client without a certificate")  # fmt: skip


def _connect(address: str) -> socket.socket | None:
    host, _, port = address.rpartition(":")
    try:
        return socket.create_connection((host.strip("[]"), int(port)), PROBE_SECONDS)
    except (OSError, ValueError):
        return None


def _greet(connection: socket.socket) -> bytes | None:
    """The first bytes of the answer: none where the connection was closed, None where nothing came in time."""
    try:
        connection.sendall(_GREETING)
        return connection.recv(9)
    except TimeoutError:
        return None
    except OSError:
        return b""


def _speaks_tls(address: str) -> bool:
    """Whether the first words of TLS are answered with TLS; the rest is not said, so that nobody logs a refusal."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    if (connection := _connect(address)) is None:
        return False
    with connection, contextlib.suppress(OSError):
        connection.sendall(outgoing.read())
        return connection.recv(1) == _TLS_HANDSHAKE
    return False
