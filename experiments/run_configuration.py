"""What every run says of itself, and how lists are written on its command line."""

from __future__ import annotations

import os
import platform
import shlex
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Any, TypeVar

import typer

T = TypeVar("T")


def values(text: str, kind: Callable[[str], T]) -> tuple[T, ...]:
    """A comma-separated list without repetitions, as an option gives it."""
    try:
        found = tuple(kind(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"got {text!r}, expected numbers with commas between them") from None
    if len(set(found)) < len(found):
        raise typer.BadParameter(f"got {text!r}, expected each value once")
    return found


def configuration(started: float) -> dict[str, Any]:
    """What every run says of itself."""
    return {
        "command": shlex.join(["python", "-m", "experiments", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gumbelcast": version("gumbelcast"),
        "numpy": version("numpy"),
        "torch": version("torch"),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "seconds": round(time.perf_counter() - started, 1),
    }
