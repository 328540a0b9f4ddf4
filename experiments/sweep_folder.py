"""What an image sweep keeps in its folder, and takes up again: records, and the errors of every message."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from experiments.image_work import Cell
from experiments.results import RESULTS_NAME, Record, Results
from shared_rng import CodecError

Errors = npt.NDArray[np.float64]
Key = tuple[str, str, int, int]
"""Recipe, coupling, K and L_max."""

_ALL = ("recipe", "mse_paper", "mse_paper_sem", "mse", "psnr_db")
_OF_CELLS = ("model", "pool_size", "match_probability")


class SweepFolder:
    """``results.json`` and ``errors/``, one array a cell: best errors a message, averaged over coding seeds."""

    def __init__(self, out: Path) -> None:
        """Nothing is read or written yet."""
        self._out = out
        self._results = out / RESULTS_NAME

    def read(self, identity: Mapping[str, Any], cells: Iterable[Cell]) -> tuple[dict[Key, Record], float]:
        """All records of a run, less those of ``cells`` whose errors are missing, and the seconds that it took.

        Raises:
            CodecError: they are those of a run of another identity, or damaged.
        """
        if not self._results.exists():
            return {}, 0.0
        results = Results.read(self._out)
        for name, asked in identity.items():
            if (stored := results.configuration.get(name)) != asked:
                raise CodecError(name, asked, f"{stored}, as {self._results} has, or another folder")
        seconds = results.configuration.get("seconds")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float):
            raise CodecError(str(self._results), f"seconds {seconds!r}", "a number; remove the file to begin again")
        for record in results.records:
            self._require_complete(record)
        found = {(str(r.recipe), r.coupling, r.decoders, r.bins): r for r in results.records}
        for cell in cells:
            if not self._path(cell).is_file():
                found.pop(cell.key, None)
        return found, float(seconds)

    def _require_complete(self, record: Record) -> None:
        for name in _ALL + (() if record.coupling == "none" else _OF_CELLS):
            if getattr(record, name) is None:
                raise CodecError(str(self._results), f"a record without {name}", "one; remove the file to begin again")

    def put_errors(self, cell: Cell, errors: Errors) -> None:
        """Keep a cell's errors [B]."""
        self._path(cell).parent.mkdir(exist_ok=True)
        np.save(self._path(cell), errors)

    def errors(self, cell: Cell, messages: int) -> Errors:
        """A cell's errors, of that many messages.

        Raises:
            CodecError: the file is damaged.
        """
        path = self._path(cell)
        try:
            errors = np.load(path)
        except (ValueError, EOFError) as error:
            raise CodecError(str(path), f"{error}", "errors; remove it to measure the cell again") from error
        if errors.dtype != np.float64 or errors.shape != (messages,):
            given = f"{errors.dtype} {list(errors.shape)}"
            raise CodecError(str(path), given, f"float64 [{messages}]; remove it to measure the cell again")
        return np.asarray(errors)

    def _path(self, cell: Cell) -> Path:
        return self._out / "errors" / f"{cell.recipe}-{cell.coupling}-{cell.decoders}-{cell.bins}.npy"
