"""The main job as a user runs it: ``python -m experiments demo`` from another folder, its files and its refusals."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from experiments.coding import BATCH
from experiments.demo import tuned_models
from experiments.results import Record, Results
from shared_rng import packed_size
from tests.integration.services import WAIT_SECONDS, run_program, session_members, until

DIGITS, BINS, DECODERS = 70, (4, 16), (1, 2)
EVERY = {
    "source", "coupling", "decoders", "bins", "bits", "messages", "pool_size", "match_probability", "failed_messages",
    "payload_bytes", "transport_bytes", "transport_bytes_back", "seconds", "mse_paper", "mse_paper_sem", "mse",
    "psnr_db", "recipe", "model", "model_digest",
}  # fmt: skip
GLS_ONLY = {"baseline_minus_gls", "baseline_minus_gls_sem"}


class Demo:
    """One run of the demo, with two batches a cell of which one is not full."""

    def __init__(self, folder: Path) -> None:
        self.out = folder / "results" / "demo"
        options = [
            "--digits",
            str(DIGITS),
            "--bins",
            "4,16",
            "--decoders",
            "1,2",
            "--model",
            "mnist",
            "--out",
            str(self.out),
        ]
        self.process, self.survivors = run_program("experiments", "demo", *options, cwd=folder)
        assert self.process.returncode == 0, self.process.stderr
        self.text = (self.out / "results.json").read_text(encoding="utf-8")
        self.records: list[dict[str, Any]] = json.loads(self.text)["records"]

    def record(self, coupling: str, decoders: int, bins: int) -> dict[str, Any]:
        (found,) = [r for r in self.records if (r["coupling"], r["decoders"], r["bins"]) == (coupling, decoders, bins)]
        return found


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Demo:
    return Demo(tmp_path_factory.mktemp("demo"))


def test_tuned_models() -> None:
    """Without --model the demo has the list code of every rate, in the order of rates."""
    assert tuned_models() == [f"mnist-list-k4-l{bins}" for bins in (4, 8, 16, 32, 64)]


def test_run_is_quiet_and_clean(demo: Demo) -> None:
    """No progress bar where there is no terminal, no process left, and four files."""
    assert demo.process.stderr == ""
    assert demo.survivors == []
    assert {path.name for path in demo.out.iterdir()} == {
        "results.json", "rate_distortion.png", "examples.png", "report.html",
    }  # fmt: skip
    assert "\x1b" not in demo.process.stdout
    assert str(demo.out) in demo.process.stdout.splitlines()[-1]


def test_table_shows_the_records(demo: Demo) -> None:
    """A row a cell, with the figures of the file."""
    rows = [re.split(r"\s*[│|]\s*", line)[1:-1] for line in demo.process.stdout.splitlines() if line.startswith("│")]
    cells = [(row[1], row[2], row[3], row[4], row[11], row[12]) for row in rows]
    assert cells == [
        (
            r["coupling"], str(r["decoders"]), str(r["bits"]), f"{r['mse_paper']:.4f}",
            str(r["payload_bytes"]), str(r["transport_bytes"]),
        )
        for r in demo.records
    ]  # fmt: skip


def test_records(demo: Demo) -> None:
    """One a cell, with every field of the schema that applies and no other."""
    cells = [(r["coupling"], r["decoders"], r["bins"]) for r in demo.records]
    assert sorted(cells) == sorted((c, k, bins) for c in ("gls", "baseline") for k in DECODERS for bins in BINS)
    for record in demo.records:
        assert set(record) == EVERY | (GLS_ONLY if record["coupling"] == "gls" else set())
        assert (record["source"], record["messages"], record["pool_size"]) == ("mnist", DIGITS, 256)
        assert 2 ** record["bits"] == record["bins"]
        assert record["failed_messages"] == 0
        assert 0 < record["match_probability"] <= 1
        assert record["seconds"] > 0
        assert record["mse"] == pytest.approx(record["mse_paper"] / 2)
        assert record["psnr_db"] == pytest.approx(-10 * np.log10(record["mse"]))
        assert 0 < record["mse_paper_sem"] < record["mse_paper"] < 0.3
    read = Results.read(demo.out)
    assert [record.bins for record in read.records] == [record["bins"] for record in demo.records]
    assert isinstance(read.records[0], Record)


def test_configuration(demo: Demo) -> None:
    """What is needed to run it again, and with what it ran."""
    configuration = json.loads(demo.text)["configuration"]
    expected = {"digits": DIGITS, "bins": list(BINS), "decoders": list(DECODERS), "pool_size": None, "seed": 1}
    assert {name: configuration[name] for name in expected} == expected
    assert configuration["command"].startswith(f"python -m experiments demo --digits {DIGITS} --bins 4,16")
    assert configuration["models"] == ["mnist"]
    assert [bool(re.fullmatch(r"[0-9a-f]{64}", digest)) for digest in configuration["model_digests"]] == [True]
    assert {"date", "gumbelcast", "numpy", "torch", "python", "processors", "seconds"} <= set(configuration)


def test_bytes(demo: Demo) -> None:
    """Payload is exact and counted once; transport is measured, so larger, and differs with K."""
    sizes = [min(BATCH, DIGITS - first) for first in range(0, DIGITS, BATCH)]
    for record in demo.records:
        assert record["payload_bytes"] == sum(packed_size(size, record["bits"]) for size in sizes)
        assert record["transport_bytes"] > record["payload_bytes"] * record["decoders"]
        # Acknowledgements are smaller than sessions and messages, but there are some.
        assert 0 < record["transport_bytes_back"] < record["transport_bytes"]
    for coupling in ("gls", "baseline"):
        for bins in BINS:
            one, two = (demo.record(coupling, k, bins)["transport_bytes"] for k in DECODERS)
            assert 1.5 * one < two < 3 * one


def test_couplings(demo: Demo) -> None:
    """With one decoder there is nothing to couple; the gain is the difference of the two records."""
    for bins in BINS:
        gls, baseline = demo.record("gls", 1, bins), demo.record("baseline", 1, bins)
        for name in ("mse", "mse_paper", "match_probability", "psnr_db"):
            assert gls[name] == baseline[name]
        assert (gls["baseline_minus_gls"], gls["baseline_minus_gls_sem"]) == (0.0, 0.0)
        gls, baseline = demo.record("gls", 2, bins), demo.record("baseline", 2, bins)
        assert gls["baseline_minus_gls"] == pytest.approx(baseline["mse_paper"] - gls["mse_paper"])
        assert gls["baseline_minus_gls_sem"] > 0
    for coupling in ("gls", "baseline"):
        for k in DECODERS:
            assert demo.record(coupling, k, 16)["mse"] < demo.record(coupling, k, 4)["mse"]
        for bins in BINS:
            assert demo.record(coupling, 2, bins)["mse"] < demo.record(coupling, 1, bins)["mse"]


@pytest.mark.parametrize("name", ["rate_distortion.png", "examples.png"])
def test_pictures(demo: Demo, name: str) -> None:
    with Image.open(demo.out / name) as image:
        image.load()
        assert image.format == "PNG"
        assert min(image.size) >= 400
        assert len(np.unique(np.asarray(image.convert("L")))) > 20


class _Page(HTMLParser):
    """Addresses in attributes, cells of the table, and anything that loads or runs."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.tags: list[str] = []
        self.rows: list[list[str]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.addresses += [value or "" for name, value in attributes if name in ("src", "href", "srcset", "data")]
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, data: str) -> None:
        if self.rows and self.tags[-1] == "td" and data.strip():
            self.rows[-1].append(data)


