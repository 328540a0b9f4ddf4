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
from experiments.catalogue import Model, named_models, shipped_models
from experiments.coding import BATCH, Example, Outcome
from experiments.distortion import best_squared_errors, compare_with_baseline, image_record
from experiments.processes import ServiceProcess, running, start
from experiments.progress import progress
from experiments.recipes import recipe_kind
from experiments.relay import CountingRelays
from experiments.results import Record
from gumbelcast.v1.encoder_pb2 import DecoderState
from shared_rng import CodecError, Session

Floats = npt.NDArray[np.float32]

MODEL = "mnist"
"""Serves the whole grid; the other models of a demo are each for one cell of it."""


@dataclass(frozen=True)
class DemoOptions:
    """What the demo runs.

    Attributes:
        digits: number of digits, 2 … 1000.
        bins: the values of L_max.
        decoders: the values of K; as many decoder processes as the largest run.
        pool_size: N, or None for the smallest of 256 or more that a model's sessions may have.
        seed: of the common randomness.
        models: names or folders of models of MNIST digits.

    Raises:
        CodecError: a value is out of range, or a model is missing or of other data.
    """

    digits: int = 1000
    bins: tuple[int, ...] = (4, 8, 16, 32, 64)
    decoders: tuple[int, ...] = (1, 2, 3, 4)
    pool_size: int | None = None
    seed: int = 1
    models: tuple[str, ...] = (MODEL,)

    def __post_init__(self) -> None:
        if self.digits < 2:
            raise CodecError("digits", self.digits, "at least 2")
        named_models(self.models, "mnist")
        for k in self.decoders:
            for bins in self.bins:
                size = max(2, bins) if self.pool_size is None else self.pool_size
                Session(seed=self.seed, pool_size=size, bins=bins, decoders=k, model_digest=bytes(32))


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
            picks.extend(answer.picks)
            payload_bytes += answer.payload_bytes
            advance(answer.count)
        for state in self.encoder.await_delivery(session, len(sources)):
            if state.lag:
                raise RuntimeError(f"decoder {state.index} missed messages: {state.reason}")
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


def deploy(stack: ExitStack, model: Path, sides: Sequence[Floats], folder: Path) -> Deployment:
    """Start one decoder a crop of side information, the relays and the encoder; the stack stops them."""
    decoders: list[ServiceProcess] = []
    for k, side in enumerate(sides):
        path = folder / f"side_information_{k}.npy"
        np.save(path, side)
        arguments = ["--model", str(model), "--bind", "127.0.0.1:0", "--side-information", str(path)]
        decoders.append(start(f"decoder {k}", "decoder", arguments, folder / f"decoder_{k}.log"))
    stack.enter_context(running(decoders))
    relays = stack.enter_context(CountingRelays([d.address for d in decoders]))
    arguments = ["--model", str(model), "--bind", "127.0.0.1:0"]
    for address in relays.addresses:
        arguments += ["--decoder", address]
    encoder = start("encoder", "encoder", arguments, folder / "encoder.log")
    stack.enter_context(running([encoder]))
    return Deployment(
        stack.enter_context(EncoderClient(encoder.address)),
        [stack.enter_context(DecoderClient(d.address)) for d in decoders],
        relays,
    )


def tuned_models() -> list[str]:
    """Names of the shipped models of MNIST digits that are each for one cell: list codes, by rate."""
    models = [model for model in shipped_models() if (model.recipe, model.dataset) == ("list", "mnist")]
    return [model.folder.name for model in sorted(models, key=lambda model: int(model.options["bins"]))]


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
    grid = [(k, bins) for k in options.decoders for bins in options.bins]
    middle = max(options.decoders), options.bins[len(options.bins) // 2]
    models = named_models(options.models, "mnist")
    cells = [(model, [cell for cell in grid if model.serves(*cell)]) for model in models]
    if not any(middle in own for _, own in cells):
        expected = f"one for K = {middle[0]} and L_max = {middle[1]}"
        raise CodecError("models", ", ".join(options.models), expected)
    records: list[Record] = []
    examples: list[Example] = []
    with progress() as bar:
        total = sum(len(own) * len(recipe_kind(model.recipe).couplings) for model, own in cells)
        task = bar.add_task("", total=total * len(sources))
        for model, own in cells:
            if not own:
                continue
            bar.update(task, description=f"{model.folder.name}: starting one encoder and the decoders")
            with ExitStack() as stack:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gumbelcast-")))
                deployment = deploy(stack, model.folder, sides[: max(k for k, _ in own)], folder)
                for cell in own:
                    bar.update(task, description=f"{model.folder.name}: K = {cell[0]}, L_max = {cell[1]}")
                    found, first = _code_cell(deployment, model, cell, options, sources, lambda n: bar.advance(task, n))
                    records += found
                    if cell == middle:
                        title = (
                            f"{model.folder.name}, {found[0].coupling}, K = {cell[0]}, {found[0].bits} bits a message"
                        )
                        examples.append(Example(sources, np.stack(sides), first, title))
    return records, examples[0]


def _code_cell(
    deployment: Deployment,
    model: Model,
    cell: tuple[int, int],
    options: DemoOptions,
    sources: Floats,
    advance: Callable[[int], None],
) -> tuple[list[Record], Outcome]:
    """One cell with every coupling of the model's recipe: the records, and what came of the first coupling."""
    outcomes: list[Outcome] = []
    records: list[Record] = []
    kind = recipe_kind(model.recipe)
    usual = kind.usual_pool_size(model.card, *cell)
    for coupling in kind.couplings:
        session = deployment.encoder.session(
            pool_size=usual if model.card.source == "codebook" else options.pool_size or usual,
            bins=cell[1],
            decoders=cell[0],
            coupling=coupling,
            seed=options.seed,
        )
        started = time.perf_counter()
        outcome, *transport = deployment.code(session, sources, advance)
        records.append(_record(session, outcome, sources, time.perf_counter() - started, model, transport))
        outcomes.append(outcome)
    if len(records) == 2:
        gls, baseline = (best_squared_errors(sources, outcome.reconstructions) for outcome in outcomes)
        records[0] = compare_with_baseline(records[0], gls, baseline)
    return records, outcomes[0]


def _record(
    session: Session, outcome: Outcome, sources: Floats, seconds: float, model: Model, transport: Sequence[int]
) -> Record:
    errors = best_squared_errors(sources, outcome.reconstructions)
    return dataclasses.replace(
        image_record("mnist", session, outcome, errors, seconds),
        recipe=model.recipe,
        model=model.folder.name,
        model_digest=model.card.digest.hex(),
        transport_bytes=transport[0],
        transport_bytes_back=transport[1],
    )
