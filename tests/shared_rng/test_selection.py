"""Gumbel-max list sampling: exact in distribution, bounded in mismatch, and pure message by message."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from shared_rng import (
    BinCandidates,
    Selection,
    Session,
    bin_candidates,
    bin_labels,
    decoder_select,
    encoder_select,
    label_of,
    list_select,
    philox,
    require_picks,
    samples,
    selected_labels,
)
from shared_rng import pool as pool_module
from shared_rng.philox import RACE_DOMAIN, word_table
from shared_rng.variates import Floats, log_exponentials
from tests.models import make_session, refused, uniforms

N = 9
TRIALS = 20_000
ERRORS = 4.0
"""Bounds are this many standard errors wide: 6e-5 a comparison, and the seeds are fixed."""

PAIRS = [(1, 2), (3, 4)]
"""Seeds of the pairs of target q and proposal p."""
LISTS = [(PAIRS[0], 1), (PAIRS[0], 2), (PAIRS[0], 4), (PAIRS[0], 8), (PAIRS[1], 1), (PAIRS[1], 4)]


def distribution(seed: int) -> Floats:
    """A point of the simplex, uniformly (normalised exponentials)."""
    weights = -np.log(uniforms(N, seed))
    return np.asarray(weights / weights.sum())


def discrete(**changes: Any) -> Session:
    return make_session(**({"pool_size": N, "bins": 2, "decoders": 8, "pool_kind": "discrete"} | changes))


def everything(session: Session, messages: Sequence[int]) -> BinCandidates:
    """All candidates of every message, as if the decoder knew nothing of the bins."""
    count, size = len(messages), session.pool_size
    indices = np.tile(np.arange(size), count)
    offsets = np.arange(count + 1) * size
    return BinCandidates(
        messages, np.repeat(np.arange(count), size), indices, indices[:, None].astype(np.float64), offsets
    )


@cache
def encoded(seed: int, decoders: int, coupling: str = "gls") -> npt.NDArray[np.int64]:
    """Y of TRIALS messages."""
    weights = np.broadcast_to(np.log(distribution(seed)), (TRIALS, N))
    return encoder_select(discrete(decoders=decoders, coupling=coupling), range(TRIALS), weights).picks


@cache
def decoded(seed: int, decoder: int) -> npt.NDArray[np.int64]:
    """X^(k) of TRIALS messages among all candidates; race k is the same for every number of decoders."""
    weights = np.tile(np.log(distribution(seed)), TRIALS)
    return decoder_select(discrete(), decoder, everything(discrete(), range(TRIALS)), weights).picks


def matched(pair: tuple[int, int], decoders: int) -> npt.NDArray[np.bool_]:
    """Whether one of the first K decoders has the encoder's pick: [TRIALS]."""
    picks = encoded(pair[0], decoders)
    return np.asarray(np.any([decoded(pair[1], k) == picks for k in range(decoders)], axis=0))


def assert_follows(picks: npt.NDArray[np.int64], expected: Floats) -> None:
    """Chi-square at the limit that right picks pass with probability 0.9999."""
    counts = np.bincount(picks, minlength=N)
    assert counts.sum() == TRIALS
    assert stats.chisquare(counts, expected * TRIALS).statistic < stats.chi2.ppf(0.9999, N - 1)


@pytest.mark.parametrize(("seed", "decoders"), [(1, 1), (1, 2), (1, 4), (1, 8), (3, 4)])
def test_encoder_picks_follow_the_target(seed: int, decoders: int) -> None:
    assert_follows(encoded(seed, decoders), distribution(seed))


@pytest.mark.parametrize(("seed", "decoder"), [(2, 0), (2, 3), (2, 7), (4, 1)])
def test_decoder_picks_follow_the_proposal(seed: int, decoder: int) -> None:
    assert_follows(decoded(seed, decoder), distribution(seed))


@pytest.mark.parametrize(("one", "other"), [(0, 1), (2, 7)])
def test_decoders_race_in_private(one: int, other: int) -> None:
    """With GLS two decoders agree by chance only: with probability Σ p²."""
    chance = float(np.square(distribution(2)).sum())
    agreement = float((decoded(2, one) == decoded(2, other)).mean())
    assert abs(agreement - chance) < ERRORS * math.sqrt(chance * (1 - chance) / TRIALS)


