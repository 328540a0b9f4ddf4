"""Load on running services: messages a second and bytes a message by batch size, latency, and memory over a long run.

All processes are on loopback; bytes are counted by relays between the encoder and its decoders.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from encoder.client import EncoderClient
from experiments import images
from experiments.gaussian import draw
from experiments.processes import ServiceProcess, running, start
from experiments.relay import CountingRelays
from shared_rng import CodecError, Session

LOAD_NAME = "load.json"
BINS = 16
SCHEMES = ("lattice", "iid", "images")
"""Gaussian source on a lattice; on the paper's pool, N = 2^15; the demo's digits, N = 256."""
POOL_SIZES = {"lattice": None, "iid": 2**15, "images": 256}
SOAK_BATCH = 4096
SOAK_DECODERS = 2
COLUMNS = ("scheme", "K", "batch", "messages", "messages/s", "payload B", "transport B", "p50 ms", "p99 ms")


@dataclass(frozen=True, kw_only=True)
class LoadCell:
    """One scheme, K and batch size; from the first source at the client to the last acknowledgement.

    Attributes:
        scheme: one of ``SCHEMES``.
        decoders: K.
        batch: messages a batch.
        messages: messages sent.
        messages_per_second: end to end.
        payload_bytes: bytes of packed messages, a message, once for all decoders.
        transport_bytes: bytes from the encoder to one decoder, a message.
        p50_ms: median time of a batch from its request to its answer, one batch at a time; with a batch of one, the
            latency of a single message until it is accepted.
        p99_ms: the same of the 99th percentile.
    """

    scheme: str
    decoders: int
    batch: int
    messages: int
    messages_per_second: float
    payload_bytes: float
    transport_bytes: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True)
class Soak:
    """Memory of each process over a long run: messages so far, and MiB by process at each point, mapped files apart."""

    messages: list[int]
    resident_mib: dict[str, list[float]]

    def growth(self) -> dict[str, float]:
        """MiB that each process grew by after the first point."""
        return {name: values[-1] - values[0] for name, values in self.resident_mib.items()}


class Load:
    """Running services of one scheme with K decoders, and a client."""

    def __init__(self, client: EncoderClient, relays: CountingRelays, services: dict[str, ServiceProcess]) -> None:
        self.client = client
        self.relays = relays
        self.services = services

    def resident_mib(self) -> dict[str, float]:
        """Memory of each process, in MiB."""
        return {name: _resident(service) / 2**20 for name, service in self.services.items()}

    def send(self, session: Session, sources: Any, first: int, batch: int) -> int:
        """Send sources and wait until all decoders have acknowledged them; returns the payload's bytes.

        Raises:
            RuntimeError: a decoder missed messages.
        """
        payload = sum(answer.payload_bytes for answer in self.client.encode(session, sources, first, batch))
        for state in self.client.await_delivery(session, first + len(sources)):
            if state.next_message < first + len(sources):
                raise RuntimeError(f"decoder {state.index} missed messages: {state.reason}")
        return payload

    def latencies(self, session: Session, sources: Any, first: int, batch: int) -> list[float]:
        """Seconds from request to answer of each batch, one at a time."""
        found = []
        for place in range(0, len(sources), batch):
            started = time.perf_counter()
            list(self.client.encode(session, sources[place : place + batch], first + place, batch))
            found.append(time.perf_counter() - started)
        self.client.await_delivery(session, first + len(sources))
        return found


@contextmanager
def deployed(scheme: str, sides: Sequence[Any], *, keep_files: bool = False) -> Iterator[Load]:
    """Start one encoder, a decoder a row of side information and the relays; stop them at the end.

    Args:
        scheme: one of ``SCHEMES``.
        sides: side information of each decoder.
        keep_files: whether reconstructions go to files; otherwise decoders keep them in memory.
    """
    model = "mnist" if scheme == "images" else "gaussian"
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gumbelcast-")))
        services = {}
        for k, side in enumerate(sides):
            np.save(folder / f"side_{k}.npy", side)
            arguments = ["--model", model, "--side-information", str(folder / f"side_{k}.npy")]
            arguments += ["--out", str(folder / f"out_{k}")] if keep_files else []
            services[f"decoder {k}"] = start(f"decoder {k}", "decoder", arguments, folder / f"decoder_{k}.log")
        stack.enter_context(running(list(services.values())))
        relays = stack.enter_context(CountingRelays([service.address for service in services.values()]))
        arguments = ["--model", model, *(part for address in relays.addresses for part in ("--decoder", address))]
        services["encoder"] = start("encoder", "encoder", arguments, folder / "encoder.log")
        stack.enter_context(running([services["encoder"]]))
        yield Load(stack.enter_context(EncoderClient(services["encoder"].address)), relays, services)


def data(scheme: str, messages: int, decoders: int) -> tuple[Any, list[Any]]:
    """Sources and side information; digits come again and again."""
    if scheme == "images":
        digits = np.resize(images.bundled_digits(min(messages, 1000)), (messages, 28, 28))
        return images.MNIST.sources(digits), [images.MNIST.side_information(digits, k) for k in range(decoders)]
    return draw(1, messages, decoders)


def run_load(
    schemes: Sequence[str],
    decoders: Sequence[int],
    batches: Sequence[int],
    messages: int,
    tell: Callable[[str], None],
) -> list[LoadCell]:
    """Measure every cell; small batches send fewer messages, at most 200 batches of them.

    Raises:
        CodecError: a scheme is unknown.
        ServiceFailed: a service did not start.
        RuntimeError: a decoder missed messages.
    """
    for scheme in schemes:
        if scheme not in SCHEMES:
            raise CodecError("schemes", scheme, " or ".join(SCHEMES))
    cells = []
    for scheme in schemes:
        for count in decoders:
            sources, sides = data(scheme, messages, count)
            with deployed(scheme, sides) as load:
                for batch in batches:
                    cells.append(_measure(load, scheme, count, batch, sources))
                    tell(f"{scheme}, K = {count}, batches of {batch}: {cells[-1].messages_per_second:.0f} messages/s")
    return cells


def _measure(load: Load, scheme: str, decoders: int, batch: int, sources: Any) -> LoadCell:
    """One cell: a session to warm up, one for throughput and one for latency."""
    sent = sources[: min(len(sources), 200 * batch)]
    few = sources[: min(len(sources), 100 * batch if batch == 1 else 20 * batch)]
    with _session(load, scheme, decoders) as session:
        load.send(session, sent[: 2 * batch], 0, batch)
    with _session(load, scheme, decoders) as session:
        forward, started = load.relays.forward, time.perf_counter()
        payload = load.send(session, sent, 0, batch)
        seconds, forward = time.perf_counter() - started, load.relays.forward - forward
    with _session(load, scheme, decoders) as session:
        times = load.latencies(session, few, 0, batch)
    return LoadCell(
        scheme=scheme,
        decoders=decoders,
        batch=batch,
        messages=len(sent),
        messages_per_second=len(sent) / seconds,
        payload_bytes=payload / len(sent),
        transport_bytes=forward / decoders / len(sent),
        p50_ms=float(np.quantile(times, 0.5)) * 1e3,
        p99_ms=float(np.quantile(times, 0.99)) * 1e3,
    )


@contextmanager
def _session(load: Load, scheme: str, decoders: int) -> Iterator[Session]:
    """A session of its own seed, which no other has."""
    session = load.client.session(
        bins=BINS, decoders=decoders, pool="lattice" if scheme == "lattice" else "iid",
        pool_size=POOL_SIZES[scheme],
    )  # fmt: skip
    load.client.open(session)
    yield session
    load.client.close(session)


def run_soak(messages: int, tell: Callable[[str], None]) -> Soak:
    """Memory of each process over so many lattice messages, at every tenth of them; reconstructions go to files.

    Raises:
        ServiceFailed: a service did not start.
        RuntimeError: a decoder missed messages.
    """
    sources, sides = data("lattice", messages, SOAK_DECODERS)
    step = max(SOAK_BATCH, messages // 10 // SOAK_BATCH * SOAK_BATCH)
    counts: list[int] = []
    resident: list[dict[str, float]] = []
    with deployed("lattice", sides, keep_files=True) as load, _session(load, "lattice", SOAK_DECODERS) as session:
        for first in range(0, messages, step):
            part = sources[first : first + step]
            load.send(session, part, first, SOAK_BATCH)
            counts.append(first + len(part))
            resident.append(load.resident_mib())
            tell(f"{counts[-1]} messages: " + ", ".join(f"{n} {m:.0f} MiB" for n, m in resident[-1].items()))
    return Soak(counts, {name: [each[name] for each in resident] for name in resident[0]})


def row(cell: LoadCell) -> list[str]:
    """One line of the table."""
    return [
        cell.scheme, str(cell.decoders), str(cell.batch), str(cell.messages), f"{cell.messages_per_second:.0f}",
        f"{cell.payload_bytes:.3g}", f"{cell.transport_bytes:.3g}", f"{cell.p50_ms:.2f}", f"{cell.p99_ms:.2f}",
    ]  # fmt: skip


def write(folder: Path, configuration: dict[str, Any], cells: Sequence[LoadCell], soak: Soak | None) -> Path:
    """Write ``load.json``; returns its path."""
    path = folder / LOAD_NAME
    content = {
        "configuration": configuration,
        "cells": [asdict(cell) for cell in cells],
        "soak": None if soak is None else asdict(soak),
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return path


def _resident(service: ServiceProcess) -> int:
    """Resident memory of a process in bytes, less what is mapped from files."""
    status = Path(f"/proc/{service.process.pid}/status").read_text()
    (line,) = (line for line in status.splitlines() if line.startswith("RssAnon:"))
    return int(line.split()[1]) * 1024
