"""Golden messages of every kind of session through the codec, networks and compiled races included.

They pin what ``tests/shared_rng/test_golden.py`` does not reach, and were written by ``tests/bits.py``. A change is a
new PROTOCOL_VERSION, unless a model computes something else on purpose, which its digest then says.
"""

from __future__ import annotations

import json
from typing import get_args

import pytest

from shared_rng.session import Binning, Coupling, PoolKind, RaceOrder
from tests.bits import CASES, GOLDEN, GOLDEN_MESSAGES, bits_of

golden = json.loads(GOLDEN.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", CASES)
def test_messages_and_picks(name: str) -> None:
    bits = bits_of(CASES[name](GOLDEN_MESSAGES))
    assert [" ".join(map(str, row)) for row in bits.picks.tolist()] == golden[name]["picks"]
    assert bits.payload.hex() == golden[name]["payload"]
    assert bits.digest.hex() == golden[name]["digest"]


def test_every_kind_of_session_is_pinned() -> None:
    """A new pool, race order, binning or coupling needs a golden message."""
    sessions = [make(1).session for make in CASES.values()]
    assert set(golden) == set(CASES)
    assert {s.pool_kind for s in sessions} == set(get_args(PoolKind))
    assert {s.race_order for s in sessions} == set(get_args(RaceOrder))
    assert {s.binning for s in sessions} == set(get_args(Binning))
    assert {s.coupling for s in sessions} == set(get_args(Coupling))