@pytest.mark.parametrize(("pair", "decoders"), LISTS)
def test_list_matching_lemma(pair: tuple[int, int], decoders: int) -> None:
    """Pr[match | Y = j] is at least K/(K + c_j) with c_j = Σ_i (q_j p_i/p_j - q_i)_+, and equals it at K = 1."""
    q, p = distribution(pair[0]), distribution(pair[1])
    picks, match = encoded(pair[0], decoders), matched(pair, decoders)
    for j in range(N):
        bound = decoders / (decoders + np.maximum(q[j] * p / p[j] - q, 0).sum())
        trials = int((picks == j).sum())
        rate = float(match[picks == j].mean())
        slack = ERRORS * math.sqrt(bound * (1 - bound) / trials)
        assert rate >= bound - slack, j
        if decoders == 1:
            assert rate <= bound + slack, j


def test_equal_distributions_always_match() -> None:
    assert np.array_equal(encoded(1, 1), decoded(1, 0))


@pytest.mark.parametrize("pair", PAIRS)
def test_baseline_has_one_race_for_all(pair: tuple[int, int]) -> None:
    """Equal proposals make equal picks, whatever K is, and they are those of GLS for a single decoder."""
    for decoders in (1, 4):
        assert np.array_equal(encoded(pair[0], decoders, "baseline"), encoded(pair[0], 1))
    alone = decoded(pair[1], 0)
    candidates, weights = everything(discrete(), range(2000)), np.tile(np.log(distribution(pair[1])), 2000)
    for decoder in range(8):
        shared = decoder_select(discrete(coupling="baseline"), decoder, candidates, weights)
        assert np.array_equal(shared.picks, alone[:2000])
    assert not np.array_equal(decoded(pair[1], 3), alone)
    assert not np.array_equal(encoded(pair[0], 4), encoded(pair[0], 1))


@pytest.mark.parametrize("pair", PAIRS)
def test_gls_beats_the_baseline(pair: tuple[int, int]) -> None:
    """A list of private picks is worth more than the one pick that decoders with a shared race have in common."""
    shared = encoded(pair[0], 4, "baseline") == decoded(pair[1], 0)
    gain = float(matched(pair, 4).mean()) - float(shared.mean())
    assert gain > 3 * ERRORS * math.sqrt(2 * 0.25 / TRIALS)


NUMBERS = [3, 0, 2**64 - 1, 77, 2**40]


def rough_weights(shape: tuple[int, ...], seed: int = 6) -> Floats:
    """Log weights between -4 and 4."""
    return 8.0 * uniforms(math.prod(shape), seed).reshape(shape) - 4.0


@pytest.mark.parametrize("coupling", ["gls", "baseline"])
@pytest.mark.parametrize("decoders", [1, 3, 8])
def test_encoder_minimises_over_all_races(coupling: str, decoders: int) -> None:
    """The minimum on words is that of log S, race by race; what is sent is the label of the pick."""
    session = make_session(decoders=decoders, coupling=coupling)
    messages = range(1000, 1200)
    weights = rough_weights((200, session.pool_size))
    races = decoders if coupling == "gls" else 1
    times = [log_exponentials(word_table(session.seed, RACE_DOMAIN + k, messages, 64)) for k in range(races)]
    expected = np.argmin(np.min(times, axis=0) - weights, axis=1)
    selection = encoder_select(session, messages, weights)
    assert np.array_equal(selection.picks, expected)
    labels = bin_labels(session, messages)[np.arange(200), expected]
    assert np.array_equal(selected_labels(session, messages, selection), labels)


@pytest.mark.parametrize("decoder", [0, 2])
def test_decoder_minimises_over_the_bin(decoder: int) -> None:
    session = make_session(decoders=3)
    messages = range(1000, 1200)
    received = (np.arange(200) % 8).astype(np.uint32)
    candidates = bin_candidates(session, messages, received)
    weights = rough_weights((200, 64))
    found = decoder_select(session, decoder, candidates, weights[candidates.rows, candidates.indices])
    times = log_exponentials(word_table(session.seed, RACE_DOMAIN + decoder, messages, 64))
    scores = np.where(bin_labels(session, messages) == received[:, None], times - weights, np.inf)
    assert np.array_equal(found.picks, np.argmin(scores, axis=1))


