"""The encoder's link to one decoder: however a lost connection shows itself, what was accepted arrives once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

import pytest

from decoder.client import DecoderClient
from encoder.accepted import Accepted, JournalWriter
from encoder.broadcast import WINDOW, DecoderLink
from encoder.codec import Encoder
from encoder.failures import DecoderDistrusts, DecoderLost, DecoderRefused
from encoder.journal import Batch, Journal, Retention
from experiments.coding import code_in_process
from gumbelcast.convert import to_session
from gumbelcast.v1.decoder_pb2 import ReceiveMessagesRequest
from shared_rng import Session
from tests.integration.recorder import Recorder
from tests.integration.services import WAIT_SECONDS, Fleet, dead_address, gaussian_data, in_process_models, kill

DECODERS, MESSAGES = 3, 16
SOURCES, SIDES = gaussian_data(MESSAGES, DECODERS)


class World:
    """A session with a journal in memory and links; the batches have one message each."""

    def __init__(self, session: Session, accepted: Accepted, links: list[DecoderLink]) -> None:
        self.accepted = accepted
        self.links = links
        encoder = Encoder(session, in_process_models()[0])
        encoded = [encoder.encode(SOURCES[m : m + 1], m) for m in range(MESSAGES)]
        self.batches = [Batch.of(session.digest, m, 1, e.payload) for m, e in enumerate(encoded)]

    async def accept(self, first: int, end: int) -> None:
        await asyncio.gather(*(self.accepted.append(batch, b"") for batch in self.batches[first:end]))

    async def delivered(self, message: int) -> None:
        await asyncio.gather(*(link.reached(message) for link in self.links))
        assert [link.position for link in self.links] == [message] * len(self.links)


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


def with_links(
    addresses: Sequence[str],
    patience: float,
    use: Callable[[World], Awaitable[None]],
    retention: Retention | None = None,
) -> None:
    """Run ``use`` on a link to each address, in an event loop of its own and within a bounded time."""

    async def main() -> None:
        session = make_session()
        wire = to_session(session.wire_fields(share_seed=True))
        writer = JournalWriter(Journal(None, retention or Retention()))
        writer.start()
        stored = await writer.call(Journal.put_session, session.digest, wire.SerializeToString(), 0)
        links = [DecoderLink(k, address, session, wire, patience) for k, address in enumerate(addresses)]
        try:
            await asyncio.wait_for(use(World(session, await writer.accepted(stored), links)), WAIT_SECONDS)
        finally:
            await asyncio.gather(*(link.close(forget=False) for link in links))
            await writer.close()

    asyncio.run(main())


@pytest.mark.parametrize("passes", [0, 3])
def test_decoder_that_dies_while_it_is_written_to(fleet: Fleet, passes: int) -> None:
    """Between two batches, or in the middle of a write: it gets everything once it is back.

    ``passes`` of the event loop after the batches are accepted, so that a failed read, a failed write or both are
    what the link sees first.
    """
    decoders = fleet.decoders(SIDES)

    async def use(world: World) -> None:
        for link in world.links:
            assert await link.open(0) == 0
            link.start(world.accepted)
        await world.accept(0, 1)
        await world.delivered(1)
        await world.accept(1, MESSAGES)
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
        await world.delivered(MESSAGES)
        assert [(link.ready, link.reason) for link in world.links] == [(True, "")] * DECODERS

    with_links([decoder.address for decoder in decoders], WAIT_SECONDS, use)


def test_acknowledgements_that_are_lost(fleet: Fleet) -> None:
    """A connection that breaks between two living ends: what was decoded is settled, and not decoded again."""
    (decoder,) = fleet.decoders(SIDES[:1])

    async def use(world: World) -> None:
        (link,) = world.links
        assert await link.open(0) == 0
        link.start(world.accepted)
        await world.accept(0, 1)
        await world.delivered(1)
        recorder.deaf = True
        await world.accept(1, 10)
        # As many as may be under way without an acknowledgement arrive, and no more.
        while reader.status().sessions[0].next_message < 1 + WINDOW:
            await asyncio.sleep(0.02)
        assert link.position == 1
        recorder.cut()
        recorder.deaf = False
        await world.delivered(10)
        (status,) = reader.status().sessions
        assert (status.next_message, status.decoded) == (10, 10)
        assert (link.ready, link.reason) == (True, "")

    with Recorder(decoder.address) as recorder, DecoderClient(decoder.address) as reader:
        with_links([recorder.address], 5.0, use)
    assert "refused" not in decoder.log.read_text()


def test_batch_that_is_damaged_on_its_way(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder refuses it and does not decode it; it is sent again, and everything arrives."""
    (decoder,) = fleet.decoders(SIDES[:1])
    damaged = [2, 9]

    def request(batch: Batch) -> ReceiveMessagesRequest:
        payload = batch.payload
        if damaged and batch.first_message == damaged[0]:
            damaged.pop(0)
            payload = bytes([payload[0] ^ 16])
        return ReceiveMessagesRequest(
            first_message=batch.first_message, count=batch.count, payload=payload, checksum=batch.checksum
        )

    monkeypatch.setattr("encoder.broadcast._request", request)

    async def use(world: World) -> None:
        world.links[0].start(world.accepted)
        await world.accept(0, MESSAGES)
        await world.delivered(MESSAGES)

    with_links([decoder.address], 5.0, use)
    assert damaged == []
    with DecoderClient(decoder.address) as reader:
        (status,) = reader.status().sessions
        assert (status.next_message, status.decoded) == (MESSAGES, MESSAGES)
        picks, _ = reader.read(make_session().digest, MESSAGES)
    assert (
        picks.tolist()
        == code_in_process(make_session(), *in_process_models(), SOURCES, SIDES).decoder_picks[0].tolist()
    )
    log = decoder.log.read_text()
    assert [f"checksum of the batch of message {m}" in log for m in (2, 9)] == [True, True]


