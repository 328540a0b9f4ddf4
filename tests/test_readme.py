"""What the README shows really runs, and the files that it names exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_python_example_runs_and_compresses(tmp_path: Path) -> None:
    (block,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", block], capture_output=True, text=True, cwd=tmp_path, timeout=120
    )
    assert done.returncode == 0, done.stderr
    match = re.fullmatch(r"100 bytes, MSE ([0-9.]+)\n", done.stdout)
    assert match is not None, done.stdout
    # Far below the 1/3 that side information alone would leave to one decoder.
    assert 0.0 < float(match[1]) < 1 / 3


@pytest.mark.parametrize(
    "command", sorted(set(re.findall(r"python -m (?:encoder|decoder|experiments) [a-z]+", README)))
)
def test_every_command_exists(command: str) -> None:
    _, _, module, verb = command.split()
    done = subprocess.run([sys.executable, "-m", module, verb, "--help"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("program", ["encoder", "decoder"])
def test_every_option_in_the_readme_exists(program: str) -> None:
    lines = re.findall(rf"^python -m {program} ([a-z]+) (.*)$", README, flags=re.MULTILINE)
    assert lines
    for verb, arguments in lines:
        helped = subprocess.run(
            [sys.executable, "-m", program, verb, "--help"],
            capture_output=True, text=True, timeout=120, env={"COLUMNS": "200", "PATH": ""},
        )  # fmt: skip
        for option in re.findall(r"--[a-z-]+", arguments):
            assert option in helped.stdout, (program, verb, option)


@pytest.mark.parametrize("name", ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_named_files_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    paths = re.findall(r"`((?:shared_rng|encoder|decoder|experiments|proto|zoo|tests)/[\w/.]*\w)`", text)
    paths += re.findall(r"\]\(((?!http)[^)]+)\)", text)
    missing = [path for path in paths if not (ROOT / path).exists()]
    assert not missing
