"""Pools, bins and races of whole batches of messages, from random-access words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from shared_rng import arrivals, philox, regions, variates
from shared_rng.errors import CodecError
from shared_rng.session import Session
from shared_rng.variates import Floats

Labels = npt.NDArray[np.uint32]
Indices = npt.NDArray[np.int64]


def samples(session: Session, messages: Sequence[int]) -> Floats:
    """All N candidates of each message: float64 [B, N, D]."""
    return np.stack([session.candidates(message, 0, session.pool_size) for message in messages])


def bin_labels(session: Session, messages: Sequence[int]) -> Labels:
    """Bin label of every candidate of each message, as the session's binning says: uint32 [B, N] in 0 … L_max - 1."""
    if session.binning == "modulo":
        labels = np.arange(session.pool_size, dtype=np.uint32) % np.uint32(session.bins)
        return np.tile(labels, (len(messages), 1))
    if session.binning == "region":
        pools = (session.candidates(message, 0, session.pool_size) for message in messages)
        return np.stack([regions.labels(pool, session.bins) for pool in pools])
    table = philox.word_table(session.seed, philox.BIN_DOMAIN, messages, session.pool_size)
    return variates.labels(table, session.bits)


def label_of(session: Session, message: int, candidate: int) -> int:
    """Bin label of one candidate, without the other N - 1."""
    if session.binning == "modulo":
        return candidate % session.bins
    if session.binning == "region":
        return int(regions.labels(session.candidates(message, candidate, 1), session.bins)[0])
    word = philox.words(session.seed, philox.BIN_DOMAIN, message, candidate, 1)
    return int(variates.labels(word, session.bits)[0])


def race_log_times(session: Session, race: int, message: int, candidates: Indices) -> Floats:
    """log S_i of some candidates i in one race: float64, the shape of ``candidates``."""
    if session.race_order == "arrival":
        return arrivals.race_log_times(session, race, message)[candidates]
    words = philox.words(session.seed, philox.RACE_DOMAIN + race, message, 0, session.pool_size)
    return variates.log_exponentials(words[candidates])


def earliest_log_times(session: Session, message: int) -> Floats:
    """log min_k S_i^(k) of every candidate i over all races: float64 [N], zero where there are none."""
    if session.races == 0:
        return np.zeros(session.pool_size)
    if session.race_order == "arrival":
        return np.asarray(np.min([arrivals.race_log_times(session, k, message) for k in range(session.races)], axis=0))
    # S falls as its word grows, so the minimum over races is taken on the words, exactly.
    size = session.pool_size
    words = philox.words(session.seed, philox.RACE_DOMAIN, message, 0, size)
    for race in range(1, session.races):
        np.maximum(words, philox.words(session.seed, philox.RACE_DOMAIN + race, message, 0, size), out=words)
    return variates.log_exponentials(words)


@dataclass(frozen=True)
class BinCandidates:
    """The candidates in one bin a message, all messages one after another.

    Attributes:
        messages: the B message numbers.
        rows: int64 [C], position in ``messages`` of each candidate, ascending.
        indices: int64 [C], index of each candidate in its pool, ascending within a message.
        samples: float64 [C, D].
        offsets: int64 [B + 1]; message b owns candidates ``offsets[b]`` to ``offsets[b + 1] - 1``.
    """

    messages: Sequence[int]
    rows: Indices
    indices: Indices
    samples: Floats
    offsets: Indices


def bin_candidates(session: Session, messages: Sequence[int], received: Labels) -> BinCandidates:
    """What a decoder looks at once it knows the messages: the candidates of the named bins only.

    Args:
        session: the session.
        messages: B message numbers.
        received: [B] bin labels.

    Raises:
        CodecError: the number of labels is not B.
    """
    if len(received) != len(messages):
        raise CodecError("received labels", len(received), f"one a message, {len(messages)}")
    rows, indices = np.nonzero(bin_labels(session, messages) == np.asarray(received)[:, None])
    offsets = np.searchsorted(rows, np.arange(len(messages) + 1))
    if session.pool_kind != "gaussian":
        pools = [session.candidates(message, 0, session.pool_size) for message in messages]
        chosen = np.stack(pools)[rows, indices]
    else:
        dimension = session.latent_dimension
        word_indices = indices[:, None] * dimension + np.arange(dimension)
        words = np.empty(word_indices.shape, dtype=np.uint64)
        for b, message in enumerate(messages):
            own = slice(offsets[b], offsets[b + 1])
            table = philox.words(session.seed, philox.POOL_DOMAIN, message, 0, session.pool_size * dimension)
            words[own] = table[word_indices[own]]
        chosen = variates.normals(words, session.pool_variance)
    return BinCandidates(messages, rows, indices, chosen, offsets)
