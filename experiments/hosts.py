"""Where services under faults run: network namespaces on a switch, or one host behind relays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol

from experiments.fault_relay import FaultyRelays
from experiments.faults import Fault
from experiments.namespaces import Namespaces, NamespacesRefused
from experiments.processes import ServiceProcess, start
from gumbelcast.security import PLAIN, Security

HELD_SECONDS, SLOWED_SECONDS = 2.0, 0.05
"""What every piece of data waits on a link that is held or slowed."""

_PORT = 7000


class Hosts(Protocol):
    """A host a service, decoders first and the encoder last, and links between them that fail.

    Attributes:
        kind: what they are, for the report.
        security: of this process's links to services.
    """

    kind: str
    security: Security

    def start(self, host: int, name: str, module: str, arguments: Sequence[str], log: Path) -> ServiceProcess:
        """Start a service on a host, or start it again where it was; it is not waited for."""
        ...

    def reach(self, host: int, address: str) -> str:
        """The address by which others reach a running service, over a link that can fail; once a service."""
        ...

    def link_faults(self) -> list[Fault]:
        """Every fault of every link."""
        ...


class RelayedHosts:
    """All services on loopback; a relay before each of them can end, hold and slow connections."""

    kind = "one host, TCP relays for links, plain text"
    security = PLAIN

    def __init__(self, stack: ExitStack) -> None:
        """Relays end with the stack."""
        self._stack = stack
        self._addresses: dict[int, str] = {}
        self._relays: dict[int, FaultyRelays] = {}

    def start(self, host: int, name: str, module: str, arguments: Sequence[str], log: Path) -> ServiceProcess:
        """See :meth:`Hosts.start`."""
        return start(name, module, [*arguments, "--bind", self._addresses.get(host, "127.0.0.1:0")], log)

    def reach(self, host: int, address: str) -> str:
        """See :meth:`Hosts.reach`."""
        self._addresses[host] = address
        self._relays[host] = self._stack.enter_context(FaultyRelays([address]))
        return self._relays[host].addresses[0]

    def link_faults(self) -> list[Fault]:
        """See :meth:`Hosts.link_faults`."""
        faults = []
        for host, relays in self._relays.items():
            place, freed = _link_name(host, len(self._relays)), partial(relays.delay, 0, 0.0)
            faults += [
                Fault("connections cut", place, partial(relays.cut, 0), freed),
                Fault("link held", place, partial(relays.delay, 0, HELD_SECONDS), freed),
                Fault("link slowed", place, partial(relays.delay, 0, SLOWED_SECONDS), freed),
            ]
        return faults


class NamespaceHosts:
    """Each service in a network namespace, mutual TLS between them, and lists of names at both roles."""

    def __init__(self, stack: ExitStack, decoders: int, folder: Path) -> None:
        """Make namespaces that end with the stack, and certificates in ``folder``.

        Raises:
            NamespacesRefused: there cannot be namespaces, or certificates.
        """
        try:
            from experiments.certificates import Authority, secured
        except ImportError as error:
            raise NamespacesRefused(f"no package {error.name}") from error
        self._network = stack.enter_context(Namespaces(decoders + 1))
        # A proxy from the environment would not know these addresses.
        stack.enter_context(_variable("no_grpc_proxy", ",".join(map(self._network.address, range(decoders + 1)))))
        self._decoders = decoders
        authority = Authority(folder, "authority")
        roles = dict.fromkeys(range(decoders), "decoder") | {decoders: "encoder"}
        lists = {"decoder": ["--allow-encoder", "encoder"], "encoder": ["--allow-client", "sender"]}
        self._options = {
            host: [
                *authority.sign(role, f"{role}-{host}", host=self._network.address(host)),
                *authority.trusted,
                *lists[role],
            ]
            for host, role in roles.items()
        }
        self.security = secured([*authority.sign("sender"), *authority.trusted])
        self.kind = "network namespaces, mutual TLS" + (
            "" if self._network.can_narrow else ", links cannot be narrowed"
        )

    def start(self, host: int, name: str, module: str, arguments: Sequence[str], log: Path) -> ServiceProcess:
        """See :meth:`Hosts.start`."""
        options = [*arguments, *self._options[host], "--bind", f"{self._network.address(host)}:{_PORT}"]
        return start(name, module, options, log, within=self._network.within(host))

    def reach(self, host: int, address: str) -> str:
        """See :meth:`Hosts.reach`."""
        return address

    def link_faults(self) -> list[Fault]:
        """See :meth:`Hosts.link_faults`."""
        network, faults = self._network, []
        for link in range(self._decoders + 2):
            place = "link of the sender" if link > self._decoders else _link_name(link, self._decoders + 1)
            faults.append(Fault("link cut", place, partial(network.cut, link), partial(network.mend, link)))
            if network.can_narrow:
                widen = partial(network.widen, link)
                faults.append(Fault("link narrowed", place, partial(network.narrow, link), widen))
        return faults


def find_hosts(stack: ExitStack, decoders: int, folder: Path, tell: Callable[[str], None]) -> Hosts:
    """Namespaces where this machine and user can have them, otherwise relays; tells which, and why."""
    try:
        return NamespaceHosts(stack, decoders, folder)
    except NamespacesRefused as error:
        tell(f"no network namespaces: {error}")
        return RelayedHosts(stack)


@contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    """An environment variable of this process and of those that it starts."""
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def _link_name(host: int, services: int) -> str:
    return "link of the encoder" if host == services - 1 else f"link of decoder {host}"
