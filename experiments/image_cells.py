"""Many cells of one model at once: what sessions would give, with the networks evaluated as seldom as possible.

Cells that share a seed, a pool size and a model see the same pool. The encoder's pick depends on the number of races
alone, and of a decoder's weights and reconstructions those of one cell serve the others. Picks are those of
:func:`experiments.coding.code_in_process`, message for message, which a test counts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from decoder import DecoderModel
from encoder import Encoder, EncoderModel
from experiments.coding import BATCH, Outcome, code_in_process
from shared_rng import Selection, Session, bin_candidates, decoder_select, packed_size, selected_labels
from shared_rng.pool import BinCandidates

Floats = npt.NDArray[np.floating]
Doubles = npt.NDArray[np.float64]
Picks = npt.NDArray[np.int64]


@dataclass(frozen=True)
class CellTrials:
    """What came of B messages of one cell.

    Attributes:
        encoder_picks: int64 [B], Y.
        decoder_picks: int64 [K, B], X^(k), -1 where a message failed.
        errors: float64 [K, B], squared error a source coordinate in [-1, 1]; a failed message is mid-grey.
        matched_errors: float64 [K, B], the same if every decoder had the encoder's sample.
        payload_bytes: bytes of packed messages, summed over batches.
    """

    encoder_picks: Picks
    decoder_picks: Picks
    errors: Floats
    matched_errors: Floats
    payload_bytes: int

    @classmethod
    def join(cls, parts: Sequence[CellTrials]) -> CellTrials:
        """Messages one after another."""
        return cls(
            np.concatenate([part.encoder_picks for part in parts]),
            np.concatenate([part.decoder_picks for part in parts], axis=1),
            np.concatenate([part.errors for part in parts], axis=1),
            np.concatenate([part.matched_errors for part in parts], axis=1),
            sum(part.payload_bytes for part in parts),
        )


def code_cells(
    sessions: Sequence[Session],
    encoder_model: EncoderModel,
    decoder_model: DecoderModel,
    sources: Floats,
    sides: Sequence[Floats],
    first_message: int = 0,
) -> list[CellTrials]:
    """Code the same sources [B, ...] in every session, with sides[k] [B, ...] at decoder k.

    Args:
        sessions: of one model; those that differ in K, L_max and coupling alone share their work.
        encoder_model: the encoder's half.
        decoder_model: the decoder's half.
        sources: messages ``first_message`` … .
        sides: of as many decoders as the largest session has, or more.
        first_message: number of the first message.

    Returns:
        One result a session, in order.
    """
    first = sessions[0]
    alike = all((s.seed, s.pool_size, s.binning) == (first.seed, first.pool_size, first.binning) for s in sessions)
    if not alike or first.pool_kind != "gaussian" or first.race_order != "index":
        return [_code_alone(s, encoder_model, decoder_model, sources, sides, first_message) for s in sessions]
    shared = _SharedCells(sessions, encoder_model, decoder_model)
    chunks = []
    for start in range(0, len(sources), BATCH):
        rows = slice(start, start + BATCH)
        chunks.append(shared.code(sources[rows], [side[rows] for side in sides], first_message + start))
    return [CellTrials.join(parts) for parts in zip(*chunks, strict=True)]


def _code_alone(
    session: Session,
    encoder_model: EncoderModel,
    decoder_model: DecoderModel,
    sources: Floats,
    sides: Sequence[Floats],
    first_message: int,
) -> CellTrials:
    outcome = code_in_process(session, encoder_model, decoder_model, sources, sides, BATCH, first_message)
    return trials_of(outcome, session, decoder_model, sources, sides, first_message)


def trials_of(
    outcome: Outcome,
    session: Session,
    decoder_model: DecoderModel,
    sources: Floats,
    sides: Sequence[Floats],
    first_message: int = 0,
) -> CellTrials:
    """Errors of what came of messages ``first_message`` …, and those that the encoder's samples would have had."""
    latents = np.concatenate(
        [
            session.candidates(first_message + b, int(pick), 1).astype(np.float64)
            for b, pick in enumerate(outcome.encoder_picks)
        ]
    )
    model = [decoder_model.for_session(session, k) for k in range(session.decoders)]
    matched = np.stack([model[k].reconstruct(latents, sides[k].astype(np.float64)) for k in range(session.decoders)])
    return CellTrials(
        outcome.encoder_picks,
        outcome.decoder_picks,
        _errors(outcome.reconstructions, sources),
        _errors(matched, sources),
        outcome.payload_bytes,
    )


