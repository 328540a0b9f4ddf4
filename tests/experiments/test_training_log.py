"""TensorBoard logs: only where they are asked for, and a word where the package is missing."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from experiments.training_log import TrainingLog
from tests.models import refused


def test_not_asked_for(tmp_path: Path) -> None:
    with TrainingLog(tmp_path, enabled=False) as log:
        log.write(1, {"loss": 1.0})
    assert list(tmp_path.iterdir()) == []


def test_scalars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name and epoch, in a folder of their own; closed at the end."""
    written: list[Any] = []

    class Writer:
        def __init__(self, folder: str) -> None:
            written.append(folder)

        def add_scalar(self, *scalar: Any) -> None:
            written.append(scalar)

        def close(self) -> None:
            written.append("closed")

    module: Any = types.ModuleType("torch.utils.tensorboard")
    module.SummaryWriter = Writer
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    with TrainingLog(tmp_path, enabled=True) as log:
        log.write(3, {"loss": 1.5, "rate nats": 2.0})
    assert written == [str(tmp_path / "tensorboard"), ("loss", 1.5, 3), ("rate nats", 2.0, 3), "closed"]


def test_package_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with refused("--tensorboard", expected="pip install gumbelcast[tensorboard]"):
        TrainingLog(tmp_path, enabled=True)
