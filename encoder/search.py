"""Searching encoder for lattice sessions: the message that serves the decoders best, not the nearest point's.

Wire format and decoders stay as they are. For every message the encoder runs the decoders itself, on a grid
of side information, and finds the expected distortion of the best of K,

    E[min_k e_k²] = ∫ Π_k P(e_k² > x) dx,

whose product form holds because the side information of different decoders is independent given the source.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from encoder.model import Floats
from shared_rng import CodecError, Session, kernel
from shared_rng.lattice import TEMPERATURE, cell_answer

_REACH = 6.0
"""The grid of side information covers this many standard deviations given the source."""
_CHUNK_ROWS = 2**20


class LatticeSearch:
    """Expected distortion of every message of a lattice session."""

    def __init__(self, session: Session, prior_variance: float, side_variance: float, nodes: int) -> None:
        """Prepare ``nodes`` values of side information a decoder.

        Raises:
            CodecError: the session has no lattice pool, the side information is no finite one, or there are
                fewer than two nodes.
        """
        if session.pool_kind != "lattice":
            raise CodecError("encoder search", f"a {session.pool_kind} pool", "a session with a lattice pool")
        if not math.isfinite(side_variance):
            raise CodecError("side_variance", side_variance, "a finite one for encoder search")
        if nodes < 2:
            raise CodecError("search nodes", nodes, "at least 2")
        self._session = session
        self._gain = prior_variance / (prior_variance + side_variance)
        self._posterior_variance = side_variance * self._gain
        grid = (np.arange(nodes) + 0.5) * (2.0 * _REACH / nodes) - _REACH
        self._offsets = math.sqrt(side_variance) * grid
        density = np.exp(-0.5 * grid * grid)
        self._weights = density / density.sum()

    def labels(self, sources: Floats, first_message: int) -> npt.NDArray[np.uint32]:
        """The best message of each source [B], numbered from ``first_message`` on: uint32 [B]."""
        rows = self._session.bins * len(self._offsets)
        size = max(1, _CHUNK_ROWS // rows)
        return np.concatenate(
            [
                self._costs(sources[start : start + size], first_message + start).argmin(axis=1).astype(np.uint32)
                for start in range(0, len(sources), size)
            ]
        )

    def _costs(self, sources: Floats, first_message: int) -> Floats:
        """Expected squared error of the best decoder for each source and message: [B, L_max]."""
        count, bins, nodes = len(sources), self._session.bins, len(self._offsets)
        numbers = np.repeat(np.arange(count, dtype=np.uint64) + np.uint64(first_message), bins * nodes)
        labels = np.tile(np.repeat(np.arange(bins, dtype=np.uint32), nodes), count)
        side = np.broadcast_to((sources[:, None] + self._offsets)[:, None], (count, bins, nodes)).reshape(-1, 1)
        mean = self._gain * side
        variance = np.full_like(mean, TEMPERATURE * self._posterior_variance)
        targets = np.repeat(sources, bins * nodes)
        errors = []
        for k in range(self._session.decoders):
            race = kernel.decoder_race(self._session, k, numbers, labels, mean, variance)
            answer = cell_answer(
                race.samples[:, 0],
                mean[:, 0],
                self._session.cell_width,
                self._posterior_variance,
                k,
                self._session.decoders,
            )
            errors.append(np.square(answer - targets).reshape(count * bins, nodes))
        weights = np.broadcast_to(self._weights, (len(errors), count * bins, nodes))
        return expected_minimum(np.stack(errors), weights).reshape(count, bins)


def expected_minimum(values: Floats, weights: Floats) -> Floats:
    """E[min_k X_k] of independent X_k >= 0 with weighted atoms.

    Args:
        values: [K, B, J], the atoms.
        weights: [K, B, J], summing to 1 over J.

    Returns:
        [B].
    """
    decoders, rows, nodes = values.shape
    flat = values.transpose(1, 0, 2).reshape(rows, decoders * nodes)
    order = np.argsort(flat, axis=1)
    atoms = np.take_along_axis(flat, order, axis=1)
    survival = np.ones_like(atoms)
    for k in range(decoders):
        own = np.zeros((rows, decoders, nodes))
        own[:, k] = weights[k]
        passed = np.cumsum(np.take_along_axis(own.reshape(rows, -1), order, axis=1), axis=1)
        survival *= np.maximum(1.0 - passed, 0.0)
    widths = np.diff(atoms, axis=1)
    return np.asarray(atoms[:, 0] + (survival[:, :-1] * widths).sum(axis=1))
