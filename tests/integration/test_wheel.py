"""The wheel: built from the files of the repository, installed in an environment of its own, and run there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Sequence
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("decoder", "encoder", "experiments", "gumbelcast", "gumbelcast.v1", "networks", "shared_rng", "zoo")


def run(*command: str | Path, cwd: Path, seconds: float = 180.0) -> str:
    """Run a command that must succeed, without this process's import path; returns its standard output."""
    hidden = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PIP_CONFIG_FILE"}
    variables = {name: value for name, value in os.environ.items() if name not in hidden}
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=variables, capture_output=True, text=True, timeout=seconds,
        check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built in a copy, so that nothing is left in the repository and nothing left in it gets in."""
    copy, out = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("wheel")
    listed = run("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", cwd=ROOT)
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, copy / name)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    run(sys.executable, "-m", "pip", "wheel", *options, "-w", out, ".", cwd=copy)
    (built,) = out.iterdir()
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The scripts' folder of a new environment with the wheel, which takes the dependencies from this one.

    The dependencies' folder is appended without its own ``.pth`` files, so an editable install stays unseen.
    """
    folder = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", folder, cwd=folder)
    python = folder / "bin" / "python"
    (packages,) = folder.glob("lib/python*/site-packages")
    here = dict.fromkeys(sysconfig.get_path(kind) for kind in ("purelib", "platlib"))
    (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in here), encoding="utf-8")
    options = ["--quiet", "--no-deps", "--no-index", "--ignore-installed", "--disable-pip-version-check"]
    run(python, "-m", "pip", "install", *options, wheel, cwd=folder)
    return python.parent


def test_contents(wheel: Path) -> None:
    """All rooms with their data and types; no tests, and nothing that merely lay around."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        headers = Parser().parsestr(archive.read(metadata).decode())
    assert wheel.name == f"gumbelcast-{headers['Version']}-py3-none-any.whl"
    assert headers["License-Expression"] == "Apache-2.0"
    assert "numpy<3,>=1.26" in headers.get_all("Requires-Dist", [])
    tops = {name.partition("/")[0] for name in names}
    assert tops == {package.partition(".")[0] for package in PACKAGES} | {metadata.partition("/")[0]}
    assert {
        "experiments/data/mnist-test-1000-images-idx3-ubyte.gz",
        "experiments/data/paper_tables.json",
        "experiments/templates/report.html",
        "gumbelcast/py.typed",
        "gumbelcast/v1/decoder.proto",
        "gumbelcast/v1/decoder_pb2.py",
        "gumbelcast/v1/decoder_pb2.pyi",
        "gumbelcast/v1/decoder_pb2_grpc.py",
        "zoo/gaussian/card.json",
        "zoo/mnist/card.json",
        "zoo/mnist/weights.safetensors",
    } <= names
    # Every module of the repository's rooms is there.
    for package in PACKAGES:
        source = ROOT / ("proto" if package.startswith("gumbelcast") else ".") / package.replace(".", "/")
        for module in source.glob("*.py"):
            assert f"{package.replace('.', '/')}/{module.name}" in names


def test_packages_come_from_the_wheel(environment: Path, tmp_path: Path) -> None:
    """Not from the repository, through whatever door."""
    program = (
        "import importlib, json, sys; print(json.dumps([importlib.import_module(n).__file__ for n in sys.argv[1:]]))"
    )
    found = json.loads(run(environment / "python", "-c", program, *PACKAGES, cwd=tmp_path))
    inside = environment.parent.resolve()
    assert [path for path in found if inside not in Path(path).resolve().parents] == []


@pytest.mark.parametrize(
    ("script", "commands"),
    [
        ("gumbelcast", ("demo", "gaussian", "train")),
        ("gumbelcast-encoder", ("serve", "send")),
        ("gumbelcast-decoder", ("serve",)),
    ],
)
def test_console_scripts(environment: Path, tmp_path: Path, script: str, commands: Sequence[str]) -> None:
    text = run(environment / script, "--help", cwd=tmp_path)
    assert [command for command in commands if command not in text] == []
    assert "Exit codes: 0 done, 2 usage, 3 refused" in " ".join(text.replace("│", " ").split())


def test_demo_runs(environment: Path, tmp_path: Path) -> None:
    """The main job from the wheel alone: data, models, template and services are all found."""
    run(
        environment / "gumbelcast",
        "demo",
        "--digits",
        "8",
        "--bins",
        "4",
        "--decoders",
        "1",
        "--out",
        "x",
        cwd=tmp_path,
    )
    records = json.loads((tmp_path / "x" / "results.json").read_text(encoding="utf-8"))["records"]
    assert [(record["coupling"], record["messages"], record["payload_bytes"]) for record in records] == [
        ("gls", 8, 2),
        ("baseline", 8, 2),
    ]
    assert (tmp_path / "x" / "report.html").stat().st_size > 10_000
