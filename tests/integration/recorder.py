"""A TCP relay that keeps every byte, and a network that fails: answers can be lost and connections cut."""

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
        deaf: whether bytes to that side are lost from now on.
    """

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.forward = bytearray()
        self.back = bytearray()
        self.deaf = False

    def __enter__(self) -> Recorder:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join(WAIT_SECONDS)
        self.cut()
        for thread in self._threads:
            thread.join(WAIT_SECONDS)
            assert not thread.is_alive()
        for opened in self._sockets:
            opened.close()

    def cut(self) -> None:
        """End the connections that there are; new ones work."""
        for opened in list(self._sockets):
            with contextlib.suppress(OSError):  # the other side was faster
                opened.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
                far = socket.create_connection(self._target)
            except OSError:
                return
            self._sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                self._threads.append(threading.Thread(target=self._pump, args=(source, sink, sink is near)))
                self._threads[-1].start()

    def _pump(self, source: socket.socket, sink: socket.socket, back: bool) -> None:
        kept = self.back if back else self.forward
        with contextlib.suppress(OSError):
            while data := source.recv(2**16):
                kept += data
                if not (back and self.deaf):
                    sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
