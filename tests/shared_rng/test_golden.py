"""Golden vectors: the output is a format, and these numbers pin it.

A change to any of them breaks every session between an old and a new end: it is a new PROTOCOL_VERSION.
They were computed with Python integers, ``math.log`` and ``statistics.NormalDist``, not with this code.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from shared_rng import (
    Session,
    bin_candidates,
    bin_labels,
    decoder_select,
    encoder_select,
    list_select,
    pack,
    samples,
    selected_labels,
    unpack,
)
from shared_rng.philox import RACE_DOMAIN, words
from shared_rng.session import PROTOCOL_VERSION
from shared_rng.variates import Floats
from tests.models import make_session

MESSAGES = [0, 1, 2, 3, 4, 5, 6, 1000003, 2**32, 2**64 - 1]
LAST = 2**64 - 1


def quadratic(mean: float, variance: float, pool_variance: float) -> Callable[[Floats], Floats]:
    """Log importance weights of N(mean, variance) over N(0, pool_variance), of samples [..., D]."""
    return lambda u: np.asarray(-0.5 * (np.square(u - mean) / variance - np.square(u) / pool_variance).sum(axis=-1))


@dataclass(frozen=True)
class Golden:
    """One session and all that follows from it.

    Attributes:
        fields: changes to the session of ``tests.models``.
        target: log importance weights at the encoder.
        proposal: the same at every decoder.
        units: message → candidates 0, 1 and N - 1 in multiples of 2^-16, or as letters.
        labels: message → bin labels of the first candidates.
        picks: Y of each of MESSAGES.
        payload: the packed labels of those picks.
        decoded: X^(k) of each decoder.
        digest: the session's.
    """

    fields: dict[str, Any]
    target: Callable[[Floats], Floats]
    proposal: Callable[[Floats], Floats]
    units: dict[int, list[list[int]]]
    labels: dict[int, list[int]]
    picks: list[int]
    payload: str
    decoded: list[list[int]]
    digest: str

    def session(self) -> Session:
        """The session."""
        return make_session(**self.fields)


GOLDEN = {
    "gaussian, D = 1": Golden(
        fields={"pool_size": 128, "bins": 8, "decoders": 2, "pool_variance": 1.003},
        target=quadratic(0.75, 0.003, 1.003),
        proposal=quadratic(0.5, 0.336, 1.003),
        units={
            0: [[66642], [-190962], [91011]],
            7: [[86104], [-79690], [-63507]],
            LAST: [[-51323], [17770], [72566]],
        },
        labels={
            0: [0, 7, 2, 3, 7, 1, 0, 5, 3, 7, 2, 0],
            7: [5, 2, 0, 1, 2, 6, 0, 0, 2, 4, 0, 5],
            LAST: [6, 2, 0, 6, 3, 4, 2, 2, 3, 5, 1, 1],
        },
        picks=[39, 70, 70, 15, 100, 100, 30, 102, 114, 62],
        payload="8902c1d4",
        decoded=[
            [39, 107, 63, 41, 16, 116, 34, 102, 114, 62],
            [127, 118, 70, 15, 114, 100, 30, 48, 87, 36],
        ],
        digest="e06849761bcf6a1ae1186699dc766a7425c67f666d91a220f2008e51b925113c",
    ),
    "gaussian, D = 4, baseline": Golden(
        fields={"pool_size": 64, "bins": 16, "decoders": 3, "latent_dimension": 4, "coupling": "baseline"},
        target=quadratic(0.25, 0.25, 1.0),
        proposal=quadratic(0.125, 0.5, 1.0),
        units={
            0: [[66542, -190677, -47451, -128454], [-35981, 40704, 28886, -4357], [22473, -68880, -139440, -28499]],
            7: [[85975, -79571, -9354, -42445], [-22922, -20553, -80629, -40199], [101953, -98150, -8158, 41158]],
            LAST: [[-51246, 17743, -122936, 1760], [29526, 88378, 38215, -11796], [-139247, -22547, 123386, 6991]],
        },
        labels={
            0: [1, 14, 5, 6, 14, 2, 1, 10, 6, 14, 5, 0],
            7: [11, 4, 1, 2, 5, 12, 1, 0, 4, 8, 0, 10],
            LAST: [13, 4, 1, 13, 6, 9, 5, 5, 6, 10, 2, 2],
        },
        picks=[39, 18, 47, 41, 30, 59, 57, 30, 17, 21],
        payload="9f017cc1e3",
        decoded=[[39, 18, 47, 2, 30, 59, 57, 21, 17, 21]] * 3,
        digest="a9f841771e82598eb0457904891bf0c3c866b54809f997338f7fad24c9a1902e",
    ),
    "discrete": Golden(
        fields={"pool_size": 10, "bins": 4, "decoders": 4, "pool_kind": "discrete"},
        target=lambda u: -np.square(u[..., 0] - 4) / 4,
        proposal=lambda u: -np.square(u[..., 0] - 5) / 8,
        units={0: [[0], [1], [9]], 7: [[0], [1], [9]], LAST: [[0], [1], [9]]},
        labels={m: [0, 1, 2, 3, 0, 1, 2, 3, 0, 1] for m in (0, 7, LAST)},
        picks=[5, 5, 2, 2, 3, 4, 4, 4, 3, 2],
        payload="5ac0e0",
        decoded=[
            [5, 5, 6, 2, 3, 4, 8, 8, 3, 6],
            [5, 5, 6, 6, 3, 4, 4, 8, 7, 6],
            [5, 5, 6, 2, 3, 4, 4, 4, 3, 6],
            [5, 5, 2, 6, 3, 8, 4, 4, 3, 2],
        ],
        digest="4836b5fa6e32ca2c6cebfcbb042822bee944b2656f2870f88d253e605c90bd63",
    ),
    "nothing binned": Golden(
        fields={"pool_size": 16, "bins": 16, "decoders": 1},
        target=quadratic(0.5, 0.125, 1.0),
        proposal=lambda u: np.zeros(u.shape[:-1]),
        units={
            0: [[66542], [-190677], [-45609]],
            7: [[85975], [-79571], [21469]],
            LAST: [[-51246], [17743], [35451]],
        },
        labels={m: list(range(16)) for m in (0, 7, LAST)},
        picks=[6, 0, 11, 9, 4, 9, 12, 6, 12, 4],
        payload="60b949c6c4",
        decoded=[[6, 0, 11, 9, 4, 9, 12, 6, 12, 4]],
        digest="bccc21ea60377f2072b8f3d6d91643cb408202284816fa1ad83d0b4c26083b24",
    ),
    "regions": Golden(
        fields={"pool_size": 64, "bins": 8, "decoders": 2, "latent_dimension": 2, "binning": "region"},
        target=quadratic(0.25, 0.25, 1.0),
        proposal=quadratic(0.125, 0.5, 1.0),
        units={
            0: [[66542, -190677], [-47451, -128454], [-19650, 90875]],
            7: [[85975, -79571], [-9354, -42445], [-7283, -63412]],
            LAST: [[-51246, 17743], [-122936, 1760], [-84723, 72457]],
        },
        labels={
            0: [1, 1, 7, 3, 5, 6, 2, 4, 2, 4, 3, 6],
            7: [0, 5, 5, 4, 3, 6, 6, 3, 6, 3, 0, 7],
            LAST: [7, 7, 6, 3, 1, 3, 0, 3, 5, 2, 5, 5],
        },
        picks=[39, 12, 61, 44, 16, 59, 15, 19, 17, 21],
        payload="2f381d0c",
        decoded=[
            [39, 12, 61, 26, 16, 59, 16, 19, 17, 21],
            [39, 59, 27, 44, 6, 45, 15, 58, 43, 36],
        ],
        digest="f494c1e5d66917d903bc92fbb3780e5ee5a7bb1b5c613a6fdaea56dae2c632a7",
    ),
    "list": Golden(
        fields={"pool_size": 12, "bins": 4, "decoders": 3, "pool_kind": "discrete", "coupling": "list"},
        target=lambda u: -np.square((u[..., 0] * 7 + 3) % 12 - 4) / 4,
        proposal=lambda u: np.zeros(u.shape[:-1]),
        units={0: [[0], [1], [11]], 7: [[0], [1], [11]], LAST: [[0], [1], [11]]},
        labels={m: [0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3] for m in (0, 7, LAST)},
        picks=[7] * 10,
        payload="fffff0",
        decoded=[[3] * 10, [7] * 10, [11] * 10],
        digest="404fb234e7581ce3cbb53569c04a4ef90c92f96140200e6b032f516449bd67b5",
    ),
}
each = pytest.mark.parametrize("golden", GOLDEN.values(), ids=GOLDEN)

# (race, message) → words of candidates 0 and 1; they depend on the seed alone.
RACES = {
    (0, 0): ["6f7d98c33825e145", "34f573035c13c898"],
    (0, 7): ["bbb73f884c6cc79f", "d348ddf0eff0c824"],
    (0, LAST): ["169361ab2ea6d3f8", "38ff0986427cbbb5"],
    (1, 0): ["c179ff91579bdc79", "44e3210d33c9d5d1"],
    (1, 7): ["8003f10ab3bf73f5", "12eb1fc3f299974f"],
    (1, LAST): ["d41e1f830223969e", "32bb41741d63dcbf"],
}


def test_version() -> None:
    """The vectors below are those of this version: new ones need a new number, a new number new ones."""
    assert PROTOCOL_VERSION == 3


@each
def test_pool(golden: Golden) -> None:
    session = golden.session()
    pool = samples(session, list(golden.units))
    assert pool.dtype == np.float64
    assert pool.shape == (3, session.pool_size, session.latent_dimension)
    scale = 2.0**16 if session.pool_kind == "gaussian" else 1.0
    assert dict(zip(golden.units, (pool * scale)[:, [0, 1, -1]].tolist(), strict=True)) == golden.units


@each
def test_labels(golden: Golden) -> None:
    session = golden.session()
    found = bin_labels(session, list(golden.labels))
    assert found.dtype == np.uint32
    assert found.shape == (3, session.pool_size)
    for row, expected in zip(found, golden.labels.values(), strict=True):
        assert row[: len(expected)].tolist() == expected


@each
@pytest.mark.parametrize("place", RACES)
def test_races(golden: Golden, place: tuple[int, int]) -> None:
    race, message = place
    session = golden.session()
    row = words(session.seed, RACE_DOMAIN + race, message, 0, session.pool_size)
    assert [f"{int(word):016x}" for word in row[:2]] == RACES[place]


@each
def test_messages(golden: Golden) -> None:
    session = golden.session()
    selection = encoder_select(session, MESSAGES, golden.target(samples(session, MESSAGES)))
    assert selection.failures == {}
    assert selection.picks.tolist() == golden.picks
    assert pack(selected_labels(session, MESSAGES, selection), session.bits).hex() == golden.payload


@each
def test_decoders(golden: Golden) -> None:
    session = golden.session()
    received = unpack(bytes.fromhex(golden.payload), len(MESSAGES), session.bits)
    if session.coupling == "list":
        listed = [list_select(session, k, received) for k in range(session.decoders)]
        assert [selection.picks.tolist() for selection in listed] == golden.decoded
        return
    candidates = bin_candidates(session, MESSAGES, received)
    weights = golden.proposal(candidates.samples)
    decoded = [decoder_select(session, k, candidates, weights) for k in range(session.decoders)]
    assert [d.failures for d in decoded] == [{}] * session.decoders
    assert [d.picks.tolist() for d in decoded] == golden.decoded


@each
def test_digest(golden: Golden) -> None:
    assert golden.session().digest.hex() == golden.digest
