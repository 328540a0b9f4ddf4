"""Start services as processes of their own, wait until they are ready, and stop them."""

from __future__ import annotations

import contextlib
import functools
import os
import select
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gumbelcast.lifeline import VARIABLE

START_SECONDS = 120.0
STOP_SECONDS = 40.0


class ServiceFailed(RuntimeError):
    """A service did not start, or ended by itself."""


@dataclass
class ServiceProcess:
    """A running service and the address on its readiness line."""

    name: str
    process: subprocess.Popen[str]
    log: Path
    address: str = ""

    def wait_ready(self) -> str:
        """Wait for the readiness line; returns the address.

        Raises:
            ServiceFailed: the service ended, or said nothing for two minutes; with the end of its log.
        """
        assert self.process.stdout is not None
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            readable, _, _ = select.select([self.process.stdout], [], [], 1.0)
            if not readable:
                continue
            line = self.process.stdout.readline()
            if line.startswith("READY "):
                self.address = line.split()[-1]
                return self.address
            if not line:
                raise self._failed(f"ended with code {self.process.wait()}")
        raise self._failed(f"was not ready within {START_SECONDS:.0f} s")

    def stop(self) -> int:
        """SIGTERM, then SIGKILL if it takes too long; returns the exit code."""
        self.process.terminate()
        return self.wait_ended()

    def wait_ended(self) -> int:
        """Wait for a service that was told to stop, with SIGKILL if it takes too long; returns the exit code."""
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
        code = self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()
        return code

    def _failed(self, what: str) -> ServiceFailed:
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()[-10:]
        return ServiceFailed("\n".join([f"{self.name} {what}; the end of {self.log}:", *lines]))


@functools.cache
def _lifeline() -> int:
    """Reading end of a pipe whose writing end this process alone holds, until it ends."""
    reading, _ = os.pipe()
    return reading


def start(name: str, module: str, arguments: Sequence[str], log: Path, within: Sequence[str] = ()) -> ServiceProcess:
    """Start ``python -m module serve arguments``; its log goes to a file.

    Each service computes with one thread: the processes share the cores already. It ends with this process, whatever
    ends it. ``within`` is what its command begins with: a program that turns into it.
    """
    lifeline = _lifeline()
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    environment[VARIABLE] = str(lifeline)
    command = [*within, sys.executable, "-m", module, "serve", *arguments]
    with log.open("a", encoding="utf-8") as stream:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=stream, text=True, env=environment, pass_fds=[lifeline]
        )
    return ServiceProcess(name, process, log)


@contextlib.contextmanager
def running(services: Sequence[ServiceProcess]) -> Iterator[None]:
    """Wait until all are ready; stop all at the end, whatever happens."""
    try:
        for service in services:
            service.wait_ready()
        yield
    finally:
        for service in services:
            service.process.terminate()
        # Signalled once: a second SIGTERM could meet a service that has put its handlers away.
        for service in services:
            service.wait_ended()
