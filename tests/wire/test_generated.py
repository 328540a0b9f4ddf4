"""The committed wire package is what the compiler makes of the ``.proto`` files, byte for byte."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import gumbelcast.v1

ROOT = Path(__file__).resolve().parents[2]
COMMITTED = ROOT / "proto" / "gumbelcast" / "v1"
SUFFIXES = ("_pb2.py", "_pb2.pyi", "_pb2_grpc.py")


@pytest.fixture(scope="module")
def regenerated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as ``make proto`` would write it."""
    folder = tmp_path_factory.mktemp("regenerated")
    options = [f"--{kind}_out={folder}" for kind in ("python", "pyi", "grpc_python")]
    sources = sorted(str(path.relative_to(ROOT)) for path in COMMITTED.glob("*.proto"))
    command = [sys.executable, "-m", "grpc_tools.protoc", "-I", "proto", *options, *sources]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    return folder / "gumbelcast" / "v1"


def test_make_has_the_same_options() -> None:
    """The command above is that of the Makefile."""
    recipe = re.search(r"^proto:.*\n((?:\t.*\n?)+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert recipe
    words = recipe[1].replace("\\\n", " ").split()
    assert words[1:] == [
        "-m", "grpc_tools.protoc", "-I", "proto", "--python_out=proto", "--pyi_out=proto", "--grpc_python_out=proto",
        "proto/gumbelcast/v1/*.proto",
    ]  # fmt: skip


def test_same_files(regenerated: Path) -> None:
    """No generated file is missing, and none is left of a ``.proto`` file that is gone."""
    committed = {path.name for path in COMMITTED.iterdir() if path.name.endswith(SUFFIXES)}
    assert committed == {path.name for path in regenerated.iterdir()}
    assert len(committed) == 9


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ["decoder", "encoder", "session"])
def test_same_bytes(regenerated: Path, name: str, suffix: str) -> None:
    assert (COMMITTED / (name + suffix)).read_bytes() == (regenerated / (name + suffix)).read_bytes()


def test_tested_package_is_the_committed_one() -> None:
    assert Path(str(gumbelcast.v1.__file__)).resolve().parent == COMMITTED
