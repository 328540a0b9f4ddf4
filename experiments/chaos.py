"""Faults at random on real services under load: every accepted message is decoded once by every decoder, and right.

One encoder with a journal and K decoders that write files run behind a network that fails. A sender feeds them while
processes are killed and stopped, and links are cut, held and slowed. Whoever is killed is started again with the same
command, as a supervisor would do it. At the end all files are compared with the codec in one process.
"""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from decoder import load_decoder_model
from encoder import load_encoder_model
from encoder.client import EncoderClient
from experiments.coding import code_in_process
from experiments.fault_relay import FaultyRelays
from experiments.gaussian import draw
from experiments.processes import ServiceProcess, start
from shared_rng import CodecError, Session, find_model, load_card

MODEL = "gaussian"
CHAOS_NAME = "chaos.json"
BINS = 16
BATCHES = (1, 16, 64, 256)
"""Batch sizes, one of them at random a stream."""

RATE = 1000
"""Messages a second that the sender offers."""

HELD_SECONDS, SLOWED_SECONDS = 2.0, 0.05
"""What every piece of data waits on a link that is held or slowed."""

RECOVERY_SECONDS = 180.0
"""A deployment that has not delivered everything by then has not recovered."""

_STREAM_BATCHES = 8
_CHECK_MESSAGES = 4096


class NotRecovered(RuntimeError):
    """Messages did not arrive after a fault was over."""


@dataclass
class Chaos:
    """What happened.

    Attributes:
        messages: accepted ones.
        batches: accepted ones.
        faults: how many of each kind.
        lost: messages that a decoder did not write, all decoders together.
        duplicates: messages that a decoder wrote more than once.
        wrong: messages whose pick or reconstruction is not that of one process.
        recovery_seconds: from the end of a round of faults (a killed process: from its start) until every decoder
            had acknowledged all that was accepted by then, in order of size.
    """

    messages: int = 0
    batches: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    lost: int = 0
    duplicates: int = 0
    wrong: int = 0
    recovery_seconds: list[float] = field(default_factory=list)

    def write(self, folder: Path, configuration: dict[str, Any]) -> Path:
        """Write ``chaos.json``."""
        path = folder / CHAOS_NAME
        path.write_text(json.dumps({"configuration": configuration, **asdict(self)}, indent=1), encoding="utf-8")
        return path

    def summary(self) -> list[str]:
        """Lines to print."""
        recovery = self.recovery_seconds
        median, longest = (float(np.median(recovery)), max(recovery)) if recovery else (0.0, 0.0)
        return [
            f"{self.messages} messages accepted in {self.batches} batches",
            ", ".join(f"{count} × {kind}" for kind, count in sorted(self.faults.items())) or "no faults",
            f"{self.lost} lost, {self.duplicates} decoded twice, {self.wrong} not as in one process",
            f"recovery of {len(recovery)} rounds: median {median:.1f} s, longest {longest:.1f} s",
        ]


