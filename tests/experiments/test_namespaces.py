"""Hosts made of network namespaces: links that carry, fail and are slow, and nothing left behind by anyone."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from experiments import namespaces
from experiments.namespaces import Namespaces, NamespacesRefused, sweep
from tests.integration.services import WAIT_SECONDS, until

SERVER = """
import socket, sys
with socket.create_server((sys.argv[1], 9000)) as server:
    print("ready", flush=True)
    while True:
        connection, _ = server.accept()
        with connection:
            while data := connection.recv(2**16):
                connection.sendall(b"x" * len(data))
"""

MAKER = """
import time
from experiments.namespaces import Namespaces
with Namespaces(1):
    print("ready", flush=True)
    time.sleep(600)
"""


@pytest.fixture
def network() -> Iterator[Namespaces]:
    """Two hosts, where they are allowed."""
    try:
        with Namespaces(2) as network:
            yield network
    except NamespacesRefused as error:
        pytest.skip(str(error))


def run(stack: ExitStack, *command: str) -> subprocess.Popen[str]:
    """A Python program that says when it is ready, and is killed at the end."""
    process = subprocess.Popen([*command], stdout=subprocess.PIPE, text=True)
    stack.callback(process.wait, WAIT_SECONDS)
    stack.callback(process.kill)
    assert process.stdout is not None
    stack.enter_context(process.stdout)
    assert process.stdout.readline() == "ready\n"
    return process


def own() -> list[str]:
    """Names of this process's namespaces."""
    return [name for name in namespaces._names() if name.startswith(f"gumbelcast-{os.getpid()}-")]


def answered(connection: socket.socket, size: int, seconds: float) -> bool:
    """Whether so many bytes come within a time."""
    connection.settimeout(seconds)
    try:
        while size > 0:
            size -= len(connection.recv(size))
    except TimeoutError:
        return False
    return True


def test_links(network: Namespaces) -> None:
    """A cut link carries nothing and breaks no connection; a narrow one carries 8,000 bytes a second."""
    with ExitStack() as stack:
        for host in range(2):
            run(stack, *network.within(host), sys.executable, "-c", SERVER, network.address(host))
        links = [
            stack.enter_context(closing(socket.create_connection((network.address(host), 9000), WAIT_SECONDS)))
            for host in range(2)
        ]
        for link in links:
            link.sendall(b"a")
            assert answered(link, 1, WAIT_SECONDS)
        network.cut(0)
        for link in links:
            link.sendall(b"b")
        assert answered(links[1], 1, WAIT_SECONDS)
        assert not answered(links[0], 1, 0.3)
        network.mend(0)
        assert answered(links[0], 1, WAIT_SECONDS)
        if network.can_narrow:
            network.narrow(1)
            started = time.monotonic()
            links[1].sendall(bytes(24_000))
            assert answered(links[1], 24_000, WAIT_SECONDS)
            assert time.monotonic() - started > 1.5
            network.widen(1)


def test_nothing_is_left(network: Namespaces) -> None:
    """The switch and both hosts, also where one more command is refused."""
    assert len(own()) == 3
    with pytest.raises(NamespacesRefused, match="port7"):
        network.cut(7)
    network.__exit__(None, None, None)
    assert own() == []


def test_what_a_killed_process_left_is_swept_away(network: Namespaces) -> None:
    """And what living ones have is not."""
    with ExitStack() as stack:
        maker = run(stack, sys.executable, "-c", MAKER)
        prefix = f"gumbelcast-{maker.pid}-"
        assert sum(name.startswith(prefix) for name in namespaces._names()) == 2
        sweep()
        assert sum(name.startswith(prefix) for name in namespaces._names()) == 2
    sweep()
    assert not any(name.startswith(prefix) for name in namespaces._names())
    assert len(own()) == 3
    device = Path(f"/sys/class/net/gc{maker.pid}")
    until(lambda: not device.exists(), "the link of the killed process gone")


def test_where_they_cannot_be(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One error says why, and nothing is left."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NamespacesRefused, match="ip: No such file"), Namespaces(1):
        pass
    (tmp_path / "ip").write_text("#!/bin/sh\necho no bridges here >&2; exit 2\n")
    (tmp_path / "ip").chmod(0o755)
    with pytest.raises(NamespacesRefused, match=r"ip .*: no bridges here"), Namespaces(1):
        pass
