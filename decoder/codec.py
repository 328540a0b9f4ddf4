"""Decode a batch of messages with one decoder's side information, in one process and without a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from decoder.model import DecoderModel, Floats, GaussianProposal
from shared_rng import (
    CodecError,
    Selection,
    Session,
    bin_candidates,
    checked_batch,
    decoder_select,
    kernel,
    list_select,
    unpack,
)
from shared_rng.pool import Labels

_CHUNK_NUMBERS = 2**22
"""Numbers of the pools that are made at once."""


@dataclass(frozen=True)
class DecodedBatch:
    """What one decoder made of messages of consecutive numbers.

    Attributes:
        first_message: number of the first.
        picks: int64 [B], X^(k): index of the picked candidate, -1 where the message failed.
        latents: float64 [B, D], the picked candidates; NaN where the message failed.
        reconstructions: float64 [B, *source_shape]; NaN where the message failed.
        failures: message number → reason, for the failed messages only.
    """

    first_message: int
    picks: npt.NDArray[np.int64]
    latents: Floats
    reconstructions: Floats
    failures: dict[int, str] = field(default_factory=dict)


class Decoder:
    """Decoder k of one session (arXiv 2506.05632, section 3)."""

    def __init__(self, session: Session, index: int, model: DecoderModel) -> None:
        """Bind a session to decoder ``index`` (0 … K - 1) and the decoder's half of its model.

        Raises:
            SessionMismatch: a session field is not what the model needs.
            CodecError: the index is not one of the session's decoders.
        """
        session.require_decoder(index)
        self.session = session
        self.index = index
        self.model = model.for_session(session, index)

    def decode(self, payload: bytes, side: npt.NDArray[np.floating], first_message: int = 0) -> DecodedBatch:
        """Reconstruct the messages of a packed payload, numbered from ``first_message`` on.

        Args:
            payload: B messages packed into ceil(B · R / 8) bytes.
            side: [B, *side_shape], one sample of side information a message.
            first_message: number of the first message.

        Raises:
            CodecError: the side information's shape is wrong or not finite, or the payload's length does
                not belong to B messages.
        """
        checked = checked_batch("side information", side, self.model.side_shape, first_message)
        messages = range(first_message, first_message + len(checked))
        return self.decode_labels(unpack(payload, len(checked), self.session.bits), checked, messages)

    def decode_labels(self, labels: Labels, side: npt.NDArray[np.floating], messages: Sequence[int]) -> DecodedBatch:
        """Reconstruct messages that are unpacked already, of any numbers, repeated or not.

        Args:
            labels: uint32 [B].
            side: [B, *side_shape].
            messages: B message numbers.

        Raises:
            CodecError: the side information's shape is wrong or not finite, or there is not one label a row.
        """
        first_message = messages[0] if len(messages) else 0
        checked = checked_batch("side information", side, self.model.side_shape, first_message)
        if not len(labels) == len(messages) == len(checked):
            given = f"{len(labels)} labels, {len(messages)} numbers and {len(checked)} rows"
            raise CodecError("messages", given, "as many of each")
        if kernel.serves(self.session) and isinstance(self.model, GaussianProposal):
            mean, variance = self.model.proposal(checked)
            race = kernel.decoder_race(self.session, self.index, messages, labels, mean, variance)
            selection, latents = race.selection, race.samples
        else:
            selection, latents = self._scan(messages, labels, checked)
        reconstructions = self.model.reconstruct(latents, checked)
        return DecodedBatch(first_message, selection.picks, latents, reconstructions, selection.failures)

    def _scan(self, messages: Sequence[int], labels: Labels, side: Floats) -> tuple[Selection, Floats]:
        """Some messages at once; returns the picks and the picked candidates, NaN where one failed."""
        size = max(1, _CHUNK_NUMBERS // (self.session.pool_size * self.session.latent_dimension))
        parts = [slice(start, start + size) for start in range(0, len(messages), size)]
        scans = [self._scan_chunk(messages[part], labels[part], side[part]) for part in parts]
        failures = {message: reason for found, _ in scans for message, reason in found.failures.items()}
        picks = np.concatenate([found.picks for found, _ in scans])
        return Selection(picks, failures), np.concatenate([latents for _, latents in scans])

    def _scan_chunk(self, messages: Sequence[int], labels: Labels, side: Floats) -> tuple[Selection, Floats]:
        """Weigh every candidate of the bin."""
        if self.session.coupling == "list":
            selection = list_select(self.session, self.index, labels)
            return selection, selection.picks.astype(np.float64)[:, None]
        candidates = bin_candidates(self.session, messages, labels)
        log_weights = self.model.log_weights(side, candidates.samples, candidates.rows)
        selection = decoder_select(self.session, self.index, candidates, log_weights)
        latents = np.full((len(messages), self.session.latent_dimension), np.nan)
        for b in np.flatnonzero(selection.picks >= 0):
            own = slice(candidates.offsets[b], candidates.offsets[b + 1])
            position = np.searchsorted(candidates.indices[own], selection.picks[b])
            latents[b] = candidates.samples[own][position]
        return selection, latents