@pytest.mark.parametrize("order", [[0], [4], [4, 2, 0, 1, 3], [1, 1, 3]])
def test_messages_are_independent(order: list[int]) -> None:
    """Alone, in another order or twice: the same picks, labels, bins and samples."""
    session = make_session(decoders=3, latent_dimension=2)
    some = [NUMBERS[i] for i in order]
    weights, received = rough_weights((5, 64)), np.arange(5, dtype=np.uint32)
    both = encoder_select(session, NUMBERS, weights), encoder_select(session, some, weights[order])
    assert np.array_equal(both[1].picks, both[0].picks[order])
    assert np.array_equal(selected_labels(session, some, both[1]), selected_labels(session, NUMBERS, both[0])[order])
    assert np.array_equal(samples(session, some), samples(session, NUMBERS)[order])
    all_, part = (bin_candidates(session, n, r) for n, r in ((NUMBERS, received), (some, received[order])))
    picks = [decoder_select(session, 2, c, np.square(c.samples).sum(axis=1)).picks for c in (all_, part)]
    assert np.array_equal(picks[1], picks[0][order])


def test_constant_in_the_weights_changes_nothing() -> None:
    """Normalising constants cancel: weights may carry any constant a message."""
    session = make_session()
    weights = rough_weights((5, 64))
    shifted = weights + np.array([0.0, 1e3, -1e3, 5e5, -5e5])[:, None]
    assert np.array_equal(
        encoder_select(session, NUMBERS, shifted).picks, encoder_select(session, NUMBERS, weights).picks
    )


def fixed_words(monkeypatch: pytest.MonkeyPatch, words: list[int]) -> None:
    """Every race of every message has these words."""

    def row(seed: int, domain: int, message: int, start: int, count: int) -> npt.NDArray[np.uint64]:
        return np.array(words, dtype=np.uint64)

    monkeypatch.setattr(philox, "words", row)


@pytest.mark.parametrize(
    ("words", "weights", "pick"),
    [
        ([5 << 40] * 4, [0.0] * 4, 0),
        ([1 << 40, 5 << 40, 5 << 40, 0], [0.0] * 4, 1),
        ([5 << 40] * 4, [0.0, 1.0, 2.0, 2.0], 2),
        # Words that differ in the eleven unused bits alone are equal.
        ([0, 5 << 40, (5 << 40) + 2047, 0], [0.0] * 4, 1),
        ([2**60, 2**62, 0, 2**63], [-np.inf, -np.inf, -700.0, -np.inf], 2),
        # S = 0 beats every finite weight.
        ([2**63, 2**64 - 1, 2**63, 2**64 - 1], [50.0, -50.0, 0.0, 0.0], 1),
        (
            [2**63, 2**63, 2**64 - 1, 2**63],
            [0.0, 1.0, -np.inf, 0.0],
            1,
        ),
    ],
)
def test_ties_and_extreme_words(
    monkeypatch: pytest.MonkeyPatch, words: list[int], weights: list[float], pick: int
) -> None:
    """The lowest index wins ties, at both ends, and a weight of zero never wins."""
    session = make_session(pool_size=4, bins=2, pool_kind="discrete")
    fixed_words(monkeypatch, words)
    assert encoder_select(session, [0, 1], np.array([weights, weights])).picks.tolist() == [pick, pick]
    found = decoder_select(session, 1, everything(session, [0, 1]), np.array(weights * 2))
    assert found.picks.tolist() == [pick, pick]


FAULTS = [
    ([np.nan, 0.0, -np.inf, 0.0], "1 of 4 log importance weights are NaN"),
    ([np.nan] * 4, "4 of 4 log importance weights are NaN"),
    ([np.nan, np.inf, 0.0, np.nan], "2 of 4 log importance weights are NaN"),
    ([0.0, np.inf, np.inf, -np.inf], "2 of 4 log importance weights are infinite"),
    ([-np.inf] * 4, "all 4 importance weights are zero"),
]


@pytest.mark.parametrize(("weights", "reason"), FAULTS)
def test_bad_weights_fail_alone(weights: list[float], reason: str) -> None:
    session = make_session(pool_size=4, bins=2, pool_kind="discrete")
    good = rough_weights((3, 4))
    bad = good.copy()
    bad[1] = weights
    candidates = everything(session, [8, 9, 10])
    for right, wrong in (
        (encoder_select(session, [8, 9, 10], good), encoder_select(session, [8, 9, 10], bad)),
        (decoder_select(session, 1, candidates, good.ravel()), decoder_select(session, 1, candidates, bad.ravel())),
    ):
        assert right.failures == {}
        assert wrong.failures == {9: reason}
        assert wrong.picks.tolist() == [right.picks[0], -1, right.picks[2]]
    with refused("message 9", reason, "log importance weights of which one is finite"):
        require_picks(Selection(np.array([0, -1, 1]), {9: reason}))
    require_picks(Selection(np.array([0, 1, 1])))


