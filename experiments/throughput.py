"""Messages a second through one encoder and two decoders as processes on loopback, and where the time goes."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from decoder import Decoder, load_decoder_model
from encoder import Encoder, load_encoder_model
from encoder.client import EncoderClient
from experiments.gaussian import draw
from experiments.processes import ServiceProcess, running, start
from gumbelcast import convert
from gumbelcast.v1 import decoder_pb2, encoder_pb2
from shared_rng import Session, find_model, load_card

MODEL = "gaussian"
DECODERS = 2
BINS = 16
BATCH = 4096
MESSAGES = 100 * BATCH
_RUNS = 3


@dataclass(frozen=True)
class Throughput:
    """A lattice session end to end: from sources at the client to acknowledged reconstructions at all decoders.

    Attributes:
        messages: messages a run.
        batch: messages a batch.
        decoders: K.
        bins: L_max.
        messages_per_second: the middle one of the runs.
        processor_us: processor time a message, of client, encoder and decoders together.
        encoder_us: thereof encoding, as measured in one process.
        decoders_us: thereof decoding at all decoders, as measured in one process.
        serialisation_us: thereof making, writing and reading the messages of the wire, as measured in one process.
        transport_us: the rest: gRPC, sockets, event loops, threads.
    """

    messages: int
    batch: int
    decoders: int
    bins: int
    messages_per_second: float
    processor_us: float
    encoder_us: float
    decoders_us: float
    serialisation_us: float
    transport_us: float


def measure_throughput() -> Throughput:
    """Run the services.

    Raises:
        ServiceFailed: a service did not start.
        RuntimeError: a decoder missed messages.
    """
    sources, sides = draw(1, MESSAGES, DECODERS)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gumbelcast-")))
        decoders = []
        for k, side in enumerate(sides):
            np.save(folder / f"side_{k}.npy", side)
            arguments = ["--model", MODEL, "--side-information", str(folder / f"side_{k}.npy")]
            decoders.append(start(f"decoder {k}", "decoder", arguments, folder / f"decoder_{k}.log"))
        stack.enter_context(running(decoders))
        arguments = ["--model", MODEL, *(part for d in decoders for part in ("--decoder", d.address))]
        encoder = start("encoder", "encoder", arguments, folder / "encoder.log")
        stack.enter_context(running([encoder]))
        client = stack.enter_context(EncoderClient(encoder.address))
        session = client.session(bins=BINS, decoders=DECODERS, seed=0)
        _send(client, session, sources[: 2 * BATCH])  # loads what is compiled
        runs = []
        for seed in range(1, _RUNS + 1):
            session = client.session(bins=BINS, decoders=DECODERS, seed=seed)
            used = _processor_seconds([encoder, *decoders])
            started = time.perf_counter()
            _send(client, session, sources)
            seconds = time.perf_counter() - started
            runs.append((seconds, _processor_seconds([encoder, *decoders]) - used))
    seconds, processor = sorted(runs)[len(runs) // 2]
    encoding, decoding, serialising = _parts(session, sources[:BATCH], [side[:BATCH] for side in sides])
    total = processor / MESSAGES * 1e6
    return Throughput(
        messages=MESSAGES,
        batch=BATCH,
        decoders=DECODERS,
        bins=BINS,
        messages_per_second=MESSAGES / seconds,
        processor_us=total,
        encoder_us=encoding,
        decoders_us=decoding,
        serialisation_us=serialising,
        transport_us=total - encoding - decoding - serialising,
    )


def _send(client: EncoderClient, session: Session, sources: Any) -> None:
    client.open(session)
    for _ in client.encode(session, sources, batch=BATCH):
        pass
    for state in client.await_delivery(session, len(sources)):
        if state.lag:
            raise RuntimeError(f"decoder {state.index} missed messages: {state.reason}")
    client.close(session)


def _processor_seconds(services: Sequence[ServiceProcess]) -> float:
    """Processor time that services and this process have used so far."""
    ticks = 0
    for service in services:
        fields = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])  # user and system time
    return ticks / os.sysconf("SC_CLK_TCK") + time.process_time()


def _parts(session: Session, sources: Any, sides: Sequence[Any]) -> tuple[float, float, float]:
    """Microseconds a message of encoding, of decoding at all decoders, and of the wire's messages."""
    card = load_card(find_model(MODEL))
    encoder = Encoder(session, load_encoder_model(card))
    decoders = [Decoder(session, k, load_decoder_model(card)) for k in range(session.decoders)]
    batch = encoder.encode(sources)
    work = (
        lambda: encoder.encode(sources),
        lambda: [d.decode(batch.payload, side) for d, side in zip(decoders, sides, strict=True)],
        lambda: _serialise(session, sources, batch),
    )
    rounds = []
    for _ in range(20):
        times = []
        for part in work:
            started = time.thread_time()
            part()
            times.append((time.thread_time() - started) / len(sources) * 1e6)
        rounds.append(times)
    encoding, decoding, serialising = np.median(rounds, axis=0).tolist()
    return encoding, decoding, serialising


def _serialise(session: Session, sources: Any, batch: Any) -> None:
    """All that is written and read for one batch, once at each end."""
    count = len(batch.labels)
    request = encoder_pb2.EncodeRequest(session_digest=session.digest, sources=convert.to_tensor(sources))
    convert.from_tensor(encoder_pb2.EncodeRequest.FromString(request.SerializeToString()).sources)
    answer = encoder_pb2.EncodeResponse(count=count, picks=batch.picks.tolist())
    encoder_pb2.EncodeResponse.FromString(answer.SerializeToString())
    message = decoder_pb2.ReceiveMessagesRequest(count=count, payload=batch.payload)
    for _ in range(session.decoders):
        decoder_pb2.ReceiveMessagesRequest.FromString(message.SerializeToString())
        acknowledgement = decoder_pb2.ReceiveMessagesResponse(next_message=count)
        decoder_pb2.ReceiveMessagesResponse.FromString(acknowledgement.SerializeToString())
