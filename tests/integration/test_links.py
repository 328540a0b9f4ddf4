"""The encoder's link to one decoder: however a lost connection shows itself, it is lost and no refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from decoder.client import DecoderClient
from encoder.broadcast import WINDOW, DecoderLink, DecoderLost, DecoderRefused
from encoder.codec import Encoder
from gumbelcast.convert import to_session
from gumbelcast.v1.decoder_pb2 import ReceiveMessagesRequest
from shared_rng import Session
from tests.integration.recorder import Recorder
from tests.integration.services import (
    WAIT_SECONDS,
    Fleet,
    dead_address,
    gaussian_data,
    in_process_models,
    kill,
)

DECODERS, MESSAGES = 3, 16
SOURCES, SIDES = gaussian_data(MESSAGES, DECODERS)


def make_session() -> Session:
    model, _ = in_process_models()
    return Session(
        seed=5,
        pool_size=256,
        bins=16,
        decoders=DECODERS,
        model_digest=model.digest,
        pool_variance=model.pool_variance,
    )


def requests(session: Session) -> list[ReceiveMessagesRequest]:
    """One message a batch."""
    encoder = Encoder(session, in_process_models()[0])
    batches = [encoder.encode(SOURCES[m : m + 1], m) for m in range(MESSAGES)]
    return [ReceiveMessagesRequest(first_message=b.first_message, count=1, payload=b.payload) for b in batches]


def with_links(
    addresses: Sequence[str], patience: float, use: Callable[[Session, list[DecoderLink]], Awaitable[None]]
) -> None:
    """Run ``use`` on a link to each address, in an event loop of its own and within a bounded time."""

    async def main() -> None:
        session = make_session()
        wire = to_session(session.wire_fields(share_seed=True))
        links = [DecoderLink(k, address, wire, patience) for k, address in enumerate(addresses)]
        try:
            await asyncio.wait_for(use(session, links), WAIT_SECONDS)
        finally:
            await asyncio.gather(*(link.close(forget=False) for link in links))

    asyncio.run(main())


@pytest.mark.parametrize("passes", [0, 3])
def test_decoder_that_dies_while_it_is_written_to(fleet: Fleet, passes: int) -> None:
    """Between two batches, or in the middle of a write: the batches wait, and come again once it is back.

    ``passes`` of the event loop after the batches are queued, so that a failed read, a failed write or both are
    what the link sees first.
    """
    decoders = fleet.decoders(SIDES)

    async def use(session: Session, links: list[DecoderLink]) -> None:
        batches = requests(session)
        for link in links:
            assert await link.open(0) == 0
            link.start(0)
        assert await asyncio.gather(*(link.deliver(batches[0]) for link in links)) == [""] * DECODERS
        waiting = [link.deliver(batch) for batch in batches[1:] for link in links]
        for _ in range(passes):
            await asyncio.sleep(0)
        for decoder in decoders:
            kill(decoder)
        back = [
            fleet.launch("decoder", "--bind", decoder.address, *fleet.decoder_arguments(k, SIDES[k]))
            for k, decoder in enumerate(decoders)
        ]
        for decoder in back:
            await asyncio.to_thread(decoder.wait_ready)
        assert await asyncio.gather(*waiting) == [""] * len(waiting)
        assert [(link.ready, link.reason) for link in links] == [(True, "")] * DECODERS

    with_links([decoder.address for decoder in decoders], WAIT_SECONDS, use)


def test_acknowledgements_that_are_lost(fleet: Fleet) -> None:
    """A connection that breaks between two living ends: what was decoded is settled, and not decoded again."""
    (decoder,) = fleet.decoders(SIDES[:1])

    async def use(session: Session, links: list[DecoderLink]) -> None:
        (link,) = links
        batches = requests(session)
        assert await link.open(0) == 0
        link.start(0)
        assert await link.deliver(batches[0]) == ""
        recorder.deaf = True
        waiting = [link.deliver(batch) for batch in batches[1:10]]
        # As many as may be under way without an acknowledgement arrive, and no more.
        while reader.status().sessions[0].next_message < 1 + WINDOW:
            await asyncio.sleep(0.02)
        assert not any(future.done() for future in waiting)
        recorder.cut()
        recorder.deaf = False
        assert await asyncio.gather(*waiting) == [""] * len(waiting)
        (status,) = reader.status().sessions
        assert (status.next_message, status.decoded) == (10, 10)
        assert (link.ready, link.reason) == (True, "")

    with Recorder(decoder.address) as recorder, DecoderClient(decoder.address) as reader:
        with_links([recorder.address], 5.0, use)
    assert "refused" not in decoder.log.read_text()


def test_reasons(fleet: Fleet) -> None:
    """A missing decoder is lost; one that answers no has refused; both keep batches from waiting for them."""
    (decoder,) = fleet.decoders(SIDES[:1])

    async def use(session: Session, links: list[DecoderLink]) -> None:
        present, missing, again = links
        batches = requests(session)
        assert await present.open(0) == 0
        with pytest.raises(DecoderLost, match="no answer within 1 s"):
            await missing.open(0)
        # The same service as another decoder of the same session.
        with pytest.raises(DecoderRefused, match="FAILED_PRECONDITION: decoder index: got 2, expected 0"):
            await again.open(0)
        for link in links:
            link.start(0)
        reasons = await asyncio.gather(*(link.deliver(batches[0]) for link in links))
        assert reasons[0] == ""
        assert "no answer within 1 s" in reasons[1] or "no connection" in reasons[1]
        assert "decoder index: got 2, expected 0" in reasons[2]
        assert [link.ready for link in links] == [True, False, False]

    with dead_address() as dead:
        with_links([decoder.address, dead, decoder.address], 1.0, use)


def test_decoder_that_is_ahead_joins_later(fleet: Fleet) -> None:
    """It keeps out of messages that it has already seen, and is in again from the first new one on."""
    (decoder,) = fleet.decoders(SIDES[:1])

    async def use(session: Session, links: list[DecoderLink]) -> None:
        first, second = links
        batches = requests(session)
        assert await first.open(0) == 0
        first.start(0)
        for batch in batches[:3]:
            assert await first.deliver(batch) == ""
        # The link of an encoder that could not open the session and begins at message 0.
        with pytest.raises(DecoderRefused):
            await second.open(0)
        second.index = 0
        second.start(0)
        while second.reason != "it waits for message 3, the encoder is at 0":
            await asyncio.sleep(0.02)
        for batch in batches[:3]:
            assert await second.deliver(batch) == second.reason
        while not second.ready:
            await asyncio.sleep(0.02)
        assert await second.deliver(batches[3]) == ""

    with_links([decoder.address] * 2, 5.0, use)
