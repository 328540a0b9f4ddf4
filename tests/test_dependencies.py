"""Dependencies have both bounds, the oldest that are tested are those that are allowed, and torch comes late."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
TESTED_WITH = {"hypothesis", "pytest", "scipy"}


def test_both_bounds() -> None:
    extras = PROJECT["optional-dependencies"]
    for requirement in [*PROJECT["dependencies"], *extras["references"], *extras["tensorboard"], *extras["chaos"]]:
        assert re.fullmatch(r"[a-z0-9-]+>=[0-9.]+,<[0-9]+", requirement), requirement


def test_oldest_are_the_lower_bounds() -> None:
    """``tests/oldest.txt`` pins every dependency, and what the tests need, at its lower bound."""
    lines = (ROOT / "tests" / "oldest.txt").read_text(encoding="utf-8").splitlines()
    pins = dict(line.split("==") for line in lines if not line.startswith("#"))
    wanted = PROJECT["dependencies"] + [
        requirement
        for requirement in PROJECT["optional-dependencies"]["dev"]
        if re.split("[>=]", requirement)[0] in TESTED_WITH
    ]
    assert pins == dict(re.match(r"([a-z0-9-]+)>=([0-9.]+)", requirement).groups() for requirement in wanted)  # type: ignore[union-attr]


def test_gaussian_services_need_no_torch() -> None:
    """Both ends with a Gaussian model start without what takes seconds to import and hundreds of MiB."""
    program = (
        "import sys, encoder.__main__, decoder.__main__; from shared_rng import find_model, load_card; "
        "card = load_card(find_model('gaussian')); "
        "encoder.__main__.load_encoder_model(card), decoder.__main__.load_decoder_model(card); "
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False, timeout=60).returncode == 0
