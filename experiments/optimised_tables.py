"""A scalar Wyner–Ziv code for K decoders whose answers are tables g_k(m, t), optimised by alternation, no dither.

It starts as the nested quantiser with the recipe's points. In turn, the encoder gives each source the message with
the least expected error of the best decoder, and each entry g_k(m, t) becomes the mean of the sources for which
decoder k, at t, is the best of K (as in Lloyd's algorithm, 1982). What it gains over the recipe bounds what is
left for scalar messages; a longer block is needed for the rest.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from encoder.search import expected_minimum
from experiments.gaussian import PRIOR_VARIANCE, SIDE_VARIANCE
from experiments.integrated import Answer, Integrated, integrate_answers
from experiments.references import NestedQuantiser

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]

_SPACING = 0.05
_GRID = np.arange(-11.0, 11.0 + _SPACING / 2.0, _SPACING)
"""Values of t at which tables have entries."""
_NODES = np.arange(-5.0, 5.0, 2.0 * _SPACING / np.sqrt(SIDE_VARIANCE))
"""Values of t over which the encoder takes its mean, in standard deviations given the source."""
_SOURCE_RANGE = 5.5
_NARROWING = 0.92
"""Start of K > 1, in cell widths of the recipe, from which tables end up better."""
_ROUNDS = 8
_DRAWS = 12
"""Draws of the other decoders' side information a source."""
_ROWS = 2000
_REACH = 6.0


class OptimisedTables:
    """Tables of K decoders for L_max messages, and the encoder that goes with them."""

    def __init__(self, decoders: int, bins: int) -> None:
        """Start as the nested quantiser."""
        quantiser = NestedQuantiser(decoders, bins, SIDE_VARIANCE)
        quantiser.width *= _NARROWING if decoders > 1 else 1.0
        self._bins = bins
        self._width = quantiser.width
        messages = np.arange(bins, dtype=np.float64)[:, None]
        side = np.broadcast_to(_GRID, (bins, len(_GRID)))
        self._tables = np.stack([quantiser.answer(k, quantiser.pick(messages, side), side) for k in range(decoders)])

    def answer(self, k: int, messages: Indices, side: Floats) -> Floats:
        """g_k(m, t), with t rounded to the grid; messages broadcast against side."""
        return np.asarray(self._tables[k, messages, _columns(side)])

    def encode(self, sources: Floats) -> Indices:
        """The best of a source's own cell and its neighbours: messages [B]."""
        density = np.exp(-0.5 * np.square(_NODES))
        cells = np.rint(sources / self._width).astype(np.int64)
        found = []
        for start in range(0, len(sources), _ROWS):
            part = sources[start : start + _ROWS]
            side = part[:, None] + np.sqrt(SIDE_VARIANCE) * _NODES
            candidates = (cells[start : start + _ROWS] + np.array([[-1], [0], [1]])) % self._bins
            costs = []
            for messages in candidates:
                answers = np.stack([self.answer(k, messages[:, None], side) for k in range(len(self._tables))])
                errors = np.square(answers - part[:, None])
                costs.append(expected_minimum(errors, np.broadcast_to(density / density.sum(), errors.shape)))
            found.append(np.take_along_axis(candidates, np.argmin(costs, axis=0)[None], axis=0)[0])
        return np.concatenate(found)

    def improve(self, generator: np.random.Generator) -> None:
        """One round: messages of a grid of sources, then every table in turn."""
        spacing = min(self._width / (6 * len(self._tables)), 0.02)
        sources = np.arange(-_SOURCE_RANGE, _SOURCE_RANGE, spacing)
        messages = self.encode(sources)
        for k in range(len(self._tables)):
            others = self._others(k, sources, messages, generator)
            for m in range(self._bins):
                own = np.flatnonzero(messages == m)
                if len(own):
                    self._improve_row(k, m, sources[own], others[own])

    def _others(self, k: int, sources: Floats, messages: Indices, generator: np.random.Generator) -> Floats:
        """Drawn squared errors of the best of the other decoders: [B, draws], infinite where there is none."""
        best = np.full((len(sources), _DRAWS), np.inf)
        for j in range(len(self._tables)):
            if j != k:
                side = sources[:, None] + np.sqrt(SIDE_VARIANCE) * generator.standard_normal(best.shape)
                best = np.minimum(best, np.square(self.answer(j, messages[:, None], side) - sources[:, None]))
        return best

    def _improve_row(self, k: int, message: int, sources: Floats, others: Floats) -> None:
        """g_k(m, t) for all t: the mean of sources [B], weighted by p(a | t) and how often decoder k is the best."""
        variance = PRIOR_VARIANCE + SIDE_VARIANCE
        exponent = np.square(_GRID[:, None] - sources) / SIDE_VARIANCE - np.square(_GRID[:, None]) / variance
        weights = np.exp(-0.5 * (np.square(sources) / PRIOR_VARIANCE + exponent))
        errors = np.square(self._tables[k, message][:, None] - sources)
        weights *= (others > errors[:, :, None]).mean(axis=2)
        total = weights.sum(axis=1)
        known = total > 1e-250
        self._tables[k, message][known] = (weights @ sources)[known] / total[known]


def optimised_tables(decoders: int, bins: int, messages: int, seed: int) -> Integrated:
    """Optimise, then integrate over the side information of fresh sources.

    Args:
        decoders: K.
        bins: L_max.
        messages: sources over which the distortion is integrated.
        seed: of the optimisation's draws and of the sources.
    """
    tables = OptimisedTables(decoders, bins)
    optimising, fresh = (np.random.Generator(np.random.Philox(seed).jumped(jump)) for jump in range(2))
    for _ in range(_ROUNDS):
        tables.improve(optimising)

    def answers(first: int, sources: Floats) -> Answer:
        sent = tables.encode(sources)[:, None]
        return lambda k, side: tables.answer(k, sent, side)

    return integrate_answers(answers, decoders, SIDE_VARIANCE, messages, fresh, _REACH)


def _columns(side: Floats) -> Indices:
    """Places of side information in the grid."""
    places = np.rint((side - _GRID[0]) / _SPACING).astype(np.int64)
    return np.asarray(np.clip(places, 0, len(_GRID) - 1))
