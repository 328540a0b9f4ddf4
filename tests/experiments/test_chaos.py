"""Chaos: a short run under random faults loses nothing, and the check would notice if something were lost."""

from __future__ import annotations

import itertools
import json
import os
import random
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from decoder import Decoder, load_decoder_model
from encoder import Encoder, load_encoder_model
from experiments.chaos import Chaos, check, run_chaos
from experiments.faults import Fault, draw_faults
from experiments.gaussian import draw
from experiments.hosts import Hosts, NamespaceHosts, RelayedHosts, find_hosts
from experiments.namespaces import NamespacesRefused
from shared_rng import CodecError, Session, find_model, load_card
from tests.models import refused


def namespaces(stack: ExitStack, decoders: int, folder: Path, tell: object) -> NamespaceHosts:
    """Hosts made of network namespaces, or none."""
    return NamespaceHosts(stack, decoders, folder)


def relays(stack: ExitStack, decoders: int, folder: Path, tell: object) -> RelayedHosts:
    """One host, and relays."""
    return RelayedHosts(stack)


@pytest.mark.parametrize(("find", "kind"), [(namespaces, "namespaces"), (relays, "relays")])
def test_a_short_run(tmp_path: Path, find: Callable[..., Hosts], kind: str) -> None:
    """Processes are killed and stopped, links are cut; every message arrives once, as in one process."""
    rounds: list[str] = []
    try:
        chaos = run_chaos(3.0, 2, 4, rounds.append, find)
    except NamespacesRefused as error:
        pytest.skip(str(error))
    assert chaos.messages > 0
    assert kind in chaos.summary()[0]
    assert (chaos.lost, chaos.duplicates, chaos.wrong) == (0, 0, 0)
    assert len(rounds) == len(chaos.recovery_seconds) >= 1
    assert sum(chaos.faults.values()) >= len(rounds)
    written = json.loads(chaos.write(tmp_path, {"command": "x"}).read_text())
    assert written["messages"] == chaos.messages
    assert f"{chaos.messages} messages accepted" in chaos.summary()[1]


def test_hosts_that_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without namespaces, relays serve, and it is told why; the environment is as before."""
    variables, told = dict(os.environ), list[str]()
    monkeypatch.setattr("experiments.hosts.Namespaces.__enter__", Mock(side_effect=NamespacesRefused("not allowed")))
    with ExitStack() as stack:
        assert isinstance(find_hosts(stack, 1, tmp_path, told.append), RelayedHosts)
        assert told == ["no network namespaces: not allowed"]
        assert dict(os.environ) == variables


def test_faults_of_a_round() -> None:
    """One fault a place, at up to three places."""
    faults = [Fault(kind, place, int, int) for place in "abcd" for kind in "xyz"]
    chance = random.Random(1)
    rounds = [draw_faults(chance, faults) for _ in range(300)]
    assert {len(chosen) for chosen in rounds} == {1, 2, 3}
    assert all(len({fault.place for fault in chosen}) == len(chosen) for chosen in rounds)
    assert {(fault.place, fault.kind) for chosen in rounds for fault in chosen} == set(itertools.product("abcd", "xyz"))
    assert len(draw_faults(chance, faults[:3])) == 1


@pytest.mark.parametrize(("seconds", "decoders", "operand"), [(0.0, 1, "seconds"), (1.0, 0, "decoders")])
def test_refused_options(seconds: float, decoders: int, operand: str) -> None:
    with refused(operand, kind=CodecError):
        run_chaos(seconds, decoders, 1, print)


def test_the_check_notices(tmp_path: Path) -> None:
    """A batch that is missing, one that is there twice, a pick and a reconstruction that are wrong."""
    card = load_card(find_model("gaussian"))
    sender, receiver = load_encoder_model(card), load_decoder_model(card)
    session = Session(
        seed=1, pool_size=256, bins=16, decoders=1, model_digest=card.digest, pool_variance=sender.pool_variance
    )
    sources, sides = draw(1, 12, 1)
    decoded = Decoder(session, 0, receiver).decode(Encoder(session, sender).encode(sources).payload, sides[0])

    def write(name: str, first: int, count: int, pick: int = 0, error: float = 0.0) -> None:
        rows = slice(first, first + count)
        picks, reconstructions = decoded.picks[rows] + pick, decoded.reconstructions[rows].astype(np.float32)
        np.savez(tmp_path / name, first_message=first, picks=picks, reconstructions=reconstructions + np.float32(error))

    def found() -> tuple[int, int, int]:
        chaos = Chaos()
        check(chaos, session, sources, list(sides), [tmp_path])
        return chaos.lost, chaos.duplicates, chaos.wrong

    write("0.npz", 0, 4)
    write("4.npz", 4, 8)
    assert found() == (0, 0, 0)
    write("4.npz", 4, 6)
    assert found() == (2, 0, 0)
    write("3.npz", 3, 1)
    assert found() == (2, 1, 0)
    write("10.npz", 10, 2, pick=1)
    assert found() == (0, 1, 2)
    write("10.npz", 10, 2, error=1e-3)
    assert found() == (0, 1, 2)
