"""Lattice sessions are a format, pinned here, and their recipe's widths are those of a closed-form fit."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from shared_rng import (
    Session,
    bin_candidates,
    bin_labels,
    decoder_select,
    encoder_select,
    kernel,
    label_of,
    pack,
    samples,
    unpack,
)
from shared_rng.lattice import lattice_for, upper_tail
from tests.models import make_session, refused

MESSAGES = [0, 1, 2, 3, 4, 5, 6, 1000003, 2**32, 2**64 - 1]
LAST = 2**64 - 1


@dataclass(frozen=True)
class Golden:
    """One lattice session and what follows from it, computed with Python integers and ``math``, not this code.

    Attributes:
        fields: changes to the session of ``tests.models``.
        target: mean and variance at the encoder.
        proposal: mean and variance at every decoder.
        points: message → points 0, 1 and N - 1.
        picks: Y of each of MESSAGES.
        payload: the packed labels of those picks.
        decoded: X^(k) of each decoder.
        digest: the session's.
    """

    fields: dict[str, Any]
    target: tuple[float, float]
    proposal: tuple[float, float]
    points: dict[int, list[str]]
    picks: list[int]
    payload: str
    decoded: list[list[int]]
    digest: str

    def session(self) -> Session:
        return make_session(pool_kind="lattice", **self.fields)


GOLDEN = {
    "private races": Golden(
        fields={"pool_size": 128, "bins": 8, "decoders": 2, "cell_width": 0.1},
        target=(0.75, 0.04),
        proposal=(0.25, 0.5),
        points={
            0: ["-0x1.9bcee6aa065d8p+2", "-0x1.956880439ff71p+2", "0x1.90fde622c66f6p+2"],
            7: ["-0x1.9c31829b34250p+2", "-0x1.95cb1c34cdbeap+2", "0x1.909b4a3198a7dp+2"],
            LAST: ["-0x1.97ca21584360cp+2", "-0x1.9163baf1dcfa6p+2", "0x1.9502ab74896c1p+2"],
        },
        picks=[75, 73, 70, 69, 74, 69, 70, 76, 74, 74],
        payload="67557448",
        decoded=[
            [67, 65, 70, 77, 66, 61, 70, 76, 74, 74],
            [67, 73, 70, 69, 74, 61, 70, 68, 74, 82],
        ],
        digest="f640a72d79a32bb5f7bcc024ff2b12c59eb549ec15b485496accd5b3d57070b6",
    ),
    "an odd number of points, one race": Golden(
        fields={"pool_size": 301, "bins": 4, "decoders": 3, "cell_width": 0.375, "coupling": "baseline"},
        target=(-20.0, 1.0),
        proposal=(-19.0, 4.0),
        points={
            0: ["-0x1.c308fc1fb2fbcp+5", "-0x1.c008fc1fb2fbcp+5", "0x1.c0f703e04d044p+5"],
            7: ["-0x1.c3373538c0716p+5", "-0x1.c0373538c0716p+5", "0x1.c0c8cac73f8eap+5"],
            LAST: ["-0x1.c126bfa15f956p+5", "-0x1.be26bfa15f956p+5", "0x1.c2d9405ea06aap+5"],
        },
        picks=[98, 99, 93, 94, 95, 91, 95, 95, 94, 91],
        payload="b6ffb0",
        decoded=[[98, 107, 105, 90, 95, 91, 99, 91, 94, 91]] * 3,
        digest="5c0c9a34590f2ebf2eef64df979fedf01e1990dd7c7073410bbe804084494a43",
    ),
}
each = pytest.mark.parametrize("golden", GOLDEN.values(), ids=GOLDEN)


@each
def test_digest(golden: Golden) -> None:
    assert golden.session().digest.hex() == golden.digest


@each
def test_pool(golden: Golden) -> None:
    session = golden.session()
    pool = samples(session, list(golden.points))
    assert pool.shape == (3, session.pool_size, 1)
    ends = pool[:, [0, 1, -1], 0].tolist()
    assert dict(zip(golden.points, ([p.hex() for p in row] for row in ends), strict=True)) == golden.points
    np.testing.assert_allclose(np.diff(pool[:, :, 0]), session.cell_width, rtol=1e-9)


@each
def test_bins_repeat(golden: Golden) -> None:
    session = golden.session()
    labels = bin_labels(session, [0, 7])
    assert labels.dtype == np.uint32
    assert labels.tolist() == [[i % session.bins for i in range(session.pool_size)]] * 2
    assert [label_of(session, 7, i) for i in (0, 1, session.bins, session.pool_size - 1)] == [
        0,
        1,
        0,
        (session.pool_size - 1) % session.bins,
    ]


@each
def test_picks(golden: Golden) -> None:
    """Of the definition and of the compiled race, at both ends."""
    session, count = golden.session(), len(MESSAGES)

    def log_weights(points: Any, mean: float, variance: float) -> Any:
        return -0.5 * np.square(points - mean) / variance

    mean, variance = (np.full((count, 1), value) for value in golden.target)
    defined = encoder_select(session, MESSAGES, log_weights(samples(session, MESSAGES)[:, :, 0], *golden.target))
    raced = kernel.encoder_race(session, MESSAGES, mean, variance)
    assert defined.picks.tolist() == raced.selection.picks.tolist() == golden.picks
    labels = kernel.labels_of(session, MESSAGES, raced.selection.picks)
    assert pack(labels, session.bits).hex() == golden.payload

    received = unpack(bytes.fromhex(golden.payload), count, session.bits)
    candidates = bin_candidates(session, MESSAGES, received)
    mean, variance = (np.full((count, 1), value) for value in golden.proposal)
    for k, expected in enumerate(golden.decoded):
        weights = log_weights(candidates.samples[:, 0], *golden.proposal)
        assert decoder_select(session, k, candidates, weights).picks.tolist() == expected
        raced = kernel.decoder_race(session, k, MESSAGES, received, mean, variance)
        assert raced.selection.picks.tolist() == expected


FIT = {1: (18.2, 17.6), 2: (16.4, 10.4), 3: (15.0, 8.0), 4: (14.0, 6.75)}
"""K → α and β of (c* / σp)² = α + β ln L_max, fitted for a side information's variance of .5."""
RATES = (2, 4, 8, 16, 32, 64)


