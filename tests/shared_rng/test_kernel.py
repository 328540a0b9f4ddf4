"""The compiled races equal the readable definition over all N candidates, pick by pick."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest

from encoder.model import target_log_weights
from shared_rng import (
    Selection,
    Session,
    bin_candidates,
    bin_labels,
    decoder_select,
    encoder_select,
    kernel,
    races,
    samples,
    selected_labels,
    variates,
)
from shared_rng.lattice import TARGET_SPREAD, TEMPERATURE, lattice_for
from shared_rng.variates import Floats
from tests.models import make_session, refused, uniforms

CHUNK_BYTES = 2**22
"""Bound on one array of the definition."""
SIDE_VARIANCE = 0.5
POSTERIOR_VARIANCE = SIDE_VARIANCE / (1.0 + SIDE_VARIANCE)
GAIN = 1.0 / (1.0 + SIDE_VARIANCE)


@dataclass(frozen=True)
class Case:
    """A session and B messages of a Gaussian source: target and proposals, each [B, D].

    ``first`` is the number of the first message.
    """

    session: Session
    first: int
    mean: Floats
    variance: float
    proposal_means: list[Floats]
    proposal_variance: float

    @property
    def messages(self) -> range:
        return range(self.first, self.first + len(self.mean))

    @property
    def prior_variance(self) -> float:
        """Of p_W, infinite on a lattice."""
        return np.inf if self.session.pool_kind == "lattice" else self.session.pool_variance


def normals(seed: int, *shape: int) -> Floats:
    """Fixed standard normals, by Box and Muller."""
    count = int(np.prod(shape))
    return np.asarray(
        np.sqrt(-2.0 * np.log(uniforms(count, seed))) * np.cos(2.0 * np.pi * uniforms(count, seed + 1))
    ).reshape(shape)


def arrival(count: int, noise: float, first: int = 0, dimension: int = 1, **changes: object) -> Case:
    """Messages of the paper's Gaussian source on an i.i.d. pool."""
    fields = {"race_order": "arrival", "pool_variance": 1.0 + noise, "latent_dimension": dimension}
    session = make_session(**(fields | changes))
    sources = normals(count, count, dimension)
    means = [
        GAIN * (sources + np.sqrt(SIDE_VARIANCE) * normals(100 + 2 * k, count, dimension))
        for k in range(session.decoders)
    ]
    return Case(session, first, sources, noise, means, POSTERIOR_VARIANCE + noise)


def lattice(count: int, decoders: int, bins: int, first: int = 0, **changes: object) -> Case:
    """Messages of a unit Gaussian source on the recipe's lattice."""
    recipe = lattice_for(decoders, bins, 1.0, SIDE_VARIANCE)
    fields = {"pool_kind": "lattice", "pool_size": recipe.pool_size, "cell_width": recipe.cell_width}
    session = make_session(**(fields | {"decoders": decoders, "bins": bins} | changes))
    sources = normals(count + decoders, count, 1)
    means = [GAIN * (sources + np.sqrt(SIDE_VARIANCE) * normals(200 + 2 * k, count, 1)) for k in range(decoders)]
    spread = TARGET_SPREAD * session.cell_width
    return Case(session, first, sources, spread * spread, means, TEMPERATURE * POSTERIOR_VARIANCE)


def encoder_definition(case: Case, messages: range, mean: Floats) -> Selection:
    pool = samples(case.session, messages)
    log_weights = target_log_weights(mean, np.full_like(mean, case.variance), pool, case.prior_variance)
    return encoder_select(case.session, messages, log_weights)


def decoder_definition(
    case: Case, decoder: int, messages: range, labels: npt.NDArray[np.uint32], mean: Floats
) -> tuple[Selection, Floats]:
    """Picks and their samples [B, D], NaN where a message failed."""
    candidates = bin_candidates(case.session, messages, labels)
    distance = np.square(candidates.samples - mean[candidates.rows]) / case.proposal_variance
    distance -= np.square(candidates.samples) / case.prior_variance
    selection = decoder_select(case.session, decoder, candidates, -0.5 * distance.sum(axis=1))
    picked = np.full(mean.shape, np.nan)
    for b in np.flatnonzero(selection.picks >= 0):
        own = (candidates.rows == b) & (candidates.indices == selection.picks[b])
        picked[b] = candidates.samples[own][0]
    return selection, picked


