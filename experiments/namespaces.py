"""Hosts of one machine: network namespaces on a switch, whose links can be cut and narrowed. Linux, and root alone.

Every host is a namespace with one Ethernet device. The switch is a bridge in a namespace of its own, and this process
has a link to it as well. All of it is gone once the namespaces are, whose names carry the process that made them:
what a killed process left is swept away by the next one.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

NARROW = ("rate", "64kbit", "burst", "4kb", "latency", "400ms")
"""What a narrowed link carries towards its host."""

_NAMES = Path("/run/netns")
_NAME = re.compile(r"gumbelcast-(\d+)-\w+")
_NETWORKS = "198.18.{}.0/24"
"""Addresses that are for tests of networks (RFC 2544)."""


class NamespacesRefused(RuntimeError):
    """This machine, or this user, cannot have network namespaces."""


class Namespaces:
    """Some hosts and this process on one switch; a context manager.

    Links are numbered as hosts are, and the last one is that of this process.
    """

    def __init__(self, hosts: int) -> None:
        """Hosts 0 … ``hosts`` - 1, at most 250."""
        self._links = hosts + 1
        self._prefix = f"gumbelcast-{os.getpid()}-"
        self._hub = f"{self._prefix}hub"
        self._own = f"gc{os.getpid()}"
        self._network = ""
        self.can_narrow = False
        """Whether the kernel can."""

    def __enter__(self) -> Self:
        """Make them.

        Raises:
            NamespacesRefused: it is not allowed, or something for it is missing.
        """
        try:
            sweep()
            self._build()
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._remove()

    def address(self, link: int) -> str:
        """The address of a host, or of this process, on the switch."""
        return self._network.replace(".0/24", f".{link + 1}")

    def within(self, host: int) -> list[str]:
        """What a command begins with that runs on a host; it keeps its process number."""
        return ["ip", "netns", "exec", self._name(host)]

    def cut(self, link: int) -> None:
        """Let nothing pass a link in any direction; connections are not told."""
        _ip("-n", self._hub, "link", "set", f"port{link}", "down")

    def mend(self, link: int) -> None:
        """Let everything pass again."""
        _ip("-n", self._hub, "link", "set", f"port{link}", "up")

    def narrow(self, link: int) -> None:
        """Let few bytes a second pass towards the host."""
        _run("tc", "-n", self._hub, "qdisc", "add", "dev", f"port{link}", "root", "tbf", *NARROW)

    def widen(self, link: int) -> None:
        """Undo it."""
        _run("tc", "-n", self._hub, "qdisc", "del", "dev", f"port{link}", "root")

    def _name(self, host: int) -> str:
        return f"{self._prefix}{host}"

    def _build(self) -> None:
        self._network = _free_network()
        _ip("netns", "add", self._hub)
        _ip("-n", self._hub, "link", "add", "switch", "type", "bridge")
        _ip("-n", self._hub, "link", "set", "switch", "up")
        for host in range(self._links - 1):
            name = self._name(host)
            _ip("netns", "add", name)
            self._connect(host, "eth0", name, "-n", name)
        self._connect(self._links - 1, self._own, str(os.getpid()))
        with contextlib.suppress(NamespacesRefused):
            self.narrow(0)
            self.widen(0)
            self.can_narrow = True

    def _connect(self, link: int, device: str, namespace: str, *inside: str) -> None:
        """Lay a link from the switch to a device in a namespace, which ``inside`` names for further commands."""
        port = f"port{link}"
        _ip("-n", self._hub, "link", "add", port, "type", "veth", "peer", "name", device, "netns", namespace)
        _ip("-n", self._hub, "link", "set", port, "master", "switch", "up")
        _ip(*inside, "address", "add", f"{self.address(link)}/24", "dev", device)
        _ip(*inside, "link", "set", device, "up")

    def _remove(self) -> None:
        for name in _names():
            if name.startswith(self._prefix):
                _ip("netns", "delete", name)


def sweep() -> None:
    """Remove namespaces of processes that are no more.

    Raises:
        NamespacesRefused: it is not allowed.
    """
    for name in _names():
        made = _NAME.fullmatch(name)
        if made and not Path(f"/proc/{made[1]}").exists():
            _ip("netns", "delete", name)


def _names() -> list[str]:
    return [path.name for path in _NAMES.iterdir()] if _NAMES.is_dir() else []


def _free_network() -> str:
    taken = _ip("-4", "-oneline", "address", "show") + _ip("-4", "route", "show")
    for number in range(256):
        network = _NETWORKS.format(number)
        if network.removesuffix("0/24") not in taken:
            return network
    raise NamespacesRefused("no addresses of 198.18.0.0/16 are free")


def _ip(*arguments: str) -> str:
    return _run("ip", *arguments)


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    except OSError as error:
        raise NamespacesRefused(f"{command[0]}: {error.strerror}") from error
    except subprocess.CalledProcessError as error:
        raise NamespacesRefused(f"{' '.join(command)}: {error.stderr.strip()}") from error
    return done.stdout