def test_report_needs_no_other_file(demo: Demo) -> None:
    """Images are in the page, byte for byte; nothing is loaded, and every record has a row."""
    text = (demo.out / "report.html").read_text(encoding="utf-8")
    page = _Page(text)
    prefix = "data:image/png;base64,"
    assert [address[: len(prefix)] for address in page.addresses] == [prefix, prefix]
    pictures = [base64.b64decode(address[len(prefix) :], validate=True) for address in page.addresses]
    assert pictures == [(demo.out / name).read_bytes() for name in ("rate_distortion.png", "examples.png")]
    assert not {"script", "link", "iframe", "object", "embed"} & set(page.tags)
    without_images = re.sub(r'"data:image/png;base64,[^"]*"', "", text)
    assert not re.search(r"https?:|file:|url\(|@import", without_images)
    assert [row[1:4] for row in page.rows if row] == [
        [r["coupling"], str(r["decoders"]), str(r["bits"])] for r in demo.records
    ]
    assert f"{DIGITS} digits" in text
    assert "2 decoders" in text


REFUSED: list[tuple[list[str], int, str]] = [
    (["demo", "--digits", "1"], 3, "digits: got 1, expected at least 2"),
    (["demo", "--digits", "1001"], 3, "digits: got 1001, expected 1 … 1000"),
    (["demo", "--bins", "3"], 3, "bins: got 3, expected a power of two"),
    (["demo", "--bins", "512", "--pool-size", "256"], 3, "bins: got 512, expected at most pool_size, 256"),
    (["demo", "--decoders", "0"], 3, "decoders: got 0, expected an integer in 1"),
    (["demo", "--model", "gaussian"], 3, "model gaussian: got trained on no images, expected trained on mnist"),
    (["demo", "--model", "none"], 3, "model: got 'none', expected a folder, or one of"),
    (["demo", "--seed", "-1"], 3, "seed: got a number out of range, expected an integer in 0"),
    (["gaussian", "--trials", "99"], 3, "trials: got 99, expected at least 100"),
    (["gaussian", "--bins", "3"], 3, "bins: got 3, expected a power of two"),
    (["train", "mnist", "--data", "."], 3, "MNIST: got no file MNIST/raw/train-images-idx3-ubyte, expected --data"),
]  # fmt: skip


