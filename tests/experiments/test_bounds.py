"""Limits of distortion, and lower bounds that the match probability respects."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from decoder import DecoderModel, load_decoder_model
from encoder import EncoderModel, load_encoder_model
from experiments.bounds import lemma_terms, list_matching_bound, proposition_4, wyner_ziv_db
from experiments.coding import code_in_process
from experiments.gaussian import Cell, Floats, draw, open_cell
from shared_rng import Session, bin_labels
from tests.models import gaussian_card, make_session

# Fixed seeds; a mean passes 4 standard errors with probability 3e-5.


@pytest.mark.parametrize(
    ("bits", "decoders", "expected"),
    [(0, 1, -4.7712), (1, 1, -10.7918), (3, 1, -22.8330), (6, 1, -40.8948), (1, 2, -16.8124), (3, 4, -34.8742)],
)
def test_wyner_ziv(bits: int, decoders: int, expected: float) -> None:
    """10·log10((1/3)·2^(-2 (R + log2 K)))."""
    assert wyner_ziv_db(bits, decoders) == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize(("decoders", "bins", "noise"), [(1, 2, 0.01), (2, 8, 0.002), (4, 64, 0.001), (3, 4, 0.5)])
def test_proposition_4_is_the_mean_of_its_terms(decoders: int, bins: int, noise: float) -> None:
    count = 100_000
    sources, (side,) = draw(5, count, 1)
    w = sources + math.sqrt(noise) * np.random.Generator(np.random.Philox(6)).standard_normal(count)
    ratio = stats.norm.pdf(w, sources, math.sqrt(noise)) / stats.norm.pdf(w, side / 1.5, math.sqrt(1 / 3 + noise))
    terms = 1.0 / (1.0 + ratio / (decoders * bins))
    assert abs(proposition_4(decoders, bins, noise) - terms.mean()) < 4 * terms.std() / math.sqrt(count)


def equation_3(q: Floats, p: Floats, j: int, decoders: int) -> float:
    """Theorem 1 for one letter, as the paper writes it: its share of Pr[match], K being many equal decoders."""
    return decoders / (sum(max(q[i] / q[j], p[i] / p[j]) for i in range(len(q))) + (decoders - 1) / q[j])


def test_list_matching_bound_is_equation_3() -> None:
    q, p = np.random.Generator(np.random.Philox(7)).dirichlet(np.ones(10), size=2)
    for decoders in (1, 2, 20):
        expected = sum(equation_3(q, p, j, decoders) for j in range(10))
        assert list_matching_bound(q, p, decoders) == pytest.approx(expected, rel=1e-12)
    assert list_matching_bound(q, q, 3) == pytest.approx(1.0)


def normal_weights(points: Floats, mean: float, variance: float) -> Floats:
    weights = stats.norm.pdf(points, mean, math.sqrt(variance))
    return np.asarray(weights / weights.sum())


def small_pool(noise: float, **changes: Any) -> tuple[Session, EncoderModel, DecoderModel]:
    card = gaussian_card(noise=noise)
    session = make_session(model_digest=card.digest, pool_variance=1.0 + noise, **changes)
    return session, load_encoder_model(card), load_decoder_model(card)


@pytest.mark.parametrize("order", ["index", "arrival"])
def test_lemma_terms_are_equation_3_on_the_realised_pool(order: str) -> None:
    """Against the paper's form, by plain sums over a small pool; with different p^(k), their mean."""
    noise, decoders = 0.05, 3
    session, encoder_model, decoder_model = small_pool(noise, pool_size=32, bins=4, decoders=decoders, race_order=order)
    sources, sides = draw(8, 20, decoders)
    picks = code_in_process(session, encoder_model, decoder_model, sources, sides).encoder_picks
    terms = lemma_terms(session, encoder_model, decoder_model, sources, sides, picks)
    for b, pick in enumerate(picks):
        points = session.candidates(b, 0, 32)[:, 0]
        labels = bin_labels(session, [b])[0]
        prior = stats.norm.pdf(points, 0.0, math.sqrt(1.0 + noise))
        q = normal_weights(points, float(sources[b]), noise) / prior
        q /= q.sum()
        expected = 0.0
        for side in sides:
            p = normal_weights(points, float(side[b]) / 1.5, 1 / 3 + noise) / prior * (labels == labels[pick])
            expected += equation_3(q, p, int(pick), decoders) / q[pick] / decoders
        assert terms[b] == pytest.approx(expected, rel=1e-9)


def test_lemma_is_the_match_probability_of_one_decoder() -> None:
    """At K = 1 every message matches with exactly the probability of its term."""
    session, encoder_model, decoder_model = small_pool(0.02, pool_size=64, bins=4, decoders=1, race_order="arrival")
    count = 8000
    sources, sides = draw(9, count, 1)
    outcome = code_in_process(session, encoder_model, decoder_model, sources, sides, count)
    terms = lemma_terms(session, encoder_model, decoder_model, sources, sides, outcome.encoder_picks)
    difference = outcome.matched - terms
    assert abs(difference.mean()) < 4 * difference.std() / math.sqrt(count)
    # Not only on average: messages that the lemma holds likely do match more often, by as much as it says.
    likely = terms > 0.7
    assert 0.2 < likely.mean() < 0.9
    assert abs(difference[likely].mean()) < 4 * difference[likely].std() / math.sqrt(likely.sum())


@pytest.mark.parametrize(("scheme", "decoders", "bins", "noise"), [("iid", 2, 4, 0.01), ("lattice", 2, 2, None)])
def test_private_races_match_more_often_than_the_lemma_says(
    scheme: str, decoders: int, bins: int, noise: float | None
) -> None:
    count = 300 if scheme == "iid" else 5000
    session, encoder_model, decoder_model = open_cell(Cell(scheme, "gls", decoders, bins), noise, 10)
    sources, sides = draw(11, count, decoders)
    outcome = code_in_process(session, encoder_model, decoder_model, sources, sides, count)
    terms = lemma_terms(session, encoder_model, decoder_model, sources, sides, outcome.encoder_picks)
    difference = outcome.matched - terms
    assert difference.mean() > -4 * difference.std() / math.sqrt(count)
    # The bound is no empty statement: it lies within a tenth of what it bounds.
    assert difference.mean() < 0.1


def test_lemma_of_impossible_weights_is_zero_and_no_overflow() -> None:
    """A decoder whose side information rules the encoder's pick out contributes nothing."""
    session, encoder_model, decoder_model = open_cell(Cell("lattice", "gls", 1, 2), None, 12)
    sources = np.array([3.0])
    picks = code_in_process(session, encoder_model, decoder_model, sources, [np.array([-60.0])]).encoder_picks
    terms = lemma_terms(session, encoder_model, decoder_model, sources, [np.array([-60.0])], picks)
    assert 0.0 <= terms[0] < 1e-12
