"""Servers and refusals: the one place, with :mod:`gumbelcast.channels`, that knows gRPC's traps."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, NoReturn

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from gumbelcast.bind import BindError, check_free
from gumbelcast.channels import KEEPALIVE_SECONDS
from gumbelcast.metrics import Metrics, MetricsServer
from gumbelcast.security import CALLS_A_CLIENT, PLAIN, Gate, NotLetIn, Security, client_of

STOP_SECONDS = 30.0
"""How long a stopping server lets batches in flight finish."""

_LAST_SECONDS = 0.5
_HANDSHAKE_MS = 10_000
"""Who connects and says nothing is cut off."""

_log = logging.getLogger("gumbelcast")


def refusing(error_type: type[ValueError]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate a unary handler: bad input ends the call with a status instead of a traceback.

    An ``error_type`` carries the status name in its attribute ``status``; other ValueErrors come from the
    conversion of wire messages and are INVALID_ARGUMENT.
    """

    def decorate(handler: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
        @functools.wraps(handler)
        async def wrapped(self: Service, request: Any, context: Any) -> Any:
            with self.call():
                try:
                    with self.gate.admit(handler.__name__, context):
                        return await handler(self, request, context)
                except ValueError as error:
                    await self.refuse(context, error, error_type)

        return wrapped

    return decorate


def refusing_stream(error_type: type[ValueError]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The same for a handler that is an asynchronous generator."""

    def decorate(handler: Callable[..., AsyncGenerator[Any, None]]) -> Callable[..., Any]:
        @functools.wraps(handler)
        async def wrapped(self: Service, request: Any, context: Any) -> AsyncIterator[Any]:
            with self.call():
                try:
                    with self.gate.admit(handler.__name__, context):
                        async with contextlib.aclosing(handler(self, request, context)) as responses:
                            async for response in responses:
                                yield response
                except ValueError as error:
                    await self.refuse(context, error, error_type)

        return wrapped

    return decorate


async def until(stopping: asyncio.Event, items: AsyncIterator[Any]) -> AsyncIterator[Any]:
    """The items of a request stream until it ends or the service stops."""
    stop = asyncio.ensure_future(stopping.wait())
    iterator = items.__aiter__()
    item: asyncio.Future[Any] | None = None
    try:
        while not stopping.is_set():
            item = asyncio.ensure_future(_next(iterator))
            await asyncio.wait({item, stop}, return_when=asyncio.FIRST_COMPLETED)
            if not item.done() or (got := item.result()) is _END:
                return
            yield got
    finally:
        stop.cancel()
        if item is not None:
            item.cancel()


_END = object()


async def _next(iterator: AsyncIterator[Any]) -> Any:
    return await anext(iterator, _END)


class Service:
    """Base of a service: lets calls in, and knows which are running, so that stopping can wait for them alone."""

    def __init__(self, gate: Gate, metrics: Metrics) -> None:
        self.gate = gate
        self.metrics = metrics
        self.stopping = asyncio.Event()
        """Set first when the service stops: streams end after the batch in flight."""
        self._running = 0
        self._idle = asyncio.Event()
        self._idle.set()

    @contextlib.contextmanager
    def call(self) -> Iterator[None]:
        """Around every call."""
        self._running += 1
        self._idle.clear()
        try:
            yield
        finally:
            self._running -= 1
            if self._running == 0:
                self._idle.set()

    async def refuse(self, context: Any, error: ValueError, error_type: type[ValueError]) -> NoReturn:
        """End a call with the status that belongs to bad input."""
        known = isinstance(error, error_type | NotLetIn)
        name = getattr(error, "status", "INVALID_ARGUMENT") if known else "INVALID_ARGUMENT"
        client = client_of(context)
        self.metrics.refused.labels(name).inc()
        _log.warning("refused %s: %s", client, error, extra={"client": client})
        await context.abort(grpc.StatusCode[name], str(error))
        raise AssertionError("abort returned") from error

    async def idle(self) -> None:
        """Wait until no call is running."""
        await self._idle.wait()

    async def close(self) -> None:
        """Release everything; called once no call is running."""


class _Waiting(grpc.aio.ServerInterceptor):
    """Holds calls of our services back until there is a service; health and reflection answer meanwhile."""

    def __init__(self, names: Sequence[str]) -> None:
        self.ready = asyncio.Event()
        self._prefixes = tuple(f"/{name}/" for name in names)

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], handler_call_details: Any) -> Any:
        """See gRPC."""
        if handler_call_details.method.startswith(self._prefixes):
            await self.ready.wait()
        return await continuation(handler_call_details)


class _Started:
    """A server that runs already: generic handlers answer every call, and the table of methods is closed by then."""

    def __init__(self, server: Any) -> None:
        self.add_generic_rpc_handlers = server.add_generic_rpc_handlers

    def add_registered_method_handlers(self, name: str, handlers: object) -> None:
        """Nothing: gRPC would only warn."""


async def run(
    program: str,
    bind: str,
    build: Callable[[], Awaitable[Service]],
    register: Callable[[Any, Any], None],
    names: Sequence[str],
    metrics: Metrics,
    *,
    metrics_port: int | None = None,
    security: Security = PLAIN,
) -> None:
    """Serve until SIGTERM or SIGINT, then let what is in flight finish.

    Health is NOT_SERVING until the service is built, and calls wait for it. Prints one line
    ``READY <program> <host>:<port>`` on standard output once they are answered.

    Args:
        program: for the readiness line.
        bind: ``host:port``; port 0 takes a free one.
        build: makes the service, and lets the event loop run while that takes long; its ``stopping`` event is set
            first at the end, so that streams end after the batch in flight.
        register: the generated function that adds the service to a server.
        names: full names of the services, for health and reflection.
        metrics: of the service.
        metrics_port: port for them on the host of ``bind``, or None.
        security: of its links.

    Raises:
        BindError: the address cannot be bound.
    """
    waiting = _Waiting(names)
    options = [
        # Without this, two servers would bind one port without a word.
        ("grpc.so_reuseport", 0),
        ("grpc.max_concurrent_streams", CALLS_A_CLIENT),
        ("grpc.server_handshake_timeout_ms", _HANDSHAKE_MS),
        # Otherwise a client that asks for signs of life more than twice in five minutes is cut off.
        ("grpc.http2.min_ping_interval_without_data_ms", round(KEEPALIVE_SECONDS * 500)),
    ]
    server = grpc.aio.server(interceptors=[waiting], options=options)
    state = health.aio.HealthServicer()  # type: ignore[attr-defined]
    health_pb2_grpc.add_HealthServicer_to_server(state, server)
    reflection.enable_server_reflection((*names, health.SERVICE_NAME, reflection.SERVICE_NAME), server)
    check_free(bind)
    try:
        if security.encrypted:
            port = server.add_secure_port(bind, security.server_credentials())
        else:
            port = server.add_insecure_port(bind)
    except RuntimeError as error:
        raise BindError(f"cannot bind {bind}: {error}") from error
    host = bind.rpartition(":")[0]
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    for name in ("", *names):
        await state.set(name, health_pb2.HealthCheckResponse.NOT_SERVING)
    with contextlib.ExitStack() as stack:
        if metrics_port is not None:
            stack.callback(MetricsServer(metrics, host, metrics_port).close)
        await server.start()
        try:
            service = await build()
        except BaseException:
            await server.stop(None)
            raise
        register(service, _Started(server))
        waiting.ready.set()
        metrics.ready.set(1)
        for name in ("", *names):
            await state.set(name, health_pb2.HealthCheckResponse.SERVING)
        address = f"{host}:{port}"
        print(f"READY {program} {address}", flush=True)
        level = logging.WARNING if security.insecure else logging.INFO
        _log.log(level, "serving on %s: %s", address, security.describe())
        await stop.wait()
        _log.info("stopping; batches in flight finish first")
        metrics.ready.set(0)
        await state.enter_graceful_shutdown()
        service.stopping.set()
        try:
            await asyncio.wait_for(service.idle(), STOP_SECONDS)
        except TimeoutError:
            _log.warning("calls still run after %.0f s; they are cut off", STOP_SECONDS)
        # Whatever is left now are watchers of the health service, which never end by themselves.
        await server.stop(_LAST_SECONDS)
        await service.close()
    _log.info("stopped")