def period(decoders: int, bins: int, side_variance: float) -> float:
    """c*, for a source of unit variance: L_max cells, less the widening by 1 + 1.7 / (K L_max²)."""
    return lattice_for(decoders, bins, 1.0, side_variance).cell_width * bins / (1 + 1.7 / (decoders * bins**2))


@pytest.mark.parametrize("bins", RATES)
@pytest.mark.parametrize("decoders", FIT)
def test_widths_are_those_of_the_fit(decoders: int, bins: int) -> None:
    alpha, beta = FIT[decoders]
    found = period(decoders, bins, 0.5) ** 2 / (0.5 / 1.5)
    assert found == pytest.approx(alpha + beta * math.log(bins), rel=0.04)


@pytest.mark.parametrize(("decoders", "bins", "side"), [(1, 4, 0.5), (2, 16, 0.1), (3, 2, 2.0), (4, 64, 0.5)])
def test_period_is_the_least_cost(decoders: int, bins: int, side: float) -> None:
    """The recipe's cost, integrated and minimised by SciPy."""
    gain = 1 / (1 + side)
    noise = math.sqrt(side) * gain

    def cost(c: float) -> float:
        def expectation(power: int) -> float:
            def integrand(a: float) -> float:
                fail = sum(stats.norm.sf((c / 2 + sign * a * (1 - gain)) / noise) for sign in (-1, 1))
                return float(stats.norm.pdf(a) * min(fail, 1.0) ** power)

            return float(integrate.quad(integrand, -9, 9, limit=200)[0])

        one, every = expectation(1), expectation(decoders)
        inside = (c / (decoders * bins)) ** 2
        return inside / 12 + inside * (one - every) + c**2 * every

    found = period(decoders, bins, side)
    best = optimize.minimize_scalar(cost, bounds=(0.5 * found, 2 * found), method="bounded")
    assert found == pytest.approx(best.x, rel=0.003)


@pytest.mark.parametrize(("decoders", "bins"), [(1, 2), (2, 16), (4, 64), (1, 2**16)])
def test_lattice_covers_the_source_and_scales_with_it(decoders: int, bins: int) -> None:
    unit, scaled = lattice_for(decoders, bins, 1.0, 0.3), lattice_for(decoders, bins, 400.0, 120.0)
    assert scaled.pool_size == unit.pool_size
    assert scaled.cell_width == pytest.approx(20 * unit.cell_width, rel=1e-6)
    # Whatever the dither, the outermost points are six deviations out, and not much more unless bins need them.
    assert (unit.pool_size / 2 - 1) * unit.cell_width >= 6.0
    assert unit.pool_size == max(bins, unit.pool_size)
    assert unit.pool_size <= max(bins, 12.0 / unit.cell_width + 4)


BAD = [
    ("decoders", (0, 4, 1.0, 0.5), "0"),
    ("bins", (1, 0, 1.0, 0.5), "0"),
    ("prior_variance", (1, 4, 0.0, 0.5), "0.0"),
    ("prior_variance", (1, 4, math.nan, 0.5), "nan"),
    ("side_variance", (1, 4, 1.0, -1.0), "-1.0"),
    ("side_variance", (1, 4, 1.0, math.inf), "inf"),
]


@pytest.mark.parametrize(("operand", "arguments", "given"), BAD)
def test_bad_arguments(operand: str, arguments: tuple[int, int, float, float], given: str) -> None:
    with refused(operand, given, "at least 1" if operand in ("decoders", "bins") else "a finite number above 0"):
        lattice_for(*arguments)


@pytest.mark.parametrize("decoders", [1, 4])
def test_widths_are_single_precision(decoders: int) -> None:
    """So that both ends of a deployment, and both libraries of an upgrade, find the same one."""
    width = lattice_for(decoders, 16, 1.0, 0.5).cell_width
    assert width == np.float32(width)


def test_upper_tail() -> None:
    x = np.linspace(-10.0, 37.0, 500).reshape(5, 100)
    found = upper_tail(x)
    assert found.shape == x.shape
    np.testing.assert_allclose(found, stats.norm.sf(x), rtol=1e-12)


def test_upper_tail_in_threads_of_a_new_process() -> None:
    """The first call may be one of many at once; numba warns of what is compiled twice."""
    code = (
        "from concurrent.futures import ThreadPoolExecutor as Pool; from threading import Barrier\n"
        "from shared_rng.lattice import upper_tail; import numpy as np; together = Barrier(8)\n"
        "call = lambda x: (together.wait(), upper_tail(np.array([x])))\n"
        "with Pool(8) as pool: print(len(list(pool.map(call, range(8)))))"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "8\n", "")
