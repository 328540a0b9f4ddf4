"""A network that fails: TCP relays whose links can be cut, held and slowed while data runs through them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from experiments.relay import CountingRelays


class FaultyRelays(CountingRelays):
    """One relay on loopback a target; a context manager. Faults may come from any thread."""

    def __init__(self, targets: Sequence[str]) -> None:
        """Relay to the ``host:port`` of each target; the links are numbered in this order."""
        super().__init__(targets)
        self._delays = [0.0] * len(targets)
        self._open: list[set[asyncio.StreamWriter]] = [set() for _ in targets]

    def delay(self, link: int, seconds: float) -> None:
        """Let every piece of data of a link wait so long from now on; 0 for no longer."""
        self._delays[link] = seconds

    def cut(self, link: int) -> None:
        """End the connections of a link that there are; new ones work."""
        self._loop.call_soon_threadsafe(self._cut, link)

    def _cut(self, link: int) -> None:
        for writer in self._open[link]:
            writer.transport.abort()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, link: int) -> None:
        self._open[link].add(writer)
        try:
            await super()._relay(reader, writer, link)
        finally:
            self._open[link].discard(writer)

    async def _pass(self, link: int) -> None:
        if self._delays[link]:
            await asyncio.sleep(self._delays[link])