def test_empty_bin_fails_alone() -> None:
    """No honest message points to one, but a corrupt one can."""
    session = make_session(pool_size=10, bins=8)
    messages = [20, 21, 22]
    labels = bin_labels(session, messages)
    received = labels[:, 3].copy()
    good = decoder_select(
        session, 0, candidates := bin_candidates(session, messages, received), candidates.samples[:, 0]
    )
    received[1] = next(label for label in range(8) if label not in labels[1])
    candidates = bin_candidates(session, messages, received)
    assert candidates.offsets[1] == candidates.offsets[2]
    found = decoder_select(session, 0, candidates, candidates.samples[:, 0])
    assert found.picks.tolist() == [good.picks[0], -1, good.picks[2]]
    assert set(found.failures) == {21}
    assert "empty" in found.failures[21]


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"latent_dimension": 3, "pool_variance": 2.5},
        {"bins": 64},
        {"binning": "modulo"},
        {"binning": "region", "latent_dimension": 2},
        {"pool_kind": "discrete"},
    ],
)
def test_bins(change: dict[str, Any]) -> None:
    """A decoder sees exactly the candidates of the bin, and both ends agree on the label of each."""
    session = make_session(**change)
    labels = bin_labels(session, NUMBERS)
    received = labels[[0, 1, 2, 3, 4], [5, 63, 0, 7, 9]]
    found = bin_candidates(session, NUMBERS, received)
    rows, indices = np.nonzero(labels == received[:, None])
    assert np.array_equal(found.rows, rows)
    assert np.array_equal(found.indices, indices)
    assert np.array_equal(found.samples, samples(session, NUMBERS)[rows, indices])
    assert np.array_equal(found.offsets, np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=5))]))
    assert [[label_of(session, m, i) for i in range(64)] for m in NUMBERS] == labels.tolist()
    picks = decoder_select(session, 0, found, rough_weights(indices.shape)).picks
    assert np.array_equal(labels[np.arange(5), picks], received)


def test_lists() -> None:
    """The encoder takes the heaviest candidate, the first of equals; decoder k the k-th of the bin, always."""
    session = make_session(pool_kind="discrete", pool_size=24, decoders=3, coupling="list")
    weights = rough_weights((5, 24))
    weights[2, [7, 19]] = 99.0
    selection = encoder_select(session, NUMBERS, weights)
    assert selection.picks.tolist() == weights.argmax(axis=1).tolist()
    assert selection.picks[2] == 7
    received = np.array([0, 7, 3, 3, 5], dtype=np.uint32)
    candidates = bin_candidates(session, NUMBERS, received)
    for k in range(3):
        found = list_select(session, k, received)
        assert (found.picks.tolist(), found.failures) == (candidates.indices.reshape(5, 3)[:, k].tolist(), {})
    with refused("decoder", "3", "0 … 2"):
        list_select(session, 3, received)
    with refused("coupling", "gls", "list"):
        list_select(make_session(), 0, received)
    with refused("coupling", "list", "gls or baseline"):
        decoder_select(session, 0, candidates, np.zeros(15))


def test_wrong_shapes() -> None:
    session = make_session()
    for shape in ((2, 63), (3, 64), (64,), (2, 64, 1)):
        with refused("log importance weights", f"shape {shape}", "shape (2, 64)"):
            encoder_select(session, [0, 1], np.zeros(shape))
    candidates = everything(session, [0, 1])
    for shape in ((127,), (129,), (2, 64)):
        with refused("log importance weights", f"shape {shape}", "shape (128,)"):
            decoder_select(session, 0, candidates, np.zeros(shape))
    with refused("decoder", "2", "0 … 1"):
        decoder_select(session, 2, candidates, np.zeros(128))
    for count in (1, 3):
        with refused("received labels", str(count), "2"):
            bin_candidates(session, [0, 1], np.zeros(count, dtype=np.uint32))


@given(
    small=st.integers(2, 64), more=st.integers(0, 64), dimension=st.integers(1, 4), message=st.integers(0, 2**64 - 1)
)
def test_pools_are_prefixes(small: int, more: int, dimension: int, message: int) -> None:
    """Sessions that differ in N alone share candidates, labels and races, as far as both have them."""
    fields: dict[str, Any] = {"bins": 2, "latent_dimension": dimension, "binning": "random"}
    one, other = (make_session(pool_size=n, **fields) for n in (small, small + more))
    assert np.array_equal(samples(other, [message])[:, :small], samples(one, [message]))
    race = pool_module.race_log_times
    indices = np.arange(small)
    assert np.array_equal(race(other, 1, message, indices), race(one, 1, message, indices))
    assert np.array_equal(bin_labels(other, [message])[:, :small], bin_labels(one, [message]))
