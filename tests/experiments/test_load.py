"""Load on running services, tiny: what is counted, and that nothing is lost on the way."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from experiments.load import COLUMNS, LoadCell, row, run_load, run_soak, write
from tests.models import refused


def test_cells_and_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    cells = run_load(["lattice"], [1], [1, 8], 24, told.append)
    assert [(cell.decoders, cell.batch, cell.messages) for cell in cells] == [(1, 1, 24), (1, 8, 24)]
    # Four bits a message: a byte for one alone, and four for eight.
    assert [cell.payload_bytes for cell in cells] == [1.0, 0.5]
    one, eight = cells
    assert one.transport_bytes > eight.transport_bytes > eight.payload_bytes
    assert all(0 < cell.p50_ms <= cell.p99_ms and cell.messages_per_second > 0 for cell in cells)
    assert len(told) == 2
    assert len(row(one)) == len(COLUMNS)

    monkeypatch.setattr("experiments.load.SOAK_BATCH", 8)
    monkeypatch.setattr("experiments.load.SOAK_DECODERS", 1)
    soak = run_soak(24, told.append)
    assert soak.messages == [8, 16, 24]
    assert set(soak.resident_mib) == {"encoder", "decoder 0"}
    assert all(len(values) == 3 and min(values) > 1 for values in soak.resident_mib.values())
    assert set(soak.growth()) == set(soak.resident_mib)

    content = json.loads(write(tmp_path, {"command": "load"}, cells, soak).read_text())
    assert LoadCell(**content["cells"][1]) == eight
    assert content["soak"]["messages"] == soak.messages


def test_unknown_scheme() -> None:
    with refused("schemes", "audio", "lattice or iid or images"):
        run_load(["audio"], [1], [1], 1, print)
