"""What the two service programs share on their command lines: logging, exit codes, the pre-shared seed."""

from __future__ import annotations

import json
import logging
import os
import re
import sys
from datetime import UTC, datetime
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


SEED_VARIABLE = "GUMBELCAST_SEED"
"""Environment variable of a pre-shared seed, 32 hexadecimal digits."""


class LogFormat(StrEnum):
    """How an event is written."""

    text = "text"
    json = "json"


class LogLevel(StrEnum):
    """How much a service tells."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


FIELDS = ("session", "message_number", "decoder", "client")
"""Fields that an event may have beside its text, as ``extra`` of a call of ``logging``."""


class _JsonFormatter(logging.Formatter):
    """One JSON object a line: time (ISO 8601, UTC), program, level, text, and the fields that an event has."""

    def __init__(self, program: str) -> None:
        super().__init__()
        self._program = program

    def format(self, record: logging.LogRecord) -> str:
        """See the class."""
        event = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "program": self._program,
            "level": record.levelname,
            "text": record.getMessage(),
        }
        event |= {name: getattr(record, name) for name in FIELDS if hasattr(record, name)}
        if record.exc_info:
            event["exception"] = self.formatException(record.exc_info)
        return json.dumps(event, ensure_ascii=False)


def set_up_logging(program: str, level: LogLevel, kind: LogFormat = LogFormat.text) -> None:
    """One line an event on standard error: time, program, level, text; or one JSON object."""
    core_log.divert()
    handler = logging.StreamHandler(sys.stderr)
    plain = logging.Formatter(f"%(asctime)s {program} %(levelname)s %(message)s")
    handler.setFormatter(_JsonFormatter(program) if kind == LogFormat.json else plain)
    logging.basicConfig(handlers=[handler], level=level.upper())


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


def read_seed(path: Path | None) -> int | None:
    """A pre-shared seed from a file or from the variable GUMBELCAST_SEED, or None without either.

    Raises:
        ValueError: there are both, or what there is are not 32 hexadecimal digits.
        OSError: the file cannot be read.
    """
    text = os.environ.get(SEED_VARIABLE)
    if path is None:
        return None if not text else seed_from_hex(SEED_VARIABLE, text.strip())
    if text:
        raise ValueError(f"seed: got --seed-file and {SEED_VARIABLE}, expected one of them")
    return seed_from_hex(f"seed file {path}", path.read_text(errors="replace").strip())