def _errors(reconstructions: Floats, sources: Floats) -> Floats:
    """Squared error a coordinate: [K, B]."""
    errors = np.square(np.nan_to_num(reconstructions, nan=0.0) - sources)
    return np.asarray(errors.reshape(*errors.shape[:2], -1).mean(axis=2), dtype=np.float64)


class _SharedCells:
    """One batch of messages at a time, in all sessions."""

    def __init__(self, sessions: Sequence[Session], encoder_model: EncoderModel, decoder_model: DecoderModel) -> None:
        self._sessions = sessions
        self._encoders = {s.races: Encoder(s, encoder_model) for s in sessions}
        self._model = decoder_model
        for session in sessions:
            decoder_model.for_session(session, session.decoders - 1)

    def code(self, sources: Floats, sides: Sequence[Floats], first_message: int) -> list[CellTrials]:
        """The batch's results, one a session."""
        messages = range(first_message, first_message + len(sources))
        picks = {races: encoder.encode(sources, first_message).picks for races, encoder in self._encoders.items()}
        bins = {(s.races, s.bins): s for s in self._sessions}
        candidates = {
            key: bin_candidates(s, messages, selected_labels(s, messages, Selection(picks[s.races])))
            for key, s in bins.items()
        }
        found = [self._decode(k, messages, picks, candidates, sources, side) for k, side in enumerate(sides)]
        return [self._result(number, picks, found) for number in range(len(self._sessions))]

    def _decode(
        self,
        k: int,
        messages: range,
        picks: dict[int, Picks],
        candidates: dict[tuple[int, int], BinCandidates],
        sources: Floats,
        side: Floats,
    ) -> dict[int, tuple[Picks, Floats, Floats]]:
        """Decoder k in all sessions that have one: number of the session → picks, errors, matched errors, each [B]."""
        own = {number: s for number, s in enumerate(self._sessions) if s.decoders > k}
        if not own:
            return {}
        size = self._sessions[0].pool_size
        seen: Doubles = side.astype(np.float64)
        pool: Doubles = np.full((len(messages), size, self._sessions[0].latent_dimension), np.nan)
        for session in own.values():
            part = candidates[session.races, session.bins]
            pool[part.rows, part.indices] = part.samples
        rows, indices = np.nonzero(~np.isnan(pool[:, :, 0]))
        weights = np.full((len(messages), size), np.nan)
        weights[rows, indices] = self._model.log_weights(seen, pool[rows, indices], rows)
        chosen = {}
        for number, session in own.items():
            part = candidates[session.races, session.bins]
            chosen[number] = decoder_select(session, k, part, weights[part.rows, part.indices]).picks
        errors = self._reconstruct([*chosen.values(), *picks.values()], pool, sources, seen)
        every = np.arange(len(messages))
        return {n: (x, errors[every, x], errors[every, picks[own[n].races]]) for n, x in chosen.items()}

    def _reconstruct(self, picks: Sequence[Picks], pool: Doubles, sources: Floats, side: Doubles) -> Floats:
        """Errors of all candidates that anyone picked: [B, N + 1], the last column for a failed message's -1."""
        table = np.full((pool.shape[0], pool.shape[1] + 1), np.nan)
        wanted = np.zeros(table.shape, dtype=bool)
        for picked in picks:
            wanted[np.arange(len(picked)), picked] = True
        # Where a session of fewer decoders picked what none of this decoder's sessions has in its bins.
        wanted[:, :-1] &= ~np.isnan(pool[:, :, 0])
        rows, indices = np.nonzero(wanted[:, :-1])
        images = self._model.reconstruct(pool[rows, indices], side[rows])
        table[rows, indices] = _errors(images[None], sources[rows])[0]
        table[:, -1] = _errors(np.zeros_like(sources)[None], sources)[0]
        return table

    def _result(
        self, number: int, picks: dict[int, Picks], found: Sequence[dict[int, tuple[Picks, Floats, Floats]]]
    ) -> CellTrials:
        session = self._sessions[number]
        parts = [found[k][number] for k in range(session.decoders)]
        return CellTrials(
            encoder_picks=picks[session.races],
            decoder_picks=np.stack([part[0] for part in parts]),
            errors=np.stack([part[1] for part in parts]),
            matched_errors=np.stack([part[2] for part in parts]),
            payload_bytes=packed_size(len(parts[0][0]), session.bits),
        )
