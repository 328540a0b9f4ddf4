"""Relays count exact bytes both ways, all connections and all targets together."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from experiments.fault_relay import FaultyRelays
from experiments.relay import CountingRelays

SECONDS = 30.0


class Doubler:
    """A TCP server that answers every byte twice; a context manager."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._accept)]

    def __enter__(self) -> Doubler:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join(SECONDS)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self._threads.append(threading.Thread(target=self._answer, args=(connection,)))
            self._threads[-1].start()

    @staticmethod
    def _answer(connection: socket.socket) -> None:
        with connection:
            connection.settimeout(SECONDS)
            while data := connection.recv(2**16):
                connection.sendall(data * 2)


@pytest.fixture
def doubler() -> Iterator[Doubler]:
    with Doubler() as server:
        yield server


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=SECONDS)


def exchange(connection: socket.socket, data: bytes) -> bytes:
    """Send, and read twice as much."""
    sender = threading.Thread(target=connection.sendall, args=(data,))
    sender.start()
    received = bytearray()
    while len(received) < 2 * len(data):
        received += connection.recv(2**16)
    sender.join(SECONDS)
    return bytes(received)


def test_counts_are_exact(doubler: Doubler) -> None:
    """Whoever has an answer finds its bytes counted: more than one chunk, and again on the same connection."""
    with CountingRelays([doubler.address]) as relays, connect(relays.addresses[0]) as connection:
        assert (relays.forward, relays.back) == (0, 0)
        total = 0
        for size in (1, 10, 300_001):
            data = bytes(range(256)) * (size // 256) + bytes(size % 256)
            received = exchange(connection, data)
            assert len(received) == 2 * size
            total += size
            assert (relays.forward, relays.back) == (total, 2 * total)
        assert exchange(connection, b"xy") == b"xyxy"


def test_connections_and_targets_add_up(doubler: Doubler) -> None:
    """Two targets, each with its own address, and a second connection to one of them."""
    with Doubler() as other, CountingRelays([doubler.address, other.address]) as relays:
        assert len(set(relays.addresses)) == 2
        assert not {doubler.address, other.address} & set(relays.addresses)
        for target, data in ((0, b"a" * 10), (1, b"b" * 100), (0, b"c")):
            with connect(relays.addresses[target]) as connection:
                assert exchange(connection, data) == data * 2
        assert (relays.forward, relays.back) == (111, 222)


def test_a_target_that_is_gone() -> None:
    """The connection is closed, nothing is counted, and the relay goes on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with CountingRelays([f"127.0.0.1:{taken.getsockname()[1]}"]) as relays:
            for _ in range(2):
                with connect(relays.addresses[0]) as connection:
                    assert connection.recv(1) == b""
            assert (relays.forward, relays.back) == (0, 0)


def test_the_end_of_a_connection_is_passed_on(doubler: Doubler, caplog: pytest.LogCaptureFixture) -> None:
    """When the target closes, so does the relay, and leaving neither hangs on open connections nor complains."""
    with CountingRelays([doubler.address]) as relays:
        connection = connect(relays.addresses[0])
        assert exchange(connection, b"1") == b"11"
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
        connection.close()
        still_open = connect(relays.addresses[0])
        assert exchange(still_open, b"2") == b"22"
    assert still_open.recv(1) == b""
    still_open.close()
    with pytest.raises(OSError, match="refused"):
        connect(relays.addresses[0])
    assert caplog.records == []


def test_links_that_fail(doubler: Doubler) -> None:
    """A cut ends the connections of one link, a delay holds its data back; the other link does not notice."""
    with FaultyRelays([doubler.address, doubler.address]) as relays:
        with connect(relays.addresses[0]) as first, connect(relays.addresses[1]) as second:
            for connection in (first, second):
                connection.sendall(b"a")
                assert connection.recv(2, socket.MSG_WAITALL) == b"aa"
            relays.delay(0, SECONDS)
            first.sendall(b"b")
            second.sendall(b"b")
            assert second.recv(2, socket.MSG_WAITALL) == b"bb"
            first.setblocking(False)
            with pytest.raises(BlockingIOError):
                first.recv(1)
            first.settimeout(SECONDS)
            relays.cut(0)
            with contextlib.suppress(ConnectionError):
                assert first.recv(1) == b""
            second.sendall(b"c")
            assert second.recv(2, socket.MSG_WAITALL) == b"cc"
        relays.delay(0, 0.0)
        with connect(relays.addresses[0]) as again:
            again.sendall(b"d")
            assert again.recv(2, socket.MSG_WAITALL) == b"dd"
