"""TCP relays that count the bytes between the encoder and its decoders: transport bytes are measured."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Self

_CHUNK = 2**16


class CountingRelays:
    """One relay on loopback a decoder; a context manager. Only the demo's measurement runs through it.

    Attributes:
        addresses: where the encoder connects, in the order of k.
        forward: bytes from the encoder to the decoders so far, all relays together.
        back: bytes from the decoders to the encoder.
    """

    def __init__(self, targets: Sequence[str]) -> None:
        """Relay to the ``host:port`` of each decoder."""
        self.addresses: list[str] = []
        self.forward = 0
        self.back = 0
        self._targets = targets
        self._ready = threading.Event()
        self._stop = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._serve(),), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._ready.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()
        self._loop.close()

    async def _serve(self) -> None:
        connections: set[asyncio.Task[None]] = set()
        servers = []
        for link in range(len(self._targets)):

            async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: int = link) -> None:
                task = asyncio.current_task()
                assert task is not None
                connections.add(task)
                try:
                    await self._relay(reader, writer, link)
                finally:
                    connections.discard(task)

            servers.append(await asyncio.start_server(connected, "127.0.0.1", 0))
            self.addresses.append(f"127.0.0.1:{servers[-1].sockets[0].getsockname()[1]}")
        self._ready.set()
        await self._stop.wait()
        for server in servers:
            server.close()
        # Each connection sees the stop and ends by itself; a cancelled one would be logged as a fault.
        await asyncio.gather(*connections)

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: int) -> None:
        host, _, port = self._targets[link].rpartition(":")
        try:
            target_reader, target_writer = await asyncio.open_connection(host, int(port))
        except OSError:
            writer.close()
            return
        ways = [
            asyncio.create_task(self._pump(reader, target_writer, link, forward=True)),
            asyncio.create_task(self._pump(target_reader, writer, link, forward=False)),
            asyncio.create_task(self._stop.wait()),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in ways:
                task.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for open_writer in (writer, target_writer):
                open_writer.close()

    async def _pass(self, link: int) -> None:
        """Before each piece of data of a link goes on; a network that fails takes its time here."""

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: int, *, forward: bool
    ) -> None:
        with contextlib.suppress(ConnectionError):
            while data := await reader.read(_CHUNK):
                # Counted before it goes on: whoever has seen an answer finds its bytes counted.
                if forward:
                    self.forward += len(data)
                else:
                    self.back += len(data)
                await self._pass(link)
                writer.write(data)
                await writer.drain()
