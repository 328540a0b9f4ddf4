"""The benchmark times what it says: the same picks at both sides of a ratio, real services, one file."""

from __future__ import annotations

import json
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments import bench, throughput, timing
from experiments.__main__ import app
from gumbelcast.program import EXIT_INPUT

SMALL = 4


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few cells and messages: seconds instead of a minute."""
    for module, name, value in (
        (bench, "DECODERS", (1, 4)),
        (bench, "BINS", (8, 64)),
        (bench, "POOL_SIZE", 2**10),
        (bench, "GROWTH_SIZES", (2**20, 2**10)),
        (bench, "GROWTH_CELLS", ((1, 4),)),
        (bench, "_ROUNDS", 2),
        (bench, "MESSAGES", 20),
        (timing, "MESSAGES", 20),
        (throughput, "MESSAGES", 8 * SMALL),
        (throughput, "BATCH", SMALL),
    ):
        monkeypatch.setattr(module, name, value)


@pytest.mark.usefixtures("small")
def test_everything(tmp_path: Path) -> None:
    """The command runs, prints a table, and writes bench.json and nothing else."""
    out = tmp_path / "deep" / "out"
    result = CliRunner().invoke(app, ["bench", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert [path.name for path in out.iterdir()] == ["bench.json"]
    body = json.loads((out / "bench.json").read_text(encoding="utf-8"))
    assert set(body) == {"configuration", "cells", "growth", "memory", "throughput"}
    assert body["configuration"]["numpy"] == np.__version__
    cells = [(cell["pool"], cell["decoders"], cell["bins"]) for cell in body["cells"]]
    assert cells == [(pool, k, bins) for pool in ("iid", "lattice") for k in (1, 4) for bins in (8, 64)]
    for cell in body["cells"]:
        assert set(cell) == {field.name for field in fields(bench.Cell)}
        assert all(value > 0 for name, value in cell.items() if name.endswith("_us") or name.startswith("ratio"))
        assert (cell["noise_variance"] is None) == (cell["pool"] == "lattice")
        assert cell["pool"] == "lattice" or cell["pool_size"] == 2**10
    # The paper's best s² of these cells.
    assert [cell["noise_variance"] for cell in body["cells"][:4]] == [0.01, 0.001, 0.001, 0.001]
    (growth,) = body["growth"]
    assert list(growth["microseconds"]) == ["1048576", "1024"]
    times = list(growth["microseconds"].values())
    assert growth["ratio"] == pytest.approx(max(times) / min(times))
    assert body["memory"]["pool_size"] == 2**24
    # A pool of that size would take 128 MiB; nothing of the kind is made.
    assert 0 <= body["memory"]["peak_growth_mib"] < 32
    sent = body["throughput"]
    assert (sent["messages"], sent["batch"]) == (8 * SMALL, SMALL)
    parts = sum(sent[name] for name in ("encoder_us", "decoders_us", "serialisation_us", "transport_us"))
    assert parts == pytest.approx(sent["processor_us"])
    for text in ("lattice", "× both", "K = 4 and L_max = 64: ", "messages/s", "bench.json"):
        assert text in result.output


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("pool", ["iid", "lattice"])
def test_both_sides_pick_the_same(pool: str) -> None:
    ends = timing.open_lattice(2, 16) if pool == "lattice" else timing.open_iid(2, 16, 2**10)
    _, picks = timing.code(ends)
    assert picks.shape == (3, 20)
    _, scanned = timing.scan(ends, slice(8, 12))
    assert np.array_equal(scanned, picks[:, 8:12])
    times, first = timing.code(ends.first(3))
    assert np.array_equal(first, picks[:, :3])
    assert min(times) > 0


@pytest.mark.usefixtures("small")
def test_the_index_scan_is_another_draw_of_the_same_session() -> None:
    """It differs in the order of its races alone."""
    ends, index = timing.open_iid(2, 16, 2**10), timing.open_iid(2, 16, 2**10, "index")
    one, other = asdict(ends.session), asdict(index.session)
    assert {name for name in one if one[name] != other[name]} == {"race_order"}
    assert not np.array_equal(timing.scan(ends, slice(0, 8))[1], timing.scan(index, slice(0, 8))[1])


@pytest.mark.usefixtures("small")
def test_other_picks_are_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ratio between different computations would mean nothing."""
    scan = timing.scan

    def spoilt(ends: timing.Ends, rows: slice) -> tuple[timing.Times, Any]:
        times, picks = scan(ends, rows)
        picks[-1, -1] += 1
        return times, picks

    monkeypatch.setattr(bench, "scan", spoilt)
    with pytest.raises(RuntimeError, match="iid, K = 2, L_max = 8: picks differ"):
        bench.measure_cell("iid", 2, 8)


def test_out_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("taken", encoding="utf-8")
    result = CliRunner().invoke(app, ["bench", "--out", str(tmp_path / "out")])
    assert result.exit_code == EXIT_INPUT
