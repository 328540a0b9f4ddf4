"""Faults at random on real services under load: every accepted message is decoded once by every decoder, and right.

One encoder with a journal and K decoders that write files run on hosts with links that fail. A sender feeds them while
processes are killed and stopped, and links fail. Whoever is killed is started again with the same command, as a
supervisor would do it. At the end all files are compared with the codec in one process.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from decoder import load_decoder_model
from encoder import load_encoder_model
from experiments.coding import code_in_process
from experiments.deployment import MODEL, RATE, Deployment, Sender
from experiments.faults import draw_faults
from experiments.gaussian import draw
from experiments.hosts import Hosts, find_hosts
from gumbelcast.probe import NotTrusted
from shared_rng import CodecError, Session, find_model, load_card

CHAOS_NAME = "chaos.json"
BINS = 16
RECOVERY_SECONDS = 180.0
"""A deployment that has not delivered everything by then has not recovered."""

_CHECK_MESSAGES = 4096


class NotRecovered(RuntimeError):
    """Messages did not arrive after a fault was over."""


@dataclass
class Chaos:
    """What happened.

    Attributes:
        hosts: what they were.
        messages: accepted ones.
        batches: accepted ones.
        faults: how many of each kind.
        lost: messages that a decoder did not write, all decoders together.
        duplicates: messages that a decoder wrote more than once.
        wrong: messages whose pick or reconstruction is not that of one process.
        recovery_seconds: from the end of a round of faults (a killed process: from its start) until every decoder
            had acknowledged all that was accepted by then, in order of size.
    """

    hosts: str = ""
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
            f"hosts: {self.hosts}",
            f"{self.messages} messages accepted in {self.batches} batches",
            ", ".join(f"{count} × {kind}" for kind, count in sorted(self.faults.items())) or "no faults",
            f"{self.lost} lost, {self.duplicates} decoded twice, {self.wrong} not as in one process",
            f"recovery of {len(recovery)} rounds: median {median:.1f} s, longest {longest:.1f} s",
        ]


def run_chaos(
    seconds: float,
    decoders: int,
    seed: int,
    tell: Callable[[str], None],
    find: Callable[[ExitStack, int, Path, Callable[[str], None]], Hosts] = find_hosts,
) -> Chaos:
    """Run services under faults for some time, let them recover, and check every message.

    Args:
        seconds: how long faults happen.
        decoders: K.
        seed: of sources, side information, common randomness and faults.
        tell: takes one line a round.
        find: makes the hosts.

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
        hosts = find(stack, decoders, Path(name), tell)
        chaos.hosts = hosts.kind
        world = Deployment(stack, Path(name), list(sides), hosts)
        with world.client() as client:
            session = client.session(bins=BINS, decoders=decoders, seed=seed)
            client.open(session)
        sender = Sender(world, session, sources, seed)
        sender.start()
        faults, ends = [*world.process_faults(), *hosts.link_faults()], time.monotonic() + seconds
        while time.monotonic() < ends and sender.failure is None:
            time.sleep(chance.uniform(0.3, 1.0))
            chosen = draw_faults(chance, faults)
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
            with world.client() as client:
                (state,) = client.status().sessions
                lacking = [d for d in state.decoders if d.next_message < accepted]
                if not lacking:
                    return
        except (grpc.RpcError, NotTrusted) as error:
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