@pytest.mark.parametrize(("options", "code", "line"), REFUSED, ids=[" ".join(case[0]) for case in REFUSED])
def test_refused_options(tmp_path: Path, options: list[str], code: int, line: str) -> None:
    """One line, the documented exit code, and no process that goes on."""
    done, survivors = run_program("experiments", *options, "--out", "out", cwd=tmp_path)
    assert (done.returncode, done.stdout, survivors) == (code, "", [])
    assert done.stderr.startswith(f"error: {line}"), done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--bins", "4;8"], "got '4;8', expected numbers with commas"),
        (["--bins", ""], "got '', expected numbers with commas"),
        (["--decoders", "one"], "got 'one', expected numbers with commas"),
        (["--decoders", "1,2,01"], "got '1,2,01', expected each value once"),
        (["--digits", "ten"], "Invalid value for '--digits'"),
    ],
)
def test_options_that_are_no_numbers(tmp_path: Path, options: list[str], part: str) -> None:
    """A usage error."""
    done, survivors = run_program("experiments", "demo", *options, "--out", "out", cwd=tmp_path)
    assert (done.returncode, done.stdout, survivors) == (2, "", [])
    assert "Traceback" not in done.stderr
    assert part in done.stderr
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("moment", "end"),
    [
        (" decoder serve", signal.SIGINT),
        (" encoder serve", signal.SIGTERM),
        (" decoder serve", signal.SIGKILL),
    ],
    ids=["Ctrl-C at the first service", "SIGTERM", "SIGKILL at the first service"],
)
def test_interruption_stops_the_services(tmp_path: Path, moment: str, end: signal.Signals) -> None:
    """A demo that is told to stop takes its services with it, and so does one that is killed; Ctrl-C goes to all."""
    command = [sys.executable, "-m", "experiments", "demo", "--decoders", "1", "--out", "out"]
    # A shell starts background jobs deaf to SIGINT, and what they start inherits it.
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    try:
        until(lambda: any(moment in line for line in session_members(process.pid)), "the service started")
        if end is signal.SIGINT:
            os.killpg(process.pid, end)
        else:
            process.send_signal(end)
        codes = {signal.SIGINT: 130, signal.SIGTERM: 128 + signal.SIGTERM, signal.SIGKILL: -signal.SIGKILL}
        _, errors = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == codes[end]
        assert "Traceback" not in errors
        until(lambda: not session_members(process.pid), "the services have ended")
    finally:
        if session_members(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(WAIT_SECONDS)
