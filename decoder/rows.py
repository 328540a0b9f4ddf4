"""Rows by message number, kept in blocks as they come: no object a row, and no loop over them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

BLOCK_BYTES = 512
"""What one block takes beside its rows, about: a message may come alone."""


@dataclass
class Rows:
    """Rows [n, ...] of any messages, all of one shape; blocks are ascending and do not overlap."""

    _firsts: list[int] = field(default_factory=list)
    _blocks: list[npt.NDArray[Any]] = field(default_factory=list)
    _held: int = 0

    def __len__(self) -> int:
        """Number of rows held."""
        return self._held

    def __str__(self) -> str:
        """First and last message, for an error."""
        return f"{self._firsts[0]} … {self._firsts[-1] + len(self._blocks[-1]) - 1}" if self._held else "none yet"

    @property
    def nbytes(self) -> int:
        """Memory of the rows and their blocks."""
        return self._held * self._blocks[0][:1].nbytes + len(self._blocks) * BLOCK_BYTES if self._held else 0

    @property
    def second_block(self) -> int | None:
        """First message of the second block, None where there is none."""
        return self._firsts[1] if len(self._firsts) > 1 else None

    def put(self, first: int, rows: npt.NDArray[Any]) -> None:
        """Keep rows [n, ...], n at least 1, of messages from ``first`` on; they replace what is held of them."""
        self.drop(first, first + len(rows))
        place = bisect_left(self._firsts, first)
        self._firsts.insert(place, first)
        self._blocks.insert(place, rows)
        self._held += len(rows)

    def drop(self, first: int, end: int) -> None:
        """Forget the rows of messages ``first`` … ``end - 1``."""
        places = self._places(first, end)
        firsts, blocks = [], []
        for place in places:
            begin, block = self._firsts[place], self._blocks[place]
            self._held -= len(block)
            for start, rows in ((begin, block[: max(first - begin, 0)]), (end, block[end - begin :])):
                if len(rows):
                    firsts.append(start)
                    blocks.append(rows)
                    self._held += len(rows)
        self._firsts[places.start : places.stop] = firsts
        self._blocks[places.start : places.stop] = blocks

    def missing(self, first: int, end: int) -> int | None:
        """The first of the messages ``first`` … ``end - 1`` whose row is not held, or None."""
        for place in self._places(first, end):
            if self._firsts[place] > first:
                break
            first = self._firsts[place] + len(self._blocks[place])
        return first if first < end else None

    def copy_into(self, out: npt.NDArray[Any], first: int) -> None:
        """Write the rows of messages ``first`` … into ``out`` [n, ...]; where none is held, it stays as it is."""
        end = first + len(out)
        for place in self._places(first, end):
            begin = self._firsts[place]
            rows = self._blocks[place][max(first - begin, 0) : end - begin]
            start = max(begin - first, 0)
            out[start : start + len(rows)] = rows

    def read(self, first: int, count: int) -> npt.NDArray[Any]:
        """The rows of messages ``first`` … ``first + count - 1``, all of which are held: [count, ...]."""
        out = np.empty((count, *self._blocks[0].shape[1:]), self._blocks[0].dtype)
        self.copy_into(out, first)
        return out

    def _places(self, first: int, end: int) -> range:
        """Places of the blocks that hold one of the messages ``first`` … ``end - 1``."""
        low = bisect_right(self._firsts, first)
        if low and self._firsts[low - 1] + len(self._blocks[low - 1]) > first:
            low -= 1
        return range(low, max(low, bisect_left(self._firsts, end)))
