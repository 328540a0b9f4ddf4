"""What the settings of an image sweep gave on held-out images, and which of them is tried next."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from experiments.image_work import Cell, Setting
from experiments.whole_files import write_whole
from shared_rng import CodecError


class Choices:
    """``mse_paper`` of every tried setting on held-out images, kept in a file."""

    def __init__(self, path: Path) -> None:
        """Take up what the file has.

        Raises:
            CodecError: it is damaged.
        """
        self._path = path
        expected = "choices of a sweep; remove it to choose again"
        try:
            self._scores: dict[str, float] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
        except ValueError as error:
            raise CodecError(str(path), str(error), expected) from error
        if not isinstance(self._scores, dict):
            raise CodecError(str(path), type(self._scores).__name__, expected)
        for name, score in self._scores.items():
            if not isinstance(score, float):
                raise CodecError(str(path), f"{score!r} of {name}", expected)

    @staticmethod
    def _key(cell: Cell, setting: Setting) -> str:
        return json.dumps([*cell.key, setting.model.name, setting.digest.hex(), setting.pool])

    def score(self, cell: Cell, setting: Setting) -> float | None:
        """Of one setting, None before it was tried."""
        return self._scores.get(self._key(cell, setting))

    def put(self, setting: Setting, scores: dict[Cell, float]) -> None:
        """Keep what a setting gave."""
        self._scores |= {self._key(cell, setting): score for cell, score in scores.items()}
        write_whole(self._path, json.dumps(self._scores, indent=0) + "\n")

    def due(self, cell: Cell, settings: Sequence[Setting]) -> Setting | None:
        """The next of one model's settings to try, None once one was no better than that before it."""
        before = float("inf")
        for setting in settings:
            score = self.score(cell, setting)
            if score is None:
                return setting
            if score >= before:
                return None
            before = score
        return None

    def best(self, cell: Cell, settings: Sequence[Setting]) -> Setting:
        """The best of those that were tried; the first, if there was no choice."""
        scores = {setting: self.score(cell, setting) for setting in settings}
        tried = {setting: score for setting, score in scores.items() if score is not None}
        return min(tried, key=lambda setting: tried[setting]) if tried else settings[0]
