"""Cells of the Gaussian sweep against the paper's figures and measured ones, at fewer messages."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from experiments import cell as cell_module
from experiments.cell import Chunk, Plan, Trials, Workers, choose, measure, run_chunk
from experiments.gaussian import Cell, open_cell
from experiments.report import z_score
from experiments.results import Record

TRIALS = 20_000

# Match probability, and its standard error, measured at this s² with an independent implementation.
CELLS = {
    Cell("iid", "gls", 1, 2): (0.01, 0.317),
    Cell("iid", "gls", 4, 64): (0.001, 0.913),
    Cell("iid", "baseline", 2, 8): (0.008, 0.668),
    Cell("iid", "baseline", 4, 2): (0.01, 0.443),
}
MATCH_ERROR = 0.001


def measured(cell: Cell, plan: Plan, threads: int = 2) -> Record:
    with ThreadPoolExecutor(threads) as pool:
        return measure(cell, plan, Workers(pool, lambda count: None))


@pytest.fixture
def small_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lemma on 64 messages of the large pool, where a test is about something else."""
    monkeypatch.setattr(cell_module, "BOUND_CANDIDATES", 2**21)


@pytest.fixture(scope="module")
def records() -> dict[Cell, Record]:
    return {cell: measured(cell, Plan((noise,), 100, TRIALS, 1, 1)) for cell, (noise, _) in CELLS.items()}


def test_reproduces_the_paper(records: dict[Cell, Record]) -> None:
    """z within 4 standard errors in each cell and a sum of squares within its 99.9 % point."""
    scores = [z_score(record) for record in records.values()]
    assert all(z is not None and abs(z) < 4 for z in scores), scores
    assert sum(z * z for z in scores if z is not None) < 18.47, scores


def test_reproduces_measured_match_probabilities(records: dict[Cell, Record]) -> None:
    for cell, (_, expected) in CELLS.items():
        record = records[cell]
        assert record.match_probability_sem is not None
        error = math.hypot(record.match_probability_sem, MATCH_ERROR)
        assert abs(record.match_probability - expected) < 4 * error, cell


def test_match_probability_respects_both_bounds(records: dict[Cell, Record]) -> None:
    for cell, record in records.items():
        lemma, prop4 = record.match_bound_lemma, record.match_bound_prop4
        if cell.coupling == "baseline":
            assert lemma is None
            assert prop4 is None
            continue
        assert lemma is not None
        assert prop4 is not None
        assert record.match_bound_lemma_sem is not None
        assert record.match_probability_sem is not None
        error = math.hypot(record.match_probability_sem, record.match_bound_lemma_sem)
        assert record.match_probability > prop4 - 4 * record.match_probability_sem
        assert record.match_probability > lemma - 4 * error
        # The lemma is the sharper of the two, and the match probability itself for one decoder.
        assert lemma > prop4 - 4 * record.match_bound_lemma_sem
        if cell.decoders == 1:
            assert abs(record.match_probability - lemma) < 4 * error


@pytest.mark.usefixtures("small_bound")
def test_one_decoder_is_the_same_scheme_in_both_couplings() -> None:
    plan = Plan((0.01,), 100, 500, 1, 2)
    gls, baseline = (measured(Cell("iid", coupling, 1, 4), plan) for coupling in ("gls", "baseline"))
    assert baseline.match_bound_lemma is not None
    assert baseline.match_bound_prop4 == gls.match_bound_prop4
    # From sources of its own, or two equal columns would pass for two measurements.
    assert baseline.mean_db != gls.mean_db


@pytest.mark.parametrize(
    ("decoders", "bins", "core_db", "far_share"),
    [(1, 8, -16.27, 2.4e-4), (2, 8, -23.67, None), (4, 8, -30.74, None), (1, 64, -32.09, 1.8e-6),
     (2, 64, -39.92, None), (4, 64, -47.42, 1.2e-7)],
)  # fmt: skip
def test_lattice_reproduces_its_measured_core_and_failures(
    decoders: int, bins: int, core_db: float, far_share: float | None
) -> None:
    """Errors clipped at two cells are known to about .05 dB; shares of messages beyond to their two digits.

    The integrated share has a standard error below 10 % with 10,000 messages.
    """
    record = measured(Cell("lattice", "gls", decoders, bins), Plan((0.01,), 100, TRIALS, 1, 3))
    assert record.core_db == pytest.approx(core_db, abs=0.15)
    assert record.far_messages is not None
    if far_share is None:
        return
    assert record.far_share_integrated == pytest.approx(far_share, rel=0.3)
    assert abs(record.far_messages - far_share * TRIALS) < 4.0 * math.sqrt(far_share * TRIALS) + 1.0


@pytest.mark.parametrize("bins", [4, 8])
def test_a_lattice_miss_is_an_error_beyond_two_cells(bins: int) -> None:
    cell = Cell("lattice", "gls", 1, bins)
    trials = run_chunk(Chunk(cell, None, 4, 40_000, 0))
    far = trials.errors > (2.0 * open_cell(cell, None, 4)[0].cell_width) ** 2
    assert far.sum() > 3
    assert np.array_equal(far, ~trials.matched)


