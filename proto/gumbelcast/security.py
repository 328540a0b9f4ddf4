"""Who may talk to whom: certificates of a program's links, plain text only where that is harmless, lists of names."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import ssl
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import grpc

CALLS_A_CLIENT = 512
"""Calls and streams that one client may have running at a service."""

_log = logging.getLogger("gumbelcast")


class NotLetIn(ValueError):
    """A call that a service does not look at; ``status`` names the gRPC status that it ends with."""

    status: ClassVar[str]


class NotAllowed(NotLetIn):
    """A client is not on the list of those who may make a call."""

    status = "PERMISSION_DENIED"


class TooMany(NotLetIn):
    """A client has more calls or sessions than it may."""

    status = "RESOURCE_EXHAUSTED"


def require_room(owners: Sequence[str | None], owner: str, most: int, most_of_one: int) -> None:
    """Check that ``owner`` may open one more session beside those of ``owners``, None where nobody is known.

    Raises:
        TooMany: there are ``most`` in all, or ``most_of_one`` of this owner.
    """
    if len(owners) >= most:
        raise TooMany(f"open sessions: got one more, expected at most {most}: close one first")
    if owners.count(owner) >= most_of_one:
        raise TooMany(f"open sessions of {owner}: got one more, expected at most {most_of_one}")


@dataclass(frozen=True)
class Material:
    """Contents of certificate files, and a context that has read them, for connections of our own."""

    chain: bytes | None
    key: bytes | None
    authority: bytes | None
    client_context: ssl.SSLContext


class Security:
    """How the links of one program are protected: by certificates, or not at all where that is harmless.

    A program with a certificate shows it to clients and servers alike. A service with an authority demands that
    clients show a certificate of that authority; a client with an authority trusts servers of that authority alone.
    Files are read again once they change: connections made from then on use the new ones.

    Attributes:
        encrypted: whether links use TLS.
        insecure: plain text is accepted on any address.
    """

    def __init__(
        self,
        certificate: Path | None = None,
        key: Path | None = None,
        authority: Path | None = None,
        *,
        insecure: bool = False,
    ) -> None:
        """Read the files.

        Args:
            certificate: PEM file of this program's certificate and those between it and the authority.
            key: PEM file of its private key, without a password.
            authority: PEM file of the certificates that the other side's certificate must come from.
            insecure: accept plain text beyond loopback.

        Raises:
            ValueError: options exclude each other, or a file is none of these.
            OSError: a file cannot be read.
        """
        self._files = certificate, key, authority
        self.insecure = insecure
        self.encrypted = certificate is not None or authority is not None
        if insecure and (self.encrypted or key is not None):
            raise ValueError("--insecure: got certificate options with it, expected one or the other")
        if (certificate is None) != (key is None):
            raise ValueError("--tls-cert and --tls-key: got one of them, expected both or none")
        self._stamp = self._stamps()
        self._material = self._read()

    @property
    def has_certificate(self) -> bool:
        """Whether this program can show a certificate."""
        return self._files[0] is not None

    @property
    def demands_certificates(self) -> bool:
        """Whether a service refuses clients without a certificate."""
        return self._files[2] is not None

    def require(self, operand: str, address: str) -> None:
        """Check that an address may be used with what there is.

        Raises:
            ValueError: it is not on loopback, there are no certificates, and plain text was not asked for.
        """
        if not self.encrypted and not self.insecure and not is_loopback(address):
            expected = "certificates (--tls-cert, --tls-key, --tls-ca), an address on loopback, or --insecure"
            raise ValueError(f"{operand}: got {address} for plain text, expected {expected}")

    def require_service(self, bind: str, lists: Mapping[str, Sequence[str] | None]) -> None:
        """Check that a service can be served on an address, and its lists of names be applied.

        Args:
            bind: ``host:port``.
            lists: option → names that it lets in.

        Raises:
            ValueError: it cannot.
        """
        self.require("--bind", bind)
        if self.encrypted and not self.has_certificate:
            raise ValueError("--tls-ca: got no certificate of the service with it, expected --tls-cert and --tls-key")
        for option, names in lists.items():
            if names and not self.demands_certificates:
                raise ValueError(f"{option}: got names without certificates to find them in, expected --tls-ca")

    def describe(self) -> str:
        """One line for the log of a service."""
        if self.encrypted:
            return "TLS, clients need a certificate" if self.demands_certificates else "TLS, any client"
        return "plain text, anyone on the network can read and write" if self.insecure else "plain text on loopback"

    def material(self) -> Material:
        """What the files hold now; while they cannot be used, what they held before."""
        stamp = self._stamps()
        if stamp != self._stamp:
            self._stamp = stamp
            try:
                self._material = self._read()
                _log.info("certificates were read again")
            except (ValueError, OSError) as error:
                _log.error("changed certificates are not used: %s", error)
        return self._material

    def channel_credentials(self) -> grpc.ChannelCredentials:
        """Credentials of a client, from the files as they are now."""
        now = self.material()
        return grpc.ssl_channel_credentials(now.authority, now.key, now.chain)

    def server_credentials(self) -> grpc.ServerCredentials:
        """Credentials of a service that follow the files."""
        used: list[Material] = []

        def fetch() -> Any:
            now = self.material()
            if used and used[-1] is now:
                return None
            used[:] = [now]
            assert now.key is not None
            assert now.chain is not None
            return grpc.ssl_server_certificate_configuration([(now.key, now.chain)], now.authority)

        return grpc.dynamic_ssl_server_credentials(fetch(), fetch, self.demands_certificates)

    def _stamps(self) -> tuple[object, ...]:
        stamps: list[object] = []
        for path in self._files:
            try:
                found = None if path is None else path.stat()
                stamps.append(found and (found.st_ino, found.st_size, found.st_mtime_ns))
            except OSError as error:
                stamps.append(error.errno)
        return tuple(stamps)

    def _read(self) -> Material:
        certificate, key, authority = self._files
        chain, secret, trusted = (None if path is None else path.read_bytes() for path in self._files)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_alpn_protocols(["h2"])
        try:
            if authority is not None:
                context.load_verify_locations(cafile=authority)
            else:
                context.load_default_certs()
        except ssl.SSLError as error:
            raise ValueError(f"--tls-ca {authority}: got {_reason(error)}, expected certificates in PEM") from error
        try:
            if certificate is not None:
                # Without a password, OpenSSL would ask at the terminal.
                context.load_cert_chain(certificate, key, password="")
        except ssl.SSLError as error:
            expected = "a certificate and its key in PEM, the key without a password"
            raise ValueError(f"--tls-cert {certificate}, --tls-key {key}: got {_reason(error)}, expected {expected}"
                             ) from error  # fmt: skip
        return Material(chain, secret, trusted, context)


PLAIN = Security()
"""Plain text on loopback, and nothing else."""


def _reason(error: ssl.SSLError) -> str:
    return (error.reason or str(error)).replace("_", " ").lower()


def is_loopback(address: str) -> bool:
    """Whether ``host:port`` is this machine and no other."""
    host = address.rpartition(":")[0].strip("[]")
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def client_names(context: Any) -> list[str]:
    """Subject alternative names of the certificate that a client showed."""
    found = context.auth_context().get("x509_subject_alternative_name", ())
    return [name.decode(errors="replace") for name in found]


def client_of(context: Any) -> str:
    """A client, for limits and logs: the first name of its certificate, or its host."""
    names = client_names(context)
    return names[0] if names else str(context.peer()).rpartition(":")[0].partition(":")[2] or "a client"


class Gate:
    """Lets calls in: those of clients on the list of a method, and not too many of one client at once."""

    def __init__(self, allowed: Mapping[str, Sequence[str]] | None = None) -> None:
        """Keep the lists.

        Args:
            allowed: method → names, one of which must be in the certificate; without names, anyone may call.
        """
        self._allowed = {method: frozenset(names) for method, names in (allowed or {}).items()}
        self._running: Counter[str] = Counter()

    @contextlib.contextmanager
    def admit(self, method: str, context: Any) -> Iterator[None]:
        """Around one call.

        Raises:
            NotAllowed: the client is not on the method's list.
            TooMany: the client has too many calls running.
        """
        client, allowed = client_of(context), self._allowed.get(method)
        if allowed and not allowed.intersection(client_names(context)):
            raise NotAllowed(f"{method}: got client {client}, expected one that is on the service's list for it")
        if self._running[client] >= CALLS_A_CLIENT:
            raise TooMany(f"calls of {client}: got one more, expected at most {CALLS_A_CLIENT} at once")
        self._running[client] += 1
        try:
            yield
        finally:
            self._running[client] -= 1
            if not self._running[client]:
                del self._running[client]
