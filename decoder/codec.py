"""Decode a batch of messages with one decoder's side information, in one process and without a network."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from decoder.model import DecoderModel, Floats
from shared_rng import BinCandidates, CodecError, Session, bin_candidates, checked_batch, decoder_select, unpack


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
        session.require(
            model_digest=model.digest,
            pool_kind="gaussian",
            latent_dimension=model.latent_dimension,
            pool_variance=model.pool_variance,
        )
        session.race_of(index)
        self.session = session
        self.index = index
        self.model = model

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
        labels = unpack(payload, len(checked), self.session.bits)
        return self.decode_candidates(bin_candidates(self.session, messages, labels), checked)

    def decode_candidates(self, candidates: BinCandidates, side: npt.NDArray[np.floating]) -> DecodedBatch:
        """Reconstruct messages whose bins are at hand, for decoders that live in one process.

        Args:
            candidates: of B messages of consecutive numbers; the same for every decoder.
            side: [B, *side_shape].

        Raises:
            CodecError: the side information's shape is wrong or not finite.
        """
        count = len(candidates.messages)
        first_message = candidates.messages[0] if count else 0
        checked = checked_batch("side information", side, self.model.side_shape, first_message)
        if len(checked) != count:
            raise CodecError("side information", f"{len(checked)} rows", f"one a message, {count}")
        log_weights = self.model.log_weights(checked, candidates.samples, candidates.rows)
        selection = decoder_select(self.session, self.index, candidates, log_weights)
        latents = np.full((count, self.session.latent_dimension), np.nan)
        for b in np.flatnonzero(selection.picks >= 0):
            own = slice(candidates.offsets[b], candidates.offsets[b + 1])
            position = np.searchsorted(candidates.indices[own], selection.picks[b])
            latents[b] = candidates.samples[own][position]
        reconstructions = self.model.reconstruct(latents, checked)
        return DecodedBatch(first_message, selection.picks, latents, reconstructions, selection.failures)
