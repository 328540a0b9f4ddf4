"""The toy study: exact match probabilities of two letter distributions."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.bounds import list_matching_bound
from experiments.gaussian import Floats
from experiments.results import Results
from experiments.toy import match_probability, random_pairs, run_toy

# Fixed seeds; a mean passes 4 standard errors with probability 3e-5.


def simulated(q: Floats, p: Floats, decoders: int, trials: int, seed: int) -> tuple[float, float]:
    """Match probability of GLS as it is defined, and its standard error."""
    times = np.random.Generator(np.random.Philox(seed)).exponential(size=(trials, decoders, len(q)))
    y = (times.min(axis=1) / q).argmin(axis=1)
    x = (times / p).argmin(axis=2)
    matched = (x == y[:, None]).any(axis=1)
    return float(matched.mean()), float(matched.std() / math.sqrt(trials))


@pytest.mark.parametrize("decoders", [1, 2, 5, 20])
def test_exact_equals_simulation(decoders: int) -> None:
    for number, (q, p) in enumerate(zip(*random_pairs(3, 10, 3), strict=True)):
        found, error = simulated(q, p, decoders, 60_000 // decoders, number)
        assert abs(match_probability(q, p, [decoders])[0] - found) < 4 * error


def test_exact_at_the_corners() -> None:
    q, p = (rows[0] for rows in random_pairs(1, 10, 4))
    assert match_probability(q, p, [1])[0] == pytest.approx(list_matching_bound(q, p, 1), abs=1e-12)
    assert match_probability(q, q, [1, 3, 20]) == pytest.approx(np.ones(3), abs=1e-12)
    # Nearly degenerate p: every decoder always picks letter 0, so the match probability is q_0 for any K.
    degenerate = np.array([1.0 - 3e-9, 1e-9, 1e-9, 1e-9])
    assert match_probability(np.array([0.4, 0.3, 0.2, 0.1]), degenerate, [1, 7]) == pytest.approx(0.4, abs=1e-7)


def test_two_letters_by_hand() -> None:
    """q = (½, ½), p = (p₁, 1 - p₁), K = 1: a match exactly unless the times' ratio lies between the two odds."""
    p = np.array([0.8, 0.2])
    # Y = 1 iff S₁ < S₂, X = 1 iff S₁ / S₂ < 4; S₁ / (S₁ + S₂) is uniform, so they differ with 4/5 - 1/2.
    assert match_probability(np.array([0.5, 0.5]), p, [1])[0] == pytest.approx(0.7, abs=1e-12)


def test_study_lies_between_its_bounds() -> None:
    records = run_toy()
    assert [r.decoders for r in records] == list(range(1, 21))
    exact = [r.match_probability for r in records]
    bound = [r.match_bound_lemma or 0.0 for r in records]
    assert exact == sorted(exact)
    assert exact[0] == pytest.approx(bound[0], abs=1e-12)
    assert all(0.005 < e - b < 0.05 for e, b in zip(exact[1:], bound[1:], strict=True))
    # The maximal coupling does better, GLS without communication not worse than half of its losses.
    optimum = records[0].match_optimum or 0.0
    assert exact[0] < optimum < 2.0 * exact[0]
    assert all(r.match_optimum is None for r in records[1:])


def test_command(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["toy", "--out", str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    results = Results.read(tmp_path / "new")
    expected = [dataclasses.replace(r, seconds=0.0) for r in run_toy()]
    assert [dataclasses.replace(r, seconds=0.0) for r in results.records] == expected
    assert results.configuration["pairs"] == 100
    assert (tmp_path / "new" / "toy.png").stat().st_size > 10_000
    assert f"{results.records[0].match_optimum:.4f}" in done.output
