"""One session that an encoder has open: its codec, what was accepted, and the links to its decoders."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from encoder.accepted import Accepted
from encoder.broadcast import DecoderLink
from encoder.codec import Encoder
from encoder.failures import DecoderLost, DecoderRefused
from gumbelcast.v1 import encoder_pb2 as pb
from shared_rng import packed_size

_REPORT_SECONDS = 3.0
_log = logging.getLogger("gumbelcast.encoder")


class NoDecoders(Exception):
    """No decoder took the session."""


class EncoderSession:
    """One open session: the codec, the accepted batches and the links to its decoders."""

    def __init__(self, encoder: Encoder, links: list[DecoderLink], accepted: Accepted) -> None:
        self.encoder = encoder
        self.links = links
        self.accepted = accepted
        self.order = asyncio.Lock()
        for link in links:
            link.start(accepted)

    def states(self) -> list[pb.DecoderState]:
        """The decoders, for the wire."""
        return [
            pb.DecoderState(
                index=link.index,
                address=link.address,
                ready=link.ready,
                reason=link.reason,
                next_message=link.position,
                lag=max(0, self.accepted.committed - link.position),
            )
            for link in self.links
        ]

    async def again(self, first_message: int, count: int) -> pb.EncodeResponse:
        """The answer to a batch that was accepted already; its picks are not kept."""
        size = packed_size(count, self.encoder.session.bits)
        return pb.EncodeResponse(first_message=first_message, count=count, payload_bytes=size)

    async def delivered(self, message: int, seconds: float) -> None:
        """Wait until every decoder has acknowledged the messages before a number or is given up, or time is over."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*(link.reached(message) for link in self.links))


async def connect(links: Sequence[DecoderLink], oldest_message: int, patience: float) -> int:
    """Open a session at every decoder; tell the log every few seconds who is missing.

    Returns:
        The number of the furthest message that one of them waits for.

    Raises:
        NoDecoders: none is left.
    """
    opening = {asyncio.ensure_future(link.open(oldest_message)): link for link in links}
    waiting, waited = set(opening), 0.0
    while waiting:
        _, waiting = await asyncio.wait(waiting, timeout=_REPORT_SECONDS)
        waited += _REPORT_SECONDS
        for task in waiting:
            _log.warning("waiting for %s (%.0f s of %.0f s)", opening[task], waited, patience)
    due = []
    for task, link in opening.items():
        try:
            due.append(task.result())
        except (DecoderLost, DecoderRefused) as error:
            _log.error("%s: %s", link, error)
    if not due:
        raise NoDecoders("; ".join(f"{link}: {link.reason}" for link in links))
    return max(due)
