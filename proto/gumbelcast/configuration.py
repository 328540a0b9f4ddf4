"""Options of a command from a TOML file or the environment, and where each value came from.

The command line goes before the environment, the environment before the file, the file before defaults. A variable is
named ``GUMBELCAST_`` and the option in capitals; a list is separated by spaces there.
"""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from gumbelcast import program

FROM_ENVIRONMENT = {"auto_envvar_prefix": "GUMBELCAST"}
"""Settings of a command whose options can come from the environment."""

_OWN = ("config", "print_config", "help")


def read_toml(path: Path, known: set[str]) -> dict[str, Any]:
    """Options of a TOML file by their parameter names; ``decoder-wait`` and ``decoder_wait`` are the same.

    Raises:
        ValueError: it is no TOML, a key is unknown, or a value is a table.
        OSError: it cannot be read.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"--config {path}: got {error}, expected TOML") from error
    values = {key.replace("-", "_"): value for key, value in table.items()}
    if unknown := sorted(set(values) - known):
        raise ValueError(f"--config {path}: got {', '.join(unknown)}, expected some of {', '.join(sorted(known))}")
    for key, value in values.items():
        if isinstance(value, dict):
            raise ValueError(f"--config {path}, {key}: got a table, expected a value")
    return values


def _load(context: typer.Context, path: Path | None) -> Path | None:
    if path is not None:
        known = {str(parameter.name) for parameter in context.command.params} - set(_OWN)
        try:
            context.default_map = read_toml(path, known)
        except (ValueError, OSError) as error:
            program.fail(error, program.EXIT_INPUT)
    return path


Config = Annotated[
    Path | None,
    typer.Option(help="TOML file of options, named as here without dashes.", is_eager=True, callback=_load),
]
PrintConfig = Annotated[
    bool, typer.Option("--print-config", help="Show what holds and where each value came from, and end.")
]


def described(context: typer.Context) -> Iterator[str]:
    """The options of a command as TOML, each with where it came from; the seed is masked."""
    for parameter in context.command.params:
        name = str(parameter.name)
        if name in _OWN:
            continue
        value, source = context.params.get(name), context.get_parameter_source(name)
        origin = {
            "COMMANDLINE": "command line",
            "ENVIRONMENT": f"GUMBELCAST_{name.upper()}",
            "DEFAULT_MAP": str(context.params.get("config")),
        }.get(source.name if source is not None else "", "default")
        yield f"# {name} is not set" if value in (None, [], ()) else f"{name} = {_toml(value)}  # {origin}"
    if os.environ.get(program.SEED_VARIABLE):
        yield f"# the seed is ***, from {program.SEED_VARIABLE}"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(str(value), ensure_ascii=False)
