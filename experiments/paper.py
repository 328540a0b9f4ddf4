"""The paper's own figures (arXiv 2506.05632, tables 10, 11 and 13–16), to compare with."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True)
class PaperFigure:
    """A value of the paper and its standard error, in the unit of its table."""

    value: float
    sem: float


@functools.cache
def _tables() -> dict[str, Any]:
    text = resources.files("experiments").joinpath("data", "paper_tables.json").read_text(encoding="utf-8")
    tables: dict[str, Any] = json.loads(text)
    return tables


def paper_figure(source: str, coupling: str, decoders: int, bins: int) -> PaperFigure | None:
    """The paper's figure of a cell, or None where it has none.

    Args:
        source: ``gaussian``, ``mnist`` or ``cifar10``.
        coupling: ``gls`` or ``baseline``.
        decoders: K.
        bins: L_max.
    """
    row = _tables()[source][coupling].get(str(decoders))
    if row is None or bins not in row["L_max"]:
        return None
    place = row["L_max"].index(bins)
    return PaperFigure(float(row["value"][place]), float(row["sem"][place]))