def test_reasons(fleet: Fleet) -> None:
    """A missing decoder is lost; one that answers no has refused; neither is waited for."""
    (decoder,) = fleet.decoders(SIDES[:1])

    async def use(world: World) -> None:
        present, missing, again = world.links
        assert await present.open(0) == 0
        with pytest.raises(DecoderLost, match="no answer within 1 s"):
            await missing.open(0)
        # The same service as another decoder of the same session.
        with pytest.raises(DecoderRefused, match="FAILED_PRECONDITION: decoder index: got 2, expected 0"):
            await again.open(0)
        for link in world.links:
            link.start(world.accepted)
        await world.accept(0, 1)
        await asyncio.gather(*(link.reached(1) for link in world.links))
        assert [link.position for link in world.links] == [1, 0, 0]
        assert "no answer within 1 s" in missing.reason or "no connection" in missing.reason
        assert "decoder index: got 2, expected 0" in again.reason
        assert [link.ready for link in world.links] == [True, False, False]

    with dead_address() as dead:
        with_links([decoder.address, dead, decoder.address], 1.0, use)


def test_decoder_that_is_ahead_of_the_journal(fleet: Fleet) -> None:
    """The journal lost what it has seen: its numbers are not given again."""
    (decoder,) = fleet.decoders(SIDES[:1])

    async def before(world: World) -> None:
        (link,) = world.links
        link.start(world.accepted)
        await world.accept(0, 3)
        await world.delivered(3)

    async def after(world: World) -> None:
        (link,) = world.links
        link.start(world.accepted)
        while world.accepted.next_message < 3:
            await asyncio.sleep(0.02)
        await world.accept(3, MESSAGES)
        await world.delivered(MESSAGES)

    with_links([decoder.address], 5.0, before)
    with_links([decoder.address], 5.0, after)
    with DecoderClient(decoder.address) as reader:
        (status,) = reader.status().sessions
        assert (status.next_message, status.decoded) == (MESSAGES, MESSAGES)


def test_decoder_that_was_away_too_long(fleet: Fleet) -> None:
    """What it lacks is gone from the journal: OUT_OF_RANGE at both ends, with the number it can begin at."""
    (decoder,) = fleet.decoders(SIDES[:1], out=True)

    async def before(world: World) -> None:
        (link,) = world.links
        link.start(world.accepted)
        await world.accept(0, 3)
        await world.delivered(3)
        kill(decoder)
        while link.ready:
            await asyncio.sleep(0.02)
        for message in range(3, MESSAGES):
            await world.accept(message, message + 1)
        oldest = world.accepted.oldest_message
        assert oldest == MESSAGES - 2
        arguments = fleet.decoder_arguments(0, SIDES[0], out=True)
        back = fleet.start("decoder", "--bind", decoder.address, *arguments)
        while "OUT_OF_RANGE" not in link.reason:
            await asyncio.sleep(0.02)
        assert f"got 3, which is gone from the encoder, expected {oldest} or later" in link.reason
        assert f"start this decoder with --start {oldest}" in back.log.read_text()
        kill(back)
        anew = fleet.start("decoder", "--bind", decoder.address, *arguments, "--start", str(oldest))
        while link.position < MESSAGES:
            await asyncio.sleep(0.02)
        assert f"messages 3 … {oldest - 1} are given up" in anew.log.read_text()

    with_links([decoder.address], 1.0, before, Retention(size=2 * 129))
    names = [path.name for path in sorted((fleet.folder / "out-0").rglob("*.npz"))]
    assert [int(name[:12]) for name in names] == [0, 1, 2, MESSAGES - 2, MESSAGES - 1]


def test_decoder_that_does_not_trust(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked again ever more rarely, and at the usual pace once it was back."""
    outcomes = [*[DecoderDistrusts("no")] * 7, None, DecoderLost("gone")]
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 9:
            raise asyncio.CancelledError

    async def use(world: World) -> None:
        (link,) = world.links

        async def connect(accepted: object) -> None:
            if (outcome := outcomes.pop(0)) is not None:
                raise outcome

        async def stream(accepted: object) -> None:
            raise DecoderRefused("done")

        monkeypatch.setattr(link, "_connect", connect)
        monkeypatch.setattr(link, "_stream", stream)
        with monkeypatch.context() as patch:
            patch.setattr("encoder.broadcast.asyncio.sleep", sleep)
            with pytest.raises(asyncio.CancelledError):
                await link._run(world.accepted)

    with_links(["127.0.0.1:9"], 1.0, use)
    assert pauses == [4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0, 2.0, 2.0]