class Deployment:
    """An encoder with a journal, K decoders with files, and the links between them and to the encoder."""

    def __init__(self, stack: ExitStack, folder: Path, sides: list[Any]) -> None:
        self._folder = folder
        self._commands: list[tuple[str, str, list[str]]] = []
        self.services: list[ServiceProcess] = []
        stack.callback(self._stop)
        for k, side in enumerate(sides):
            path = folder / f"side_{k}.npy"
            np.save(path, side)
            self._launch(f"decoder {k}", "decoder", ["--side-information", str(path), "--out", str(self.out(k))])
        for service in self.services:
            service.wait_ready()
        self.links = stack.enter_context(FaultyRelays([service.address for service in self.services]))
        decoders = [part for address in self.links.addresses for part in ("--decoder", address)]
        self._launch("encoder", "encoder", [*decoders, "--journal", str(folder / "journal"), "--decoder-wait", "5"])
        self.services[-1].wait_ready()
        self.to_encoder = stack.enter_context(FaultyRelays([self.services[-1].address]))

    def out(self, decoder: int) -> Path:
        """The folder of a decoder's reconstructions."""
        return self._folder / f"out_{decoder}"

    def restart(self, place: int) -> None:
        """Start a killed service again with the same command, on the address that it had."""
        killed = self.services[place]
        killed.process.wait()
        if killed.process.stdout is not None:
            killed.process.stdout.close()
        name, module, arguments = self._commands[place]
        self.services[place] = start(name, module, [*arguments, "--bind", killed.address], killed.log)
        self.services[place].wait_ready()

    def _launch(self, name: str, module: str, arguments: list[str]) -> None:
        command = ["--model", MODEL, "--log-level", "warning", *arguments]
        self._commands.append((name, module, command))
        self.services.append(start(name, module, command, self._folder / f"{name.replace(' ', '_')}.log"))

    def _stop(self) -> None:
        for service in self.services:
            # A stopped process would not hear that it is to end.
            for number in (signal.SIGCONT, signal.SIGTERM):
                if service.process.poll() is None:
                    os.kill(service.process.pid, number)
        for service in self.services:
            service.wait_ended()


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong at one place, how it begins and how it ends."""

    kind: str
    place: str
    begin: Callable[[], None]
    end: Callable[[], None]


def possible_faults(world: Deployment) -> list[Fault]:
    """Every fault of every process and link."""

    def signalled(place: int, number: signal.Signals) -> Callable[[], None]:
        return lambda: os.kill(world.services[place].process.pid, number)

    faults = []
    for i, service in enumerate(world.services):
        role = service.name.split()[0]
        faults += [
            Fault(f"{role} killed", service.name, signalled(i, signal.SIGKILL), partial(world.restart, i)),
            Fault(f"{role} stopped", service.name, signalled(i, signal.SIGSTOP), signalled(i, signal.SIGCONT)),
        ]
    links = [(world.links, k, f"link to decoder {k}") for k in range(len(world.services) - 1)]
    for relays, link, place in [*links, (world.to_encoder, 0, "link to the encoder")]:
        freed = partial(relays.delay, link, 0.0)
        faults += [
            Fault("link cut", place, partial(relays.cut, link), freed),
            Fault("link held", place, partial(relays.delay, link, HELD_SECONDS), freed),
            Fault("link slowed", place, partial(relays.delay, link, SLOWED_SECONDS), freed),
        ]
    return faults


class Sender(threading.Thread):
    """Sends sources at a steady rate, in batches of random sizes, until it is told to stop or has sent all."""

    def __init__(self, address: str, session: Session, sources: Any, seed: int) -> None:
        super().__init__(name="sender", daemon=True)
        self.accepted = 0
        self.batches = 0
        self.failure: Exception | None = None
        self.stopping = threading.Event()
        self._address = address
        self._session = session
        self._sources = sources
        self._random = random.Random(seed)

    def run(self) -> None:
        """Send; a failure is kept for whoever waits."""
        try:
            with EncoderClient(self._address) as client:
                started = time.monotonic()
                while not self.stopping.is_set() and self.accepted < len(self._sources):
                    batch = self._random.choice(BATCHES)
                    rows = slice(self.accepted, self.accepted + batch * _STREAM_BATCHES)
                    for answer in client.send(self._session, self._sources[rows], self.accepted, batch):
                        self.accepted += answer.count
                        self.batches += 1
                    self.stopping.wait(max(0.0, self.accepted / RATE - (time.monotonic() - started)))
        except (grpc.RpcError, ValueError) as error:
            self.failure = error


def run_chaos(seconds: float, decoders: int, seed: int, tell: Callable[[str], None]) -> Chaos:
    """Run services under faults for some time, let them recover, and check every message.

    Args:
        seconds: how long faults happen.
        decoders: K.
        seed: of sources, side information, common randomness and faults.
        tell: takes one line a round.

    Raises:
        CodecError: an option is out of range.
        ServiceFailed: a service did not start.
        NotRecovered: messages did not arrive after a fault.
        RuntimeError: the sender was refused.
    """
    if not seconds > 0.0:
        raise CodecError("seconds", seconds, "above 0")
    if not 1 <= decoders <= 64:
        raise CodecError("decoders", decoders, "1 … 64")
    chaos, chance = Chaos(), random.Random(seed)
    sources, sides = draw(seed, int((seconds + RECOVERY_SECONDS) * RATE), decoders)
    with tempfile.TemporaryDirectory(prefix="gumbelcast-chaos-") as name, ExitStack() as stack:
        world = Deployment(stack, Path(name), list(sides))
        with EncoderClient(world.services[-1].address) as client:
            session = client.session(bins=BINS, decoders=decoders, seed=seed)
            client.open(session)
        sender = Sender(world.to_encoder.addresses[0], session, sources, seed)
        sender.start()
        faults, ends = possible_faults(world), time.monotonic() + seconds
        while time.monotonic() < ends and sender.failure is None:
            time.sleep(chance.uniform(0.3, 1.0))
            places = chance.sample(sorted({fault.place for fault in faults}), chance.choice((1, 1, 2, 3)))
            chosen = [chance.choice([fault for fault in faults if fault.place == place]) for place in places]
            for fault in chosen:
                fault.begin()
                chaos.faults[fault.kind] = chaos.faults.get(fault.kind, 0) + 1
            time.sleep(chance.uniform(0.2, 2.0))
            over = time.monotonic()
            for fault in chosen:
                fault.end()
            _await_everything(world, sender)
            chaos.recovery_seconds.append(time.monotonic() - over)
            names = ", ".join(f"{fault.place}: {fault.kind}" for fault in chosen)
            tell(f"{sender.accepted} messages; {names}: recovered in {chaos.recovery_seconds[-1]:.1f} s")
        sender.stopping.set()
        sender.join(RECOVERY_SECONDS)
        if sender.failure is not None or sender.is_alive():
            raise RuntimeError(f"the sender ended: {sender.failure or 'not within its time'}")
        _await_everything(world, sender)
        chaos.messages, chaos.batches = sender.accepted, sender.batches
        chaos.recovery_seconds.sort()
        outs = [world.out(k) for k in range(decoders)]
        check(chaos, session, sources[: sender.accepted], [side[: sender.accepted] for side in sides], outs)
    return chaos


def _await_everything(world: Deployment, sender: Sender) -> None:
    """Wait until every decoder has acknowledged all that is accepted at this moment."""
    accepted, ends = sender.accepted, time.monotonic() + RECOVERY_SECONDS
    lacking: Any = "the encoder does not answer"
    while time.monotonic() < ends:
        try:
            with EncoderClient(world.services[-1].address) as client:
                (state,) = client.status().sessions
                lacking = [d for d in state.decoders if d.next_message < accepted]
                if not lacking:
                    return
        except grpc.RpcError as error:
            lacking = error
        time.sleep(0.05)
    raise NotRecovered(f"message {accepted - 1} did not arrive within {RECOVERY_SECONDS:.0f} s: {lacking}")


def check(chaos: Chaos, session: Session, sources: Any, sides: list[Any], outs: list[Path]) -> None:
    """Compare what decoders wrote with what one process makes of the same messages."""
    card = load_card(find_model(MODEL))
    models = load_encoder_model(card), load_decoder_model(card)
    expected = code_in_process(session, *models, sources, sides, _CHECK_MESSAGES)
    for k, out in enumerate(outs):
        written = np.zeros(len(sources), dtype=np.int64)
        picks = np.full(len(sources), -1, dtype=np.int64)
        reconstructions = np.full(len(sources), np.nan, dtype=np.float32)
        for path in out.rglob("*.npz"):
            with path.open("rb") as stream, np.load(stream) as batch:
                rows = slice(int(batch["first_message"]), int(batch["first_message"]) + len(batch["picks"]))
                written[rows] += 1
                picks[rows], reconstructions[rows] = batch["picks"], batch["reconstructions"]
        same = (picks == expected.decoder_picks[k]) & (
            reconstructions == expected.reconstructions[k].astype(np.float32)
        )
        chaos.lost += int((written == 0).sum())
        chaos.duplicates += int((written > 1).sum())
        chaos.wrong += int(((written > 0) & ~same).sum())
