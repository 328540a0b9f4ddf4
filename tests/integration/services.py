"""Services of one test: started on free ports, never waited for without a bound, killed whatever happens."""

from __future__ import annotations

import itertools
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import numpy.typing as npt
import pytest

from decoder.client import DecoderClient
from decoder.model import DecoderModel, load_decoder_model
from encoder.client import EncoderClient
from encoder.model import EncoderModel, load_encoder_model
from experiments.coding import code_in_process
from experiments.gaussian import draw
from experiments.processes import ServiceProcess, start
from gumbelcast.channels import open_blocking_channel
from shared_rng import ModelCard, Session, find_model, load_card

Floats = npt.NDArray[np.floating]

WAIT_SECONDS = 60.0
"""Bound on every wait; far above what a busy machine needs."""


class Fleet:
    """Gaussian services in one folder, which also takes their files and logs; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.services: list[ServiceProcess] = []

    def __enter__(self) -> Fleet:
        return self

    def __exit__(self, *_: object) -> None:
        for service in self.services:
            kill(service)

    def launch(self, module: str, *arguments: str, model: str | Path = "gaussian") -> ServiceProcess:
        """Start a service and do not wait for it; its name and log are numbered."""
        name = f"{module}-{len(self.services)}"
        service = start(name, module, ["--model", str(model), *arguments], self.folder / f"{name}.log")
        self.services.append(service)
        return service

    def start(self, module: str, *arguments: str, model: str | Path = "gaussian") -> ServiceProcess:
        """Start a service and wait until it is ready."""
        service = self.launch(module, *arguments, model=model)
        service.wait_ready()
        return service

    def decoders(self, sides: Sequence[Floats], *arguments: str, out: bool = False) -> list[ServiceProcess]:
        """One decoder a row of side information, with it in a file; ``out`` gives each a folder ``out-K``."""
        started = [self.launch("decoder", *self.decoder_arguments(k, side, out), *arguments)
                   for k, side in enumerate(sides)]  # fmt: skip
        for service in started:
            service.wait_ready()
        return started

    def decoder_arguments(self, k: int, side: Floats, out: bool = False) -> list[str]:
        """Options of decoder ``k``, whose side information is written to a file."""
        path = self.folder / f"side-{k}.npy"
        np.save(path, side)
        return ["--side-information", str(path), *(["--out", str(self.folder / f"out-{k}")] if out else [])]

    def encoder(self, decoders: Sequence[ServiceProcess | str], *arguments: str) -> ServiceProcess:
        """An encoder of decoders, or of addresses."""
        addresses = [decoder if isinstance(decoder, str) else decoder.address for decoder in decoders]
        options = [part for address in addresses for part in ("--decoder", address)]
        return self.start("encoder", *options, *arguments)


def kill(service: ServiceProcess) -> None:
    """SIGKILL, and no trace is left of it."""
    service.process.kill()
    service.process.wait(WAIT_SECONDS)
    if service.process.stdout is not None:
        service.process.stdout.close()


def end(service: ServiceProcess) -> int:
    """SIGTERM; returns the exit code, and fails if it takes too long."""
    service.process.terminate()
    return service.process.wait(WAIT_SECONDS)


def until(condition: Callable[[], Any], what: str, seconds: float = WAIT_SECONDS) -> Any:
    """Poll until the condition is true; returns its value.

    Raises:
        AssertionError: it was not within the time.
    """
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return value


@contextmanager
def dead_address() -> Iterator[str]:
    """An address on loopback that refuses connections: bound, so that nobody else takes it, but not listening."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{taken.getsockname()[1]}"


@contextmanager
def answered_with(code: grpc.StatusCode, *parts: str) -> Iterator[None]:
    """The block's call ends with this status and with each part in its details."""
    with pytest.raises(grpc.RpcError) as caught:
        yield
    error = caught.value
    assert error.code() is code, error
    assert [part for part in parts if part not in error.details()] == [], error.details()


@contextmanager
def channel_to(address: str) -> Iterator[grpc.Channel]:
    """A channel that is closed at the end."""
    with open_blocking_channel(address) as channel:
        yield channel


def run_program(
    *arguments: str, cwd: Path, seconds: float = 120.0, environment: dict[str, str] | None = None
) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Run ``python -m arguments`` as the leader of a session; returns its outcome and who outlived it.

    Survivors are killed.
    """
    variables = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "100"} | (environment or {})
    command = [sys.executable, "-m", *arguments]
    process = subprocess.Popen(command, cwd=cwd, env=variables, text=True, start_new_session=True,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)  # fmt: skip
    try:
        output, errors = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        raise
    # Who was told to end may take a moment longer than its parent.
    deadline = time.monotonic() + 5.0
    while (survivors := session_members(process.pid)) and time.monotonic() < deadline:
        time.sleep(0.02)
    if survivors:
        os.killpg(process.pid, signal.SIGKILL)
    return subprocess.CompletedProcess(command, process.returncode, output, errors), survivors


def session_members(leader: int) -> list[str]:
    """Command lines of the living processes in a process's session."""
    members = []
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and os.getsid(int(folder.name)) == leader:
                state = (folder / "stat").read_text().rpartition(")")[2].split()[0]
                if state != "Z":
                    members.append((folder / "cmdline").read_bytes().replace(b"\0", b" ").decode())
        except OSError:  # it ended meanwhile
            continue
    return members


def gaussian_data(messages: int, decoders: int, seed: int = 7) -> tuple[Floats, list[Floats]]:
    """Sources and side information of the shipped Gaussian model."""
    return draw(seed, messages, decoders)


def lacking(client: EncoderClient, session: Session, message: int) -> list[tuple[int, str]]:
    """Index and reason of each decoder that does not get every message before a number."""
    states = client.await_delivery(session, message)
    return [(state.index, state.reason) for state in states if state.next_message < message]


_seeds = itertools.count(1000)


def fresh_session(client: EncoderClient, **changes: Any) -> Session:
    """A session on an i.i.d. pool with a seed that no other session of this test run has."""
    fields: dict[str, Any] = {"pool": "iid", "pool_size": 1024, "bins": 16, "decoders": 2, "seed": next(_seeds)}
    return client.session(**(fields | changes))


def in_process_models() -> tuple[EncoderModel, DecoderModel]:
    """Both halves of the shipped Gaussian model, in this process."""
    card = load_card(find_model("gaussian"))
    return load_encoder_model(card), load_decoder_model(card)


def assert_as_in_process(
    session: Session,
    card: ModelCard,
    encoder: EncoderClient,
    decoders: Sequence[DecoderClient],
    sources: Floats,
    sides: Sequence[Floats],
) -> None:
    """Code sources through running services: picks and reconstructions are those of the model in this process."""
    encoder.open(session)
    for decoder, side in zip(decoders, sides, strict=True):
        decoder.put_side_information(session.digest, side)
    answers = list(encoder.encode(session, sources, batch=7))
    assert all(state.lag == 0 for state in encoder.await_delivery(session, len(sources)))
    here = code_in_process(session, load_encoder_model(card), load_decoder_model(card), sources, sides)
    assert np.array_equal(np.concatenate([answer.picks for answer in answers]), here.encoder_picks)
    for k, decoder in enumerate(decoders):
        picks, reconstructions = decoder.read(session.digest, len(sources))
        assert np.array_equal(picks, here.decoder_picks[k])
        assert np.array_equal(reconstructions, here.reconstructions[k].astype(np.float32))
