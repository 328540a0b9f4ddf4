"""The sweep as a whole: options, resuming, the command line and its plots."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments import gaussian_plots, match_plots, reference_cells, sweep
from experiments.__main__ import app
from experiments.gaussian import SCHEMES
from experiments.results import Record, Results
from experiments.sweep import SweepOptions, run_sweep
from shared_rng import CodecError
from tests.models import refused

SMALL: dict[str, Any] = {
    "schemes": ("iid", "lattice", "narrow", "nested"),
    "couplings": ("gls",),
    "decoders": (1, 2),
    "bins": (2, 8),
    "variances": (0.01, 0.005),
    "choose_trials": 100,
    "trials": 150,
}
COMMAND = [
    sys.executable, "-m", "experiments", "sweep", "gaussian", "--couplings", "gls", "--decoders", "1,2",
    "--bins", "2,8", "--schemes", "iid,lattice,narrow,nested",
    "--variances", "0.01,0.005", "--choose-trials", "100", "--trials", "150", "--workers", "1",
]  # fmt: skip


def untimed(records: Any) -> list[Record]:
    return [dataclasses.replace(record, seconds=0.0, cpu_seconds=0.0) for record in records]


def records_in(folder: Path) -> int:
    """Number of records; the file is complete whenever it is there, so a torn one fails here."""
    path = folder / "results.json"
    return len(json.loads(path.read_text())["records"]) if path.exists() else 0


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("uninterrupted")
    run_sweep(SweepOptions(**SMALL), folder, 3, {})
    return folder


def test_cells_in_order_and_the_whole_configuration(uninterrupted: Path) -> None:
    results = Results.read(uninterrupted)
    cells = [(r.scheme, r.coupling, r.decoders, r.bins) for r in results.records]
    pairs = [*((scheme, "gls") for scheme in SCHEMES), ("nested", "none")]
    assert cells == [(*pair, k, bins) for pair in pairs for k in (1, 2) for bins in (2, 8)]
    expected = {name: list(v) if isinstance(v, tuple) else v for name, v in SMALL.items()}
    expected |= {"experiment": "gaussian sweep", "repetitions": 1, "seed": 1}
    assert results.configuration.items() >= expected.items()
    assert results.configuration["cpu_seconds"] > 0


def test_killed_and_resumed_is_the_same(uninterrupted: Path, tmp_path: Path) -> None:
    """SIGKILL in mid-run with one worker; the rest with two: the same records, the finished ones untouched."""
    program = subprocess.Popen([*COMMAND, "--out", str(tmp_path)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while records_in(tmp_path) < 2 and program.poll() is None and time.monotonic() < deadline:
        time.sleep(0.005)
    program.kill()
    assert program.wait() == -9
    before = Results.read(tmp_path)
    assert 2 <= len(before.records) < 16
    after = run_sweep(SweepOptions(**SMALL), tmp_path, 2, {})
    assert after == Results.read(tmp_path)
    assert untimed(after.records) == untimed(Results.read(uninterrupted).records)
    # Finished cells are kept, timings and all, and the time that they took still counts.
    assert all(record in after.records for record in before.records)
    assert after.configuration["cpu_seconds"] > before.configuration["cpu_seconds"]


def test_nothing_is_measured_twice(uninterrupted: Path) -> None:
    before = Results.read(uninterrupted)
    assert run_sweep(SweepOptions(**SMALL), uninterrupted, 1, {}).records == before.records


def test_an_error_in_a_cell_ends_the_run_and_keeps_what_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    measure, called = sweep.measure, []

    def failing(cell: Any, *rest: Any) -> Record:
        called.append(cell)
        if len(called) == 1:
            return measure(cell, *rest)
        time.sleep(0.1 * (len(called) > 2))
        raise OSError(f"no space for cell {len(called)}")

    options = SweepOptions(**SMALL | {"schemes": ("lattice",), "decoders": tuple(range(1, 11))})
    with monkeypatch.context() as patched:
        patched.setattr(sweep, "measure", failing)
        with pytest.raises(OSError, match="no space for cell 2"):
            run_sweep(options, tmp_path, 1, {})
    assert records_in(tmp_path) == 1
    # Cells that had not begun are given up.
    assert len(called) < len(options.cells()) // 2


@pytest.mark.parametrize(
    ("name", "value", "asked", "stored"),
    [
        ("trials", 151, "151", "150"),
        ("choose_trials", 101, "101", "100"),
        ("seed", 2, "2", "1"),
        ("repetitions", 2, "2", "1"),
        ("variances", (0.01,), "0.01", "0.01,0.005"),
        ("decoders", (1, 2, 3), "1,2,3", "1,2"),
        ("bins", (2,), "2", "2,8"),
        ("couplings", ("baseline",), "baseline", "gls"),
        ("schemes", ("iid",), "iid", "iid,lattice,narrow,nested"),
    ],
)
def test_other_options_in_the_same_folder_are_refused(
    uninterrupted: Path, name: str, value: Any, asked: str, stored: str
) -> None:
    text = (uninterrupted / "results.json").read_text()
    with refused(name, asked, f"{stored}, as {uninterrupted / 'results.json'} has"):
        run_sweep(SweepOptions(**SMALL | {name: value}), uninterrupted, 1, {})
    assert (uninterrupted / "results.json").read_text() == text


def test_results_of_something_else_are_refused(tmp_path: Path) -> None:
    Results({"digits": 5}, []).write(tmp_path)
    with refused("experiment", "gaussian sweep", "nothing, as"):
        run_sweep(SweepOptions(**SMALL), tmp_path, 1, {})


@pytest.mark.parametrize(
    ("name", "value", "given", "expected"),
    [
        ("schemes", ("iid", "quantiser"), "'quantiser'", "some of iid, lattice"),
        ("couplings", ("GLS",), "'GLS'", "some of gls, baseline"),
        ("couplings", ("gls", "gls"), "gls,gls", "each once"),
        ("decoders", (), "nothing", "at least one value"),
        ("decoders", (0,), "0", "an integer in 1"),
        ("bins", (3,), "3", "a power of two"),
        ("bins", (2**16,), "65536", "at most pool_size"),
        ("variances", (0.0,), "0.0", "finite numbers above 0"),
        ("variances", (float("nan"),), "nan", "finite numbers above 0"),
        ("choose_trials", 9, "9", "at least 10"),
        ("trials", 1, "1", "at least 100"),
        ("repetitions", 0, "0", "at least 1"),
        ("seed", -1, "a number out of range", "an integer in 0"),
    ],
)
def test_wrong_options(name: str, value: Any, given: str, expected: str) -> None:
    with refused(name, given, expected):
        SweepOptions(**{name: value})


def test_each_reference_has_the_cells_that_it_is_for() -> None:
    options = SweepOptions(schemes=("common", "nested", "e8"), decoders=(1, 3), bins=(4,))
    assert [(c.scheme, c.coupling, c.decoders) for c in options.cells()] == [
        ("common", "gls", 3), ("common", "baseline", 3), ("nested", "none", 1), ("nested", "none", 3), ("e8", "none", 1)
    ]  # fmt: skip
    only = dataclasses.replace(options, couplings=("baseline",))
    assert [c.coupling for c in only.cells()] == ["baseline", "none", "none", "none"]


def test_a_reference_without_its_package_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_cells.importlib.util, "find_spec", lambda name: None)
    assert "entropy" not in SweepOptions().schemes
    with refused("schemes", "'entropy'", "constriction"):
        SweepOptions(schemes=("entropy",))


def test_wrong_number_of_workers(tmp_path: Path) -> None:
    with refused("workers", "0", "at least 1"):
        run_sweep(SweepOptions(**SMALL), tmp_path, 0, {})


def test_preset_is_the_sweep_with_gls(tmp_path: Path) -> None:
    arguments = ["--decoders", "1", "--bins", "64", "--trials", "300", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, ["gaussian", *arguments])
    assert done.exit_code == 0, done.output
    for text in ("mean_db", "mse_db", "-27.347", "no miss sampled", "1 cells of the paper"):
        assert text in done.output
    for name in ("mean_db.png", "mse_db.png", "match.png"):
        assert (tmp_path / name).stat().st_size > 10_000
    results = Results.read(tmp_path)
    assert [(r.scheme, r.coupling) for r in results.records] == [(scheme, "gls") for scheme in SCHEMES]
    assert results.configuration["command"].startswith("python -m experiments")
    # The same folder goes on under the sweep's own command, with nothing left to do.
    again = CliRunner().invoke(
        app,
        ["sweep", "gaussian", "--schemes", "iid,lattice,narrow", "--couplings", "gls", "--choose-trials", "30",
         "--workers", "1", *arguments],
    )  # fmt: skip
    assert again.exit_code == 0, again.output
    assert Results.read(tmp_path).records == results.records
    # And other options are refused in one line, with the exit code for refused input.
    other = subprocess.run(
        [sys.executable, "-m", "experiments", "gaussian", *arguments, "--seed", "2"],
        capture_output=True, text=True, timeout=120, env=os.environ | {"COLUMNS": "80"},
    )  # fmt: skip
    assert other.returncode == 3
    assert other.stderr == f"error: seed: got 2, expected 1, as {tmp_path / 'results.json'} has, or another folder\n"


def test_defaults_of_the_command_are_the_paper_s(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def capture(options: SweepOptions, out: Path, workers: int, description: Any) -> Results:
        asked.append((options, workers))
        raise CodecError("nothing", "to", "run")

    monkeypatch.setattr(sweep, "run_sweep", capture)
    assert CliRunner().invoke(app, ["sweep", "gaussian", "--out", str(tmp_path)]).exit_code == 3
    assert CliRunner().invoke(app, ["gaussian", "--out", str(tmp_path)]).exit_code == 3
    full, preset = (options for options, _ in asked)
    assert full == SweepOptions()
    assert preset == SweepOptions(schemes=tuple(SCHEMES), couplings=("gls",), choose_trials=2000, trials=20_000)
    assert asked[0][1] == os.cpu_count()


def test_unreadable_numbers_are_a_usage_error(tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["sweep", "gaussian", "--variances", "0.1;0.2", "--out", str(tmp_path)])
    assert done.exit_code == 2
    assert not list(tmp_path.iterdir())


def test_plots_of_one_coupling_and_of_many_decoders(tmp_path: Path) -> None:
    """Whatever the options: a single coupling, K beyond the colours, one scheme, one rate."""
    records = [
        Record(
            source="gaussian", scheme="lattice", coupling="baseline", decoders=k, bins=4, bits=2, messages=100,
            pool_size=20, match_probability=0.9, failed_messages=0, payload_bytes=25, seconds=0.1, mean_db=-20.0,
            mean_db_sem=0.1, mse_db=-10.0, missed_messages=10, mse_db_low=-11.0, mse_db_high=-9.0,
        )
        for k in (1, 6)
    ]  # fmt: skip
    gaussian_plots.mean_decibels(records, tmp_path / "a.png")
    gaussian_plots.mse_decibels(records, tmp_path / "b.png")
    match_plots.match_against_bits(records, tmp_path / "c.png")
    assert all((tmp_path / name).stat().st_size > 10_000 for name in ("a.png", "b.png", "c.png"))
