"""No network for a data set: one line that names the option to give instead, the exit code, and nobody left behind."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.services import run_program


@pytest.mark.parametrize(
    ("command", "parts"),
    [
        (("sweep", "mnist"), ("MNIST download: got Error downloading ", "Connection refused", "--data DIR")),
        (("train", "cifar10"), ("CIFAR-10 in ", "Connection refused", "--data DIR with DIR/cifar10.npz")),
    ],
)
def test_no_network(tmp_path: Path, command: tuple[str, ...], parts: tuple[str, ...]) -> None:
    """Where nothing was downloaded before; every address leads to a proxy that is not there."""
    proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTPS_PROXY"), "http://127.0.0.1:9") | {"no_proxy": ""}
    done, survivors = run_program(
        "experiments",
        *command,
        "--out",
        str(tmp_path / "out"),
        cwd=tmp_path,
        seconds=600.0,
        environment={"HOME": str(tmp_path)} | proxies,
    )
    assert (done.returncode, done.stdout, survivors) == (3, "", []), done.stderr
    assert done.stderr.startswith("error: "), done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert [part for part in parts if part not in done.stderr] == [], done.stderr
