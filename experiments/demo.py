"""The main job, end to end: one encoder and K decoders as processes, real digits, MSE against bits."""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from decoder.client import DecoderClient
from encoder.client import EncoderClient
from experiments import images
from experiments.coding import BATCH, Example, Outcome
from experiments.distortion import best_squared_errors, compare_with_baseline, image_record
from experiments.processes import ServiceProcess, running, start
from experiments.progress import progress
from experiments.relay import CountingRelays
from experiments.results import Record
from gumbelcast.v1.encoder_pb2 import DecoderState
from shared_rng import Coupling, Session

Floats = npt.NDArray[np.float32]

COUPLINGS: tuple[Coupling, ...] = ("gls", "baseline")
MODEL = "mnist"


@dataclass(frozen=True)
class DemoOptions:
    """What the demo runs.

    Attributes:
        digits: number of digits, 1 … 1000.
        bins: the values of L_max.
        decoders: the values of K; as many decoder processes as the largest run.
        pool_size: N.
        seed: of the common randomness.

    Raises:
        CodecError: a value is out of range.
    """

    digits: int = 1000
    bins: tuple[int, ...] = (4, 8, 16, 32, 64)
    decoders: tuple[int, ...] = (1, 2, 3, 4)
    pool_size: int = 256
    seed: int = 1

    def __post_init__(self) -> None:
        for k in self.decoders:
            for bins in self.bins:
                Session(seed=self.seed, pool_size=self.pool_size, bins=bins, decoders=k, model_digest=bytes(32))


class Deployment:
    """Running services and clients: one encoder, its decoders, and counting relays between them."""

    def __init__(self, encoder: EncoderClient, decoders: Sequence[DecoderClient], relays: CountingRelays) -> None:
        self.encoder = encoder
        self.decoders = decoders
        self.relays = relays

    def code(self, session: Session, sources: Floats, advance: Callable[[int], None]) -> tuple[Outcome, int, int]:
        """Send sources through the services; returns what came of them and the bytes there and back.

        Raises:
            RuntimeError: a decoder did not get every message.
        """
        forward, back = self.relays.forward, self.relays.back
        self._require_all(session, self.encoder.open(session).decoders)
        picks: list[int] = []
        payload_bytes = 0
        for answer in self.encoder.encode(session, sources, batch=BATCH):
            for delivery in answer.deliveries:
                if not delivery.acknowledged:
                    raise RuntimeError(f"decoder {delivery.index} missed messages: {delivery.reason}")
            picks.extend(answer.picks)
            payload_bytes += answer.payload_bytes
            advance(answer.count)
        forward, back = self.relays.forward - forward, self.relays.back - back
        read = [decoder.read(session.digest, len(sources)) for decoder in self.decoders[: session.decoders]]
        self.encoder.close(session)
        outcome = Outcome(
            encoder_picks=np.array(picks, dtype=np.int64),
            decoder_picks=np.stack([picked for picked, _ in read]),
            reconstructions=np.stack([reconstructed for _, reconstructed in read]).astype(np.float64),
            payload_bytes=payload_bytes,
        )
        return outcome, forward, back

    @staticmethod
    def _require_all(session: Session, states: Sequence[DecoderState]) -> None:
        missing = [f"decoder {state.index}: {state.reason}" for state in states if not state.ready]
        if missing:
            raise RuntimeError(f"session {session.digest.hex()[:16]}: {'; '.join(missing)}")


def deploy(stack: ExitStack, sides: Sequence[Floats], folder: Path) -> Deployment:
    """Start one decoder a crop of side information, the relays and the encoder; the stack stops them."""
    decoders: list[ServiceProcess] = []
    for k, side in enumerate(sides):
        path = folder / f"side_information_{k}.npy"
        np.save(path, side)
        arguments = ["--model", MODEL, "--bind", "127.0.0.1:0", "--side-information", str(path)]
        decoders.append(start(f"decoder {k}", "decoder", arguments, folder / f"decoder_{k}.log"))
    stack.enter_context(running(decoders))
    relays = stack.enter_context(CountingRelays([d.address for d in decoders]))
    arguments = ["--model", MODEL, "--bind", "127.0.0.1:0"]
    for address in relays.addresses:
        arguments += ["--decoder", address]
    encoder = start("encoder", "encoder", arguments, folder / "encoder.log")
    stack.enter_context(running([encoder]))
    return Deployment(
        stack.enter_context(EncoderClient(encoder.address)),
        [stack.enter_context(DecoderClient(d.address)) for d in decoders],
        relays,
    )


def run_demo(options: DemoOptions) -> tuple[list[Record], Example]:
    """Run every cell through real processes on loopback.

    Raises:
        CodecError: an option is out of range.
        ServiceFailed: a service did not start.
        RuntimeError: a decoder missed messages.
    """
    digits = images.bundled_digits(options.digits)
    sources = images.MNIST.sources(digits)
    sides = [images.MNIST.side_information(digits, k) for k in range(max(options.decoders))]
    middle = options.bins[len(options.bins) // 2]
    records: list[Record] = []
    example: Example | None = None
    cells = [(k, bins) for k in options.decoders for bins in options.bins]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gumbelcast-")))
        bar = stack.enter_context(progress())
        task = bar.add_task("starting one encoder and the decoders", total=len(cells) * 2 * len(sources))
        deployment = deploy(stack, sides, folder)
        for k, bins in cells:
            errors, cell = {}, {}
            for coupling in COUPLINGS:
                bar.update(task, description=f"{coupling}, K = {k}, {bins.bit_length() - 1} bits")
                session = deployment.encoder.session(
                    pool_size=options.pool_size, bins=bins, decoders=k, coupling=coupling, seed=options.seed
                )
                started = time.perf_counter()
                outcome, forward, back = deployment.code(session, sources, lambda n: bar.advance(task, n))
                seconds = time.perf_counter() - started
                errors[coupling] = best_squared_errors(sources, outcome.reconstructions)
                record = image_record("mnist", session, outcome, errors[coupling], seconds)
                cell[coupling] = dataclasses.replace(record, transport_bytes=forward, transport_bytes_back=back)
                if (k, bins, coupling) == (max(options.decoders), middle, "gls"):
                    title = f"GLS, K = {k}, {bins.bit_length() - 1} bits a message"
                    example = Example(sources, np.stack(sides), outcome, title)
            records += [compare_with_baseline(cell["gls"], errors["gls"], errors["baseline"]), cell["baseline"]]
    assert example is not None
    return records, example
