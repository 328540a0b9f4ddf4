"""However a stream ends, both services go back to where they were: nothing in their event loop outlives it."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from typing import Any

import grpc
import numpy as np
import pytest

from decoder.service import DecoderService
from encoder.broadcast import WINDOW
from encoder.journal import Journal, Retention
from encoder.service import EncoderService
from gumbelcast.channels import SESSION_KEY
from gumbelcast.convert import to_session, to_tensor
from gumbelcast.v1 import decoder_pb2_grpc, encoder_pb2_grpc
from gumbelcast.v1.decoder_pb2 import ReceiveMessagesRequest
from gumbelcast.v1.encoder_pb2 import AwaitDeliveryRequest, EncodeRequest, GetStatusRequest, OpenSessionRequest
from shared_rng import Session
from tests.integration.services import WAIT_SECONDS, gaussian_data, in_process_models

SOURCES, SIDES = gaussian_data(128, 1)


class World:
    """Both services in this process's event loop, a session that has coded one message, and clients."""

    def __init__(self, session: Session, encoder: Any, decoder: Any, encoding: EncoderService) -> None:
        self.session = session
        self.encoder = encoder
        self.decoder = decoder
        self.encoding = encoding
        self.next_message = 0

    def request(self, source: float | None = None) -> EncodeRequest:
        """The next message."""
        message = self.next_message
        self.next_message += 1
        sources = SOURCES[message : message + 1] if source is None else np.array([source])
        return EncodeRequest(session_digest=self.session.digest, first_message=message, sources=to_tensor(sources))

    async def due(self) -> int:
        """The encoder's next message."""
        status = await self.encoder.GetStatus(GetStatusRequest(), timeout=WAIT_SECONDS)
        return int(status.sessions[0].next_message)

    async def code(self) -> None:
        """One message in a stream that ends as it should."""
        call = self.encoder.Encode(iter([self.request()]), timeout=WAIT_SECONDS)
        assert [answer.count async for answer in call] == [1]
        waiting = AwaitDeliveryRequest(session_digest=self.session.digest, message=self.next_message, seconds=30)
        (state,) = (await self.encoder.AwaitDelivery(waiting, timeout=WAIT_SECONDS)).decoders
        assert (state.lag, state.reason) == (0, "")


def in_one_loop(use: Callable[[World], Awaitable[None]]) -> None:
    """Run ``use`` three times in a world of its own; the tasks before and after are the same, and no one complains."""
    complaints: list[dict[str, Any]] = []

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
        encoder_model, decoder_model = in_process_models()
        async with AsyncExitStack() as stack:
            decoding = DecoderService(decoder_model, side_rows=SIDES[0])
            decoder = await serve(stack, decoding, decoder_pb2_grpc.add_DecoderServiceServicer_to_server)
            encoding = EncoderService(encoder_model, [decoder], Journal(None, Retention()), patience=5.0)
            await encoding.begin()
            encoder = await serve(stack, encoding, encoder_pb2_grpc.add_EncoderServiceServicer_to_server)
            session = Session(
                seed=1,
                pool_size=256,
                bins=16,
                decoders=1,
                model_digest=encoder_model.digest,
                pool_variance=encoder_model.pool_variance,
            )
            to_encoder = await stack.enter_async_context(grpc.aio.insecure_channel(encoder))
            to_decoder = await stack.enter_async_context(grpc.aio.insecure_channel(decoder))
            world = World(
                session,
                encoder_pb2_grpc.EncoderServiceStub(to_encoder),
                decoder_pb2_grpc.DecoderServiceStub(to_decoder),
                encoding,
            )
            opening = OpenSessionRequest(session=to_session(session.wire_fields(share_seed=True)))
            await world.encoder.OpenSession(opening, timeout=WAIT_SECONDS)
            await world.code()
            before = await tasks_at_rest()
            for _ in range(3):
                await use(world)
            await world.code()
            assert await tasks_at_rest(before) == before
            gc.collect()

    async def bounded() -> None:
        await asyncio.wait_for(main(), WAIT_SECONDS)

    asyncio.run(bounded())
    gc.collect()
    assert complaints == []


