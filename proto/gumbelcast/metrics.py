"""What a service counts, for Prometheus, and an HTTP port that tells it along with whether the service is ready."""

from __future__ import annotations

import http.server
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily

from gumbelcast.bind import check_free

_SECONDS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_T = TypeVar("_T")
_log = logging.getLogger("gumbelcast")


def timed(function: Callable[..., _T], *arguments: Any) -> tuple[_T, float]:
    """What a function returns, and the seconds that it took."""
    started = time.perf_counter()
    return function(*arguments), time.perf_counter() - started


@dataclass(frozen=True)
class Reading:
    """A figure that is asked for when somebody looks: its name, help, label names, and label values with a value."""

    name: str
    help: str
    labels: Sequence[str]
    values: Sequence[tuple[Sequence[str], float]]


class Metrics:
    """The figures of one service; counting costs next to nothing, whether anybody looks or not.

    Attributes:
        registry: of this service alone.
        messages: messages encoded or decoded.
        bits: bits of those messages.
        payload_bytes: bytes of their batches, once however many decoders they go to.
        seconds: time of one batch in the encoder or decoder, waiting not counted.
        refused: calls that ended with a refusal, by status.
        failed: messages that could not be decoded.
        ready: 1 while the service takes calls.
        read: the figures that are asked for; called from another thread.
    """

    def __init__(self, work: str) -> None:
        """Begin at zero, with ``encode`` or ``decode`` as the work."""
        self.registry = CollectorRegistry()
        self.read: Callable[[], Iterable[Reading]] = tuple
        here: dict[str, Any] = {"registry": self.registry, "namespace": "gumbelcast"}
        self.messages = Counter("messages", f"Messages {work}d", **here)
        self.bits = Counter("bits", "Bits of those messages", **here)
        self.payload_bytes = Counter("payload_bytes", "Bytes of the packed batches", **here)
        self.seconds = Histogram(f"{work}_seconds", f"Time to {work} a batch", buckets=_SECONDS, **here)
        self.refused = Counter("refused", "Calls that were refused, by status", ["reason"], **here)
        self.failed = Counter("failed_messages", "Messages that could not be decoded", **here)
        self.ready = Gauge("ready", "1 while calls are answered", **here)
        self.registry.register(self)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """The figures that are asked for; called by the registry."""
        for reading in self.read():
            family = GaugeMetricFamily(f"gumbelcast_{reading.name}", reading.help, labels=reading.labels)
            for labels, value in reading.values:
                family.add_metric(labels, value)
            yield family

    def count(self, messages: int, bits: int, payload_bytes: int, seconds: float) -> None:
        """One batch that was encoded or decoded; ``bits`` a message."""
        self.messages.inc(messages)
        self.bits.inc(messages * bits)
        self.payload_bytes.inc(payload_bytes)
        self.seconds.observe(seconds)


class MetricsServer:
    """Answers ``/metrics``, ``/live`` and ``/ready`` (503 until and after calls are answered) in plain HTTP."""

    def __init__(self, metrics: Metrics, host: str, port: int) -> None:
        """Listen.

        Raises:
            BindError: the port cannot be bound.
        """
        check_free(f"{host}:{port}")
        kind = type("Server", (http.server.ThreadingHTTPServer,), {"address_family": _family(host)})
        self._server: http.server.ThreadingHTTPServer = kind((host.strip("[]"), port), _handler(metrics))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, name="metrics", daemon=True).start()
        _log.info("metrics on http://%s:%d/metrics", host, self._server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self._server.shutdown()
        self._server.server_close()


def _family(host: str) -> socket.AddressFamily:
    return socket.getaddrinfo(host.strip("[]"), None)[0][0]


def _handler(metrics: Metrics) -> type[http.server.BaseHTTPRequestHandler]:
    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 10.0

        def do_GET(self) -> None:
            """Answer one request."""
            if self.path == "/metrics":
                self._answer(HTTPStatus.OK, generate_latest(metrics.registry))
            elif self.path == "/live":
                self._answer(HTTPStatus.OK, b"live\n")
            elif self.path == "/ready":
                ready = metrics.registry.get_sample_value("gumbelcast_ready") == 1
                self._answer(*((HTTPStatus.OK, b"ready\n") if ready else (HTTPStatus.SERVICE_UNAVAILABLE, b"no\n")))
            else:
                self._answer(HTTPStatus.NOT_FOUND, b"/metrics, /ready or /live\n")

        def _answer(self, status: HTTPStatus, text: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: probes come every few seconds."""

    return Handler