def assert_equals_definition(case: Case) -> None:
    """The encoder's picks, their samples and labels, and every decoder's picks and samples."""
    session, count = case.session, len(case.mean)
    found = kernel.encoder_race(session, case.messages, case.mean, np.full_like(case.mean, case.variance))
    found_labels = kernel.labels_of(session, case.messages, found.selection.picks)
    decoded = [
        kernel.decoder_race(session, k, case.messages, found_labels, mean, np.full_like(mean, case.proposal_variance))
        for k, mean in enumerate(case.proposal_means)
    ]
    assert [d.selection.failures for d in (found, *decoded)] == [{}] * (1 + session.decoders)
    size = max(1, CHUNK_BYTES // (8 * session.pool_size * session.latent_dimension))
    for start in range(0, count, size):
        rows = slice(start, min(start + size, count))
        messages = case.messages[rows]
        expected = encoder_definition(case, messages, case.mean[rows])
        assert found.selection.picks[rows].tolist() == expected.picks.tolist()
        labels = selected_labels(session, messages, expected)
        assert found_labels[rows].tolist() == labels.tolist()
        pool = samples(session, messages)
        assert np.array_equal(found.samples[rows], pool[np.arange(len(messages)), expected.picks])
        for k, mean in enumerate(case.proposal_means):
            picks, picked = decoder_definition(case, k, messages, labels, mean[rows])
            assert decoded[k].selection.picks[rows].tolist() == picks.picks.tolist()
            assert np.array_equal(decoded[k].samples[rows], picked)


ARRIVALS = {
    "the smallest pool": arrival(600, 0.05, pool_size=2, bins=2, decoders=1),
    "three": arrival(800, 0.05, pool_size=3, bins=2, decoders=4),
    "five": arrival(500, 0.05, pool_size=5, bins=4, decoders=2),
    "nothing binned": arrival(600, 0.05, pool_size=64, bins=64, decoders=2),
    "K = 1": arrival(800, 0.05, pool_size=100, bins=4, decoders=1),
    "K = 4": arrival(400, 0.05, pool_size=127, bins=16, decoders=4, first=2**40),
    "balanced bins": arrival(400, 0.05, pool_size=131, bins=16, decoders=3, binning="modulo"),
    "K = 40": arrival(60, 0.05, pool_size=64, bins=8, decoders=40),
    "one race for all": arrival(400, 0.05, pool_size=130, bins=8, decoders=3, coupling="baseline"),
    "one, K = 1, L = 2": arrival(150, 0.01, pool_size=1000, bins=2, decoders=1),
    "a target wider than the pool": arrival(300, 2.0, pool_size=60, bins=4, decoders=2, pool_variance=1.5),
    "a target as wide as the pool": arrival(300, 1.5, pool_size=60, bins=4, decoders=2, pool_variance=1.5),
    "the last message numbers": arrival(200, 0.05, pool_size=65, bins=4, decoders=2, first=2**64 - 200),
    "two coordinates": arrival(400, 0.05, pool_size=257, bins=8, decoders=2, dimension=2),
    "five coordinates": arrival(200, 0.3, pool_size=300, bins=4, decoders=2, dimension=5),
    "below the shuffle's limit": arrival(30, 0.003, pool_size=4095, bins=16, decoders=2),
    "the shuffle's limit": arrival(30, 0.003, pool_size=4096, bins=16, decoders=2),
    "above the shuffle's limit": arrival(150, 0.003, pool_size=4097, bins=16, decoders=2),
    "nothing binned, by bijection": arrival(100, 0.003, pool_size=8192, bins=8192, decoders=1),
    "two coordinates, by bijection": arrival(100, 0.05, pool_size=5000, bins=16, decoders=1, dimension=2),
    "no power of two": arrival(40, 0.003, pool_size=20001, bins=64, decoders=2),
    "the paper's pool": arrival(40, 0.001, pool_size=2**15, bins=64, decoders=4),
    "a large pool, K = 1": arrival(6, 0.001, pool_size=2**18 + 1, bins=8, decoders=1),
}

LATTICES = {
    f"K = {k}, L = {bins}": lattice(count, k, bins)
    for k, bins, count in (
        (1, 2, 1000),
        (1, 8, 800),
        (1, 64, 500),
        (2, 4, 600),
        (2, 16, 400),
        (3, 32, 300),
        (4, 2, 500),
        (4, 64, 200),
    )
} | {
    "one race for all": lattice(400, 3, 8, coupling="baseline"),
    "nothing binned": lattice(600, 1, 64, pool_size=64, cell_width=0.1),
    "two points": lattice(600, 2, 2, pool_size=2),
    "cells wider than the source": lattice(300, 2, 4, cell_width=8.0),
    "cells of a millionth": lattice(50, 1, 16, pool_size=20001, cell_width=1e-6),
    "late messages": lattice(300, 2, 16, first=2**63),
}


def test_enough_messages() -> None:
    assert sum(len(case.mean) for case in (*ARRIVALS.values(), *LATTICES.values())) >= 10_000


@pytest.mark.parametrize("case", ARRIVALS.values(), ids=ARRIVALS)
def test_arrival_sessions(case: Case) -> None:
    assert_equals_definition(case)


@pytest.mark.parametrize("case", LATTICES.values(), ids=LATTICES)
def test_lattice_sessions(case: Case) -> None:
    assert_equals_definition(case)


@pytest.mark.parametrize("case", [ARRIVALS["the paper's pool"], ARRIVALS["K = 4"], LATTICES["K = 2, L = 16"]])
def test_foreign_messages(case: Case) -> None:
    """Labels that no encoder chose point far from the proposal: still the definition's picks."""
    session = case.session
    labels = (np.arange(len(case.mean)) * 7 % session.bins).astype(np.uint32)
    for k, mean in enumerate(case.proposal_means):
        found = kernel.decoder_race(session, k, case.messages, labels, mean, np.full_like(mean, case.proposal_variance))
        expected, picked = decoder_definition(case, k, case.messages, labels, mean)
        assert found.selection.picks.tolist() == expected.picks.tolist()
        assert np.array_equal(found.samples, picked, equal_nan=True)
        assert set(found.selection.failures) == set(expected.failures)


@pytest.mark.parametrize("scale", [0.0, 5.0, 8.0, 30.0])
def test_sources_in_the_tails(scale: float) -> None:
    """Where the bound on the weights is loose or out of reach, and where nothing of the pool is near."""
    signs = np.where(np.arange(60) % 2 == 0, 1.0, -1.0)[:, None]
    for case in (arrival(60, 0.003, pool_size=5000, bins=16, decoders=2), lattice(60, 2, 16)):
        far = [signs * scale + 0.1 * mean for mean in (case.mean, *case.proposal_means)]
        assert_equals_definition(Case(case.session, 0, far[0], case.variance, far[1:], case.proposal_variance))


def test_any_numbers_in_any_order() -> None:
    """A message alone, repeated or out of turn is the same: permutations are undone after each."""
    for case in (ARRIVALS["K = 4"], ARRIVALS["above the shuffle's limit"], LATTICES["K = 2, L = 16"]):
        variance = np.full_like(case.mean, case.variance)
        picks = kernel.encoder_race(case.session, case.messages, case.mean, variance).selection.picks
        order = [17, 3, 99, 3, 0, 17]
        numbers = [case.messages[b] for b in order]
        again = kernel.encoder_race(case.session, numbers, case.mean[order], variance[order]).selection.picks
        assert again.tolist() == picks[order].tolist()
        alone = kernel.encoder_race(case.session, range(case.first + 5, case.first + 6), case.mean[5:6], variance[5:6])
        assert alone.selection.picks.tolist() == [picks[5]]


def test_an_empty_bin_fails_alone() -> None:
    """A label that no candidate of the message has: that message fails, by name, and no other."""
    for size in (17, 4097):
        bins = 16 if size == 17 else 4096
        case = arrival(8, 0.05, first=50, pool_size=size, bins=bins, decoders=1)
        labels = bin_labels(case.session, case.messages)[:, 0].copy()
        mean = case.proposal_means[0]
        variance = np.full_like(mean, case.proposal_variance)
        honest = kernel.decoder_race(case.session, 0, case.messages, labels, mean, variance)
        assert honest.selection.failures == {}
        used = set(bin_labels(case.session, [53])[0].tolist())
        labels[3] = next(label for label in range(bins) if label not in used)
        spoilt = kernel.decoder_race(case.session, 0, case.messages, labels, mean, variance)
        assert list(spoilt.selection.failures) == [53]
        assert "empty" in spoilt.selection.failures[53]
        assert spoilt.visits[3] == size
        assert_alone(spoilt, honest, 3)


def test_weights_of_zero_fail_alone() -> None:
    """So far away that every weight is zero: that message fails, and no other."""
    for case in (
        arrival(8, 0.05, first=50, pool_size=130, bins=8, decoders=2),
        arrival(8, 0.05, first=50, pool_size=4100, bins=8, decoders=2),
        lattice(8, 2, 8, first=50),
    ):
        for far in (None, 2):
            mean = case.mean.copy()
            if far is not None:
                mean[far] = 1e200
            variance = np.full_like(mean, case.variance)
            labels = np.zeros(8, dtype=np.uint32)
            found = (
                kernel.encoder_race(case.session, case.messages, mean, variance),
                kernel.decoder_race(case.session, 1, case.messages, labels, mean, variance),
            )
            if far is None:
                honest = found
                assert [f.selection.failures for f in found] == [{}, {}]
                continue
            for spoilt, before in zip(found, honest, strict=True):
                assert list(spoilt.selection.failures) == [52]
                assert "weights" in spoilt.selection.failures[52]
                assert_alone(spoilt, before, 2)


def assert_alone(spoilt: kernel.RaceResult, honest: kernel.RaceResult, row: int) -> None:
    """One row failed; the others are as before."""
    assert spoilt.selection.picks[row] == -1
    assert np.isnan(spoilt.samples[row]).all()
    others = np.arange(len(honest.selection.picks)) != row
    assert np.array_equal(spoilt.selection.picks[others], honest.selection.picks[others])
    assert np.array_equal(spoilt.samples[others], honest.samples[others])


def test_cost_follows_the_density_ratio() -> None:
    """Arrivals that are looked at do not grow with N, and stay far below it; on a lattice they are a handful."""
    visits = []
    for size in (2**10, 2**14, 2**18, 2**24):
        case = arrival(2000, 0.01, pool_size=size, bins=4, decoders=1)
        race = kernel.encoder_race(case.session, case.messages, case.mean, np.full_like(case.mean, case.variance))
        visits.append(race.visits.mean())
    assert max(visits) < 100
    assert max(visits) < 1.5 * min(visits)
    case = LATTICES["K = 2, L = 16"]
    race = kernel.encoder_race(case.session, case.messages, case.mean, np.full_like(case.mean, case.variance))
    assert race.visits.max() <= 3


@pytest.mark.parametrize("shape", [(5,), (4, 1), (5, 2)])
def test_wrong_shape(shape: tuple[int, ...]) -> None:
    case = arrival(5, 0.05)
    with refused("mean", str(shape), "(5, 1)"):
        kernel.encoder_race(case.session, range(5), np.zeros(shape), np.ones((5, 1)))
    with refused("variance", str(shape), "(5, 1)"):
        kernel.decoder_race(case.session, 0, range(5), np.zeros(5, np.uint32), np.zeros((5, 1)), np.ones(shape))


@pytest.mark.parametrize("variance", [1e-6, 1.0, 1.003, 400.0])
def test_normals_of_any_word(variance: float) -> None:
    """Centre, middle and tails alike, the outermost words too, which no random pool shows."""
    small = [0, 1, 2**12 - 1, *(2**power + 5 for power in range(12, 63))]
    words = np.array([*small, *(2**64 - 1 - word for word in small), 2**63 - 1, 2**63], dtype=np.uint64)
    expected = variates.normals(words, variance)
    found = [races._normal(word, np.sqrt(variance)) for word in words]
    assert np.array_equal(found, expected)
    places = (words >> races._EDGES_SHIFT).astype(int)
    assert (races._EDGES[places] <= expected / np.sqrt(variance) + 1e-9 + 2.0**-16 / np.sqrt(variance)).all()
    assert (races._EDGES[places + 1] >= expected / np.sqrt(variance) - 1e-9 - 2.0**-16 / np.sqrt(variance)).all()


def test_which_sessions_are_served() -> None:
    assert kernel.serves(arrival(1, 0.05).session)
    assert kernel.serves(lattice(1, 1, 4).session)
    assert not kernel.serves(make_session())
    assert not kernel.serves(make_session(pool_kind="discrete"))
