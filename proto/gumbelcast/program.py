"""What the two service programs share on their command lines: logging, exit codes, the pre-shared seed."""

from __future__ import annotations

import logging
import sys
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

EXIT_USAGE = 2
"""The command line cannot be understood (typer's own code)."""
EXIT_INPUT = 3
"""A file, a model, a session or a value was refused; the message names it."""
EXIT_BIND = 4
"""The address cannot be bound."""
EXIT_PEER = 5
"""The other side cannot be reached, or a decoder did not get every message."""


class LogLevel(StrEnum):
    """How much a service tells."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


def set_up_logging(program: str, level: LogLevel) -> None:
    """One line an event on standard error: time, program, level, text."""
    logging.basicConfig(
        stream=sys.stderr,
        level=level.upper(),
        format=f"%(asctime)s {program} %(levelname)s %(message)s",
    )


def fail(error: Exception | str, code: int) -> NoReturn:
    """Say in one line what is wrong and end with an exit code."""
    print(f"error: {error}", file=sys.stderr)
    raise SystemExit(code)


def read_seed_file(path: Path | None) -> int | None:
    """A pre-shared seed: 32 hexadecimal digits in a file.

    Raises:
        ValueError: the file does not hold them.
    """
    if path is None:
        return None
    text = path.read_text(encoding="ascii", errors="replace").strip()
    if len(text) != 32 or any(c not in "0123456789abcdefABCDEF" for c in text):
        raise ValueError(f"seed file {path}: got {len(text)} characters, expected 32 hexadecimal digits")
    return int(text, 16)
