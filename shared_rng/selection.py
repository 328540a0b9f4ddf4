"""Gumbel-max list sampling (arXiv 2506.05632, section 3): who wins the races at each end.

Both ends compute ``argmin_i log S_i - log λ_i`` in float64, the lowest index winning ties. The encoder
takes S_i as the minimum over its K races; a decoder runs its own race over the candidates of one bin. With the
coupling ``list`` there are no races: log S_i = 0, and decoder k takes the k-th candidate of the bin.
Normalising constants cancel in the argmin, so log importance weights may carry any constant a message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from shared_rng import pool
from shared_rng.errors import CodecError
from shared_rng.pool import BinCandidates, Indices, Labels
from shared_rng.session import Session
from shared_rng.variates import Floats

NO_PICK = -1
EMPTY_BIN_REASON = "the bin is empty: no honest message points to it"


@dataclass(frozen=True)
class Selection:
    """Winners of a batch.

    Attributes:
        picks: int64 [B], index of the winner in its pool, or -1 where the message failed.
        failures: message number → what was wrong with it, for the failed messages only.
    """

    picks: Indices
    failures: dict[int, str] = field(default_factory=dict)


def _pick(log_weights: Floats, log_times: Floats) -> int | str:
    """The winner's position among the candidates of one message, or what is wrong with its weights."""
    if log_weights.size == 0:
        return EMPTY_BIN_REASON
    best = log_weights.max()
    if np.isnan(best):
        return f"{int(np.isnan(log_weights).sum())} of {log_weights.size} log importance weights are NaN"
    if best == np.inf:
        return f"{int(np.isposinf(log_weights).sum())} of {log_weights.size} log importance weights are infinite"
    if best == -np.inf:
        return f"all {log_weights.size} importance weights are zero"
    # A weight of zero loses whatever its race says.
    scores = np.full(log_weights.shape, np.inf)
    np.subtract(log_times, log_weights, out=scores, where=log_weights > -np.inf)
    return int(np.argmin(scores))


def encoder_select(session: Session, messages: Sequence[int], log_weights: Floats) -> Selection:
    """Y of each message: ``argmin_i min_k S_i^(k) / λ_i``, so that Y follows the target.

    Args:
        session: the session.
        messages: B message numbers.
        log_weights: [B, N], log of p_{W|A} over the pool's density; -inf is a weight of zero.

    Returns:
        The picks; a message whose weights are NaN, infinite or all zero fails alone.

    Raises:
        CodecError: the shape is not [B, N].
    """
    expected = (len(messages), session.pool_size)
    if log_weights.shape != expected:
        raise CodecError("log importance weights", f"shape {log_weights.shape}", f"shape {expected}")
    results = [
        _pick(weights, pool.earliest_log_times(session, message))
        for weights, message in zip(log_weights, messages, strict=True)
    ]
    return _collect(messages, results)


def decoder_select(session: Session, decoder: int, candidates: BinCandidates, log_weights: Floats) -> Selection:
    """X^(k) of each message: the winner of decoder k's race among the candidates of the bin.

    Args:
        session: the session.
        decoder: k, 0 … K - 1.
        candidates: from :func:`shared_rng.pool.bin_candidates`.
        log_weights: [C], log of p_{W|T} over the pool's density for each candidate.

    Returns:
        The picks; a message whose bin is empty or whose weights are NaN, infinite or all zero fails alone.

    Raises:
        CodecError: the shape is not [C], k is out of range, or the coupling has no races.
    """
    if log_weights.shape != candidates.indices.shape:
        expected = f"shape {candidates.indices.shape}"
        raise CodecError("log importance weights", f"shape {log_weights.shape}", expected)
    race = session.race_of(decoder)
    results: list[int | str] = []
    for b, message in enumerate(candidates.messages):
        own = slice(candidates.offsets[b], candidates.offsets[b + 1])
        log_times = pool.race_log_times(session, race, message, candidates.indices[own])
        winner = _pick(log_weights[own], log_times)
        results.append(winner if isinstance(winner, str) else int(candidates.indices[own][winner]))
    return _collect(candidates.messages, results)


def list_select(session: Session, decoder: int, received: Labels) -> Selection:
    """X^(k) of each message with the coupling ``list``: word M + L_max · k, the k-th of bin M.

    Args:
        session: the session.
        decoder: k, 0 … K - 1.
        received: uint32 [B], the messages M.

    Raises:
        CodecError: the coupling is another, or k is out of range.
    """
    session.require_decoder(decoder)
    if session.coupling != "list":
        raise CodecError("coupling", session.coupling, "list")
    return Selection(np.asarray(received).astype(np.int64) + session.bins * decoder)


def _collect(messages: Sequence[int], results: list[int | str]) -> Selection:
    picks = np.array([NO_PICK if isinstance(r, str) else r for r in results], dtype=np.int64)
    failures = {m: r for m, r in zip(messages, results, strict=True) if isinstance(r, str)}
    return Selection(picks, failures)


def require_picks(selection: Selection) -> None:
    """Refuse a batch of which a message has no pick.

    Raises:
        CodecError: naming the first such message.
    """
    for message, reason in selection.failures.items():
        raise CodecError(f"message {message}", reason, "log importance weights of which one is finite")


def selected_labels(session: Session, messages: Sequence[int], selection: Selection) -> Labels:
    """The messages M = l_Y of an encoder's picks, none of which failed: uint32 [B]."""
    picked = [pool.label_of(session, m, int(y)) for m, y in zip(messages, selection.picks, strict=True)]
    return np.array(picked, dtype=np.uint32)
