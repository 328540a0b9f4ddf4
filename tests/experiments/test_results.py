"""The result schema: what is written is what is read, and nothing else is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from experiments.results import Record, Results
from tests.models import refused

GAUSSIAN = Record(
    source="gaussian",
    coupling="gls",
    decoders=2,
    bins=8,
    bits=3,
    messages=500,
    pool_size=32768,
    match_probability=0.625,
    failed_messages=0,
    payload_bytes=188,
    seconds=1.5,
    scheme="iid",
    repetitions=2,
    cpu_seconds=2.75,
    match_probability_sem=0.02,
    match_bound_lemma=0.5,
    match_bound_lemma_sem=0.03,
    match_bound_prop4=0.45,
    noise_variances=[0.006, 0.005],
    mean_db=-21.5,
    mean_db_sem=0.25,
    mse_db=-17.125,
    mse_db_low=-18.0,
    mse_db_high=-16.0,
    missed_messages=187,
)
IMAGES = Record(
    source="mnist",
    coupling="baseline",
    decoders=1,
    bins=4,
    bits=2,
    messages=64,
    pool_size=256,
    match_probability=1 / 3,
    failed_messages=1,
    payload_bytes=16,
    seconds=0.25,
    transport_bytes=1024,
    transport_bytes_back=394,
    mse_paper=0.1,
    mse_paper_sem=0.0,
    mse=0.05,
    psnr_db=13.01,
    recipe="paper",
    model="mnist-paper",
    model_digest="5f" * 32,
    training_seed=1,
    coding_seeds=3,
    mse_paper_seeds=[0.1, 0.11, 0.09],
    mse_paper_decoders=[0.1],
    match_decoders=[1 / 3],
    mse_paper_no_mismatch=0.06,
    baseline_minus_gls=-0.0,
    baseline_minus_gls_sem=1e-300,
    search=16,
    search_gain=-0.0002,
    search_gain_sem=0.0001,
    encoder_ms=6.25,
)
TOY = Record(
    source="toy",
    coupling="gls",
    decoders=1,
    bins=1,
    bits=0,
    messages=0,
    pool_size=10,
    match_probability=0.5,
    failed_messages=0,
    payload_bytes=0,
    seconds=0.1,
    measured_bits=1.001,
    mse_db_integrated=-5.6,
    mse_db_integrated_sem=0.04,
    core_db=-5.9,
    far_messages=7,
    far_share_integrated=1e-7,
    match_optimum=0.6,
)
CONFIGURATION = {"command": "python -m experiments demo", "bins": [4, 8], "seed": 2**127, "model": "mnist – β"}


def test_round_trip(tmp_path: Path) -> None:
    """Every number exactly, in the order of the cells."""
    results = Results(CONFIGURATION, [GAUSSIAN, IMAGES, TOY])
    path = results.write(tmp_path)
    assert path == tmp_path / "results.json"
    found = Results.read(tmp_path)
    assert found == results
    # The records together use every field, so none of them can be forgotten above.
    used = {
        field.name for field in fields(Record) for r in (GAUSSIAN, IMAGES, TOY) if getattr(r, field.name) is not None
    }
    assert used == {field.name for field in fields(Record)}


def test_only_what_applies_is_written(tmp_path: Path) -> None:
    """A number of zero applies; None does not."""
    records = json.loads(Results({}, [GAUSSIAN, IMAGES]).write(tmp_path).read_text())["records"]
    assert "mse" not in records[0]
    assert "noise_variances" not in records[1]
    assert (records[0]["failed_messages"], records[1]["mse_paper_sem"]) == (0, 0.0)
    assert None not in [value for record in records for value in record.values()]


def test_writing_replaces(tmp_path: Path) -> None:
    Results({}, [GAUSSIAN, IMAGES]).write(tmp_path)
    Results({}, [replace(GAUSSIAN, bins=16)]).write(tmp_path)
    assert [record.bins for record in Results.read(tmp_path).records] == [16]


def test_the_old_file_stays_if_writing_cannot_finish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader, or a run that goes on after a kill, never sees half a file."""
    Results({}, [GAUSSIAN]).write(tmp_path)

    def killed(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Path, "replace", killed)
    with pytest.raises(KeyboardInterrupt):
        Results({}, [GAUSSIAN, IMAGES]).write(tmp_path)
    assert Results.read(tmp_path).records == [GAUSSIAN]


def change(edit: Callable[[dict[str, Any]], object]) -> str:
    """A valid file with one edit."""
    record = {field.name: getattr(GAUSSIAN, field.name) for field in fields(Record)}
    body = {"configuration": {}, "records": [{name: v for name, v in record.items() if v is not None}]}
    edit(body)
    return json.dumps(body)


@pytest.mark.parametrize(
    ("text", "given"),
    [
        (change(lambda body: body["records"][0].update(mse_in_db=1.0)), "mse_in_db"),
        (change(lambda body: body["records"][0].pop("bins")), "bins"),
        (change(lambda body: body.pop("records")), "records"),
        (change(lambda body: body.pop("configuration")), "configuration"),
        (change(lambda body: body.update(records=[1])), "a record of type int"),
        (change(lambda body: body["records"][0].update(mean_db="-21.5")), "mean_db '-21.5'"),
        (change(lambda body: body["records"][0].update(bins=8.0)), "bins 8.0"),
        (change(lambda body: body["records"][0].update(messages=True)), "messages True"),
        (change(lambda body: body["records"][0].update(scheme=1)), "scheme 1"),
        (change(lambda body: body["records"][0].update(noise_variances=0.5)), "noise_variances 0.5"),
        (change(lambda body: body["records"][0].update(noise_variances=[0.5, None])), "noise_variances [0.5, None]"),
        ("[]", "list"),
        ("{", "Expecting"),
    ],
)
def test_other_schemas_are_refused(tmp_path: Path, text: str, given: str) -> None:
    """The refusal names the file and what is wrong with it, and lists the fields."""
    (tmp_path / "results.json").write_text(text)
    with refused(str(tmp_path / "results.json"), given, "mean_db, mean_db_sem, mse_db"):
        Results.read(tmp_path)


def test_missing_file(tmp_path: Path) -> None:
    with refused("results", f"no file {tmp_path / 'results.json'}", "a folder with results.json"):
        Results.read(tmp_path)
