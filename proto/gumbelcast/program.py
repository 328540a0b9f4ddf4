"""What the two service programs share on their command lines: logging, exit codes, the pre-shared seed."""

from __future__ import annotations

import logging
import re
import sys
from enum import StrEnum
from pathlib import Path
from typing import NoReturn

from gumbelcast import core_log

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
    core_log.divert()
    logging.basicConfig(
        stream=sys.stderr,
        level=level.upper(),
        format=f"%(asctime)s {program} %(levelname)s %(message)s",
    )


def fail(error: Exception | str, code: int) -> NoReturn:
    """Say in one line what is wrong and end with an exit code."""
    print(f"error: {error}", file=sys.stderr)
    raise SystemExit(code)


def seed_from_hex(operand: str, text: str) -> int:
    """A 128-bit seed from 32 hexadecimal digits.

    Raises:
        ValueError: the text is something else.
    """
    if not re.fullmatch(r"[0-9a-fA-F]{32}", text):
        raise ValueError(f"{operand}: got {len(text)} characters, expected 32 hexadecimal digits")
    return int(text, 16)


def read_seed_file(path: Path | None) -> int | None:
    """A pre-shared seed from a file, or None without one.

    Raises:
        ValueError: the file does not hold 32 hexadecimal digits.
        OSError: it cannot be read.
    """
    return None if path is None else seed_from_hex(f"seed file {path}", path.read_text(errors="replace").strip())