def test_metrics_by_hand() -> None:
    """The mean of decibels and the decibels of the mean are 9 dB apart here: never the same figure."""

    class Fixed(Workers):
        def run(self, chunks: Sequence[Chunk]) -> list[Trials]:
            errors = np.array([0.001, 0.1, 1.0])
            return [Trials(errors, np.array([True, False, True]), np.array([0.5, 0.75, 0.25]), 64, 0.2, 1, 2, 0.5)]

    with ThreadPoolExecutor(1) as pool:
        record = measure(Cell("iid", "gls", 1, 2), Plan((0.01,), 10, 100, 2, 1), Fixed(pool, lambda count: None))
    assert record.mean_db == pytest.approx(-40 / 3)
    # Errors are clipped at (2 · 0.2)² = .16, which one of three exceeds: the mean of .001, .1 and .16 is .087.
    assert record.core_db == pytest.approx(-10.604807)
    assert record.far_messages == 2
    assert record.mse_db == pytest.approx(-4.353339)  # of 0.367
    # Of -30, -10 and 0 twice: sample deviation 13.662601 of six.
    assert record.mean_db_sem == pytest.approx(5.577734)
    assert (record.messages, record.missed_messages, record.failed_messages, record.payload_bytes) == (6, 2, 2, 4)
    assert (record.match_probability, record.match_bound_lemma) == (pytest.approx(2 / 3), pytest.approx(0.5))
    # A run that chooses and one that evaluates, twice.
    assert record.cpu_seconds == pytest.approx(2.0)


@pytest.mark.usefixtures("small_bound")
def test_both_metrics_and_the_interval_come_from_the_same_messages() -> None:
    cell, plan = Cell("iid", "gls", 2, 8), Plan((0.002,), 100, 3000, 1, 5)
    record = measured(cell, plan)
    assert (record.messages, record.pool_size, record.bits) == (3000, 2**15, 3)
    assert record.mean_db is not None
    assert record.mse_db is not None
    # The paper's metric lies far below the dB of the mean squared error (-21.7 and -8.6, measured).
    assert record.mean_db == pytest.approx(-21.7, abs=1.0)
    assert record.mse_db == pytest.approx(-8.6, abs=0.8)
    assert record.mse_db_low is not None
    assert record.mse_db_high is not None
    assert record.mse_db_low < record.mse_db < record.mse_db_high < record.mse_db_low + 1.5
    assert record.missed_messages == round((1 - record.match_probability) * 3000)


def test_no_interval_without_a_miss() -> None:
    record = measured(Cell("lattice", "gls", 4, 64), Plan((0.01,), 100, 1000, 1, 6))
    assert record.missed_messages == 0
    assert (record.mse_db_low, record.mse_db_high, record.noise_variances) == (None, None, None)
    assert record.match_bound_lemma is not None
    assert record.match_bound_prop4 is None


@pytest.mark.parametrize("variances", [(0.001, 2.0), (2.0, 0.001)])
def test_choice_is_the_least_mean_db(variances: tuple[float, ...]) -> None:
    cell = Cell("iid", "gls", 4, 64)
    with ThreadPoolExecutor(2) as pool:
        chosen, _ = choose(cell, Plan(variances, 200, 100, 1, 7), 0, Workers(pool, lambda count: None))
    assert chosen == 0.001


@pytest.mark.usefixtures("small_bound")
def test_repetitions_choose_and_evaluate_afresh() -> None:
    cell = Cell("iid", "gls", 1, 2)
    once = measured(cell, Plan((0.01, 0.008), 200, 300, 1, 8))
    thrice = measured(cell, Plan((0.01, 0.008), 200, 300, 3, 8))
    assert (once.messages, thrice.messages) == (300, 900)
    assert len(thrice.noise_variances or []) == 3
    assert (thrice.noise_variances or [])[:1] == once.noise_variances
    assert thrice.mean_db != once.mean_db
    assert thrice.mean_db_sem is not None
    assert once.mean_db_sem is not None
    assert thrice.mean_db_sem == pytest.approx(once.mean_db_sem / math.sqrt(3), rel=0.25)


@pytest.mark.usefixtures("small_bound")
def test_evaluation_sees_none_of_the_messages_that_chose() -> None:
    """With as many messages for either purpose, equal sources would give equal errors."""
    seeds: dict[str, set[int]] = {"choose": set(), "evaluate": set()}

    class Spy(Workers):
        def run(self, chunks: Sequence[Chunk]) -> list[Trials]:
            purpose = "evaluate" if chunks[0].bound_candidates else "choose"
            seeds[purpose] |= {chunk.seed for chunk in chunks}
            return super().run(chunks)

    with ThreadPoolExecutor(2) as pool:
        plan = Plan((0.01, 0.005), 3000, 3000, 2, 9)
        measure(Cell("iid", "gls", 1, 2), plan, Spy(pool, lambda count: None))
    # Two chunks a repetition, the same ones for each s².
    assert {name: len(found) for name, found in seeds.items()} == {"choose": 4, "evaluate": 4}
    assert not seeds["choose"] & seeds["evaluate"]