async def serve(stack: AsyncExitStack, service: Any, register: Callable[[Any, Any], None]) -> str:
    """A server on a free port; returns its address."""
    server = grpc.aio.server()
    register(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    stack.push_async_callback(service.close)
    stack.push_async_callback(server.stop, None)
    return f"127.0.0.1:{port}"


async def tasks_at_rest(expected: Counter[str] | None = None) -> Counter[str]:
    """Living tasks by the coroutine that they run, once they are as expected, or the same for half a second."""
    last, since = Counter[str](), asyncio.get_running_loop().time()
    while True:
        now = Counter(getattr(task.get_coro(), "__qualname__", "") for task in asyncio.all_tasks())
        if now != last:
            last, since = now, asyncio.get_running_loop().time()
        if now == expected or asyncio.get_running_loop().time() > since + (0.5 if expected is None else 2.0):
            return now
        await asyncio.sleep(0.02)


async def ends(world: World) -> None:
    """The client has sent everything."""
    await world.code()


async def is_refused(world: World) -> None:
    """A source that cannot be encoded, between good ones."""
    requests = [world.request(), world.request(1e200), world.request()]
    call = world.encoder.Encode(iter(requests), timeout=WAIT_SECONDS)
    with pytest.raises(grpc.RpcError):
        async for _ in call:
            pass
    world.next_message -= 2


async def is_cancelled_when_idle(world: World) -> None:
    """The encoder waits for the next batch."""
    call = world.encoder.Encode(timeout=WAIT_SECONDS)
    await call.write(world.request())
    assert (await call.read()).count == 1
    call.cancel()


async def is_cancelled_when_held_back(world: World) -> None:
    """The journal takes its time, and the encoder reads no further batch until it has answered one."""
    held = threading.Event()
    world.encoding._journal._worker.submit(held.wait, WAIT_SECONDS)
    try:
        call = world.encoder.Encode(timeout=WAIT_SECONDS)
        first = world.next_message
        for _ in range(12):
            await call.write(world.request())
        while await world.due() < first + WINDOW + 2:
            await asyncio.sleep(0.02)
        call.cancel()
    finally:
        held.set()
    await tasks_at_rest()
    due = await world.due()
    assert first + WINDOW + 2 <= due < first + 12
    world.next_message = due


async def runs_out_of_time(world: World) -> None:
    """The deadline of the call is over while nothing is sent."""
    call = world.encoder.Encode(timeout=0.3)
    await call.write(world.request())
    await call.read()
    with pytest.raises(grpc.RpcError):
        await call.read()


async def runs_out_of_time_in_a_batch(world: World) -> None:
    """The deadline is over before the journal has it: it is accepted all the same, and answered when it comes again."""
    held = threading.Event()
    world.encoding._journal._worker.submit(held.wait, WAIT_SECONDS)
    request = world.request()
    try:
        call = world.encoder.Encode(iter([request]), timeout=1.0)
        with pytest.raises(grpc.RpcError):
            await call.read()
    finally:
        held.set()
    again = world.encoder.Encode(iter([request]), timeout=WAIT_SECONDS)
    assert [(answer.first_message, answer.count, list(answer.picks)) async for answer in again] == [
        (request.first_message, 1, [])
    ]
    assert await world.due() == world.next_message


async def is_cancelled_at_the_decoder(world: World) -> None:
    """A second stream to the decoder, which sends nothing."""
    call = world.decoder.ReceiveMessages(timeout=WAIT_SECONDS, metadata=((SESSION_KEY, world.session.digest),))
    await call.wait_for_connection()
    call.cancel()


async def is_refused_at_the_decoder(world: World) -> None:
    """A batch out of order."""

    async def requests() -> AsyncIterator[ReceiveMessagesRequest]:
        yield ReceiveMessagesRequest(first_message=120, count=1, payload=b"\0")

    metadata = ((SESSION_KEY, world.session.digest),)
    with suppress(grpc.RpcError):
        async for _ in world.decoder.ReceiveMessages(requests(), timeout=WAIT_SECONDS, metadata=metadata):
            pytest.fail("it is acknowledged")


@pytest.mark.parametrize(
    "use",
    [
        ends,
        is_refused,
        is_cancelled_when_idle,
        is_cancelled_when_held_back,
        runs_out_of_time,
        runs_out_of_time_in_a_batch,
        is_cancelled_at_the_decoder,
        is_refused_at_the_decoder,
    ],
)
def test_stream(use: Callable[[World], Awaitable[None]]) -> None:
    in_one_loop(use)
