"""A deployment under faults: services that can be killed, stopped and started again, and a sender that feeds them."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import numpy as np

from encoder.client import EncoderClient
from experiments.faults import Fault
from experiments.hosts import Hosts
from experiments.processes import ServiceProcess
from shared_rng import Session

MODEL = "gaussian"
BATCHES = (1, 16, 64, 256)
"""Batch sizes, one of them at random a stream."""

RATE = 1000
"""Messages a second that the sender offers."""

_STREAM_BATCHES = 8


class Deployment:
    """K decoders with files and an encoder with a journal, each on a host of its own.

    Attributes:
        services: decoders in the order of k, then the encoder.
        hosts: where they run.
        entrance: where the sender reaches the encoder.
    """

    def __init__(self, stack: ExitStack, folder: Path, sides: list[Any], hosts: Hosts) -> None:
        self.services: list[ServiceProcess] = []
        self.hosts = hosts
        self._folder = folder
        self._commands: list[tuple[str, str, list[str], Path]] = []
        stack.callback(self._stop)
        for k, side in enumerate(sides):
            path = folder / f"side_{k}.npy"
            np.save(path, side)
            self._launch(f"decoder {k}", "decoder", ["--side-information", str(path), "--out", str(self.out(k))])
        addresses = [hosts.reach(k, service.wait_ready()) for k, service in enumerate(self.services)]
        decoders = [part for address in addresses for part in ("--decoder", address)]
        self._launch("encoder", "encoder", [*decoders, "--journal", str(folder / "journal"), "--decoder-wait", "5"])
        self.entrance = hosts.reach(len(sides), self.services[-1].wait_ready())

    def out(self, decoder: int) -> Path:
        """The folder of a decoder's reconstructions."""
        return self._folder / f"out_{decoder}"

    def client(self) -> EncoderClient:
        """A client of the encoder, past what only the sender has before it."""
        return EncoderClient(self.services[-1].address, self.hosts.security)

    def process_faults(self) -> list[Fault]:
        """Every fault of every process."""
        faults = []
        for place, service in enumerate(self.services):
            role, restart = service.name.split()[0], partial(self._restart, place)
            stop, go_on = self._signal(place, signal.SIGSTOP), self._signal(place, signal.SIGCONT)
            faults += [
                Fault(f"{role} killed", service.name, self._signal(place, signal.SIGKILL), restart),
                Fault(f"{role} stopped", service.name, stop, go_on),
            ]
        return faults

    def _signal(self, place: int, number: signal.Signals) -> Callable[[], None]:
        return lambda: os.kill(self.services[place].process.pid, number)

    def _restart(self, place: int) -> None:
        """Start a killed service again with the same command, on the address that it had."""
        killed = self.services[place]
        killed.process.wait()
        if killed.process.stdout is not None:
            killed.process.stdout.close()
        self.services[place] = self.hosts.start(place, *self._commands[place])
        self.services[place].wait_ready()

    def _launch(self, name: str, module: str, arguments: list[str]) -> None:
        options = ["--model", MODEL, "--log-level", "warning", *arguments]
        self._commands.append((name, module, options, self._folder / f"{name.replace(' ', '_')}.log"))
        self.services.append(self.hosts.start(len(self.services), *self._commands[-1]))

    def _stop(self) -> None:
        for service in self.services:
            # A stopped process would not hear that it is to end.
            for number in (signal.SIGCONT, signal.SIGTERM):
                if service.process.poll() is None:
                    os.kill(service.process.pid, number)
        for service in self.services:
            service.wait_ended()


class Sender(threading.Thread):
    """Sends sources at a steady rate, in batches of random sizes, until it is told to stop or has sent all."""

    def __init__(self, world: Deployment, session: Session, sources: Any, seed: int) -> None:
        super().__init__(name="sender", daemon=True)
        self.accepted = 0
        self.batches = 0
        self.failure: Exception | None = None
        self.stopping = threading.Event()
        self._world = world
        self._session = session
        self._sources = sources
        self._random = random.Random(seed)

    def run(self) -> None:
        """Send; a failure is kept for whoever waits."""
        try:
            with EncoderClient(self._world.entrance, self._world.hosts.security) as client:
                started = time.monotonic()
                while not self.stopping.is_set() and self.accepted < len(self._sources):
                    batch = self._random.choice(BATCHES)
                    rows = slice(self.accepted, self.accepted + batch * _STREAM_BATCHES)
                    for answer in client.send(self._session, self._sources[rows], self.accepted, batch):
                        self.accepted += answer.count
                        self.batches += 1
                    self.stopping.wait(max(0.0, self.accepted / RATE - (time.monotonic() - started)))
        except (grpc.RpcError, ValueError, OSError) as error:
            self.failure = error
