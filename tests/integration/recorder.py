"""A TCP relay that keeps every byte: what really travels between two services."""

from __future__ import annotations

import contextlib
import socket
import threading

from tests.integration.services import WAIT_SECONDS


class Recorder:
    """Relays one address; a context manager.

    Attributes:
        address: where to connect instead.
        forward: bytes from the side that connects, all connections together.
        back: bytes to that side.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.forward = bytearray()
        self.back = bytearray()

    def __enter__(self) -> Recorder:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for opened in list(self._sockets):
            with contextlib.suppress(OSError):  # the other side was faster
                opened.shutdown(socket.SHUT_RDWR)
            opened.close()
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
            except OSError:
                return
            self._sockets += [near, far]
            for source, sink, kept in ((near, far, self.forward), (far, near, self.back)):
                self._threads.append(threading.Thread(target=_pump, args=(source, sink, kept)))
                self._threads[-1].start()


def _pump(source: socket.socket, sink: socket.socket, kept: bytearray) -> None:
    try:
        while data := source.recv(2**16):
            kept += data
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        return
