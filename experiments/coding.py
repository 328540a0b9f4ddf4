"""Both ends in one process: the reference that the networked system must equal, message for message."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from decoder import Decoder, DecoderModel
from encoder import Encoder, EncoderModel
from shared_rng import Session

Floats = npt.NDArray[np.floating]

BATCH = 64
"""Messages a batch, over the network and in one process."""


@dataclass(frozen=True)
class Outcome:
    """What came of B messages at K decoders.

    Attributes:
        encoder_picks: int64 [B], Y.
        decoder_picks: int64 [K, B], X^(k), -1 where a message failed.
        reconstructions: float64 [K, B, *source_shape], NaN where a message failed.
        payload_bytes: bytes of packed messages, summed over batches.
        encoder_seconds: processor time of encoding, all threads together, where both ends are in one process.
    """

    encoder_picks: npt.NDArray[np.int64]
    decoder_picks: npt.NDArray[np.int64]
    reconstructions: Floats
    payload_bytes: int
    encoder_seconds: float = 0.0

    @property
    def matched(self) -> npt.NDArray[np.bool_]:
        """Whether at least one decoder picked the encoder's sample: [B]."""
        return np.asarray((self.decoder_picks == self.encoder_picks).any(axis=0))


@dataclass(frozen=True)
class Example:
    """What an example figure shows: some messages of one cell.

    Attributes:
        sources: [B, *source_shape] in [-1, 1].
        sides: [K, B, *side_shape].
        outcome: what came of them.
        title: which cell it is.
    """

    sources: Floats
    sides: Floats
    outcome: Outcome
    title: str


def code_in_process(
    session: Session,
    encoder_model: EncoderModel,
    decoder_model: DecoderModel,
    sources: Floats,
    sides: Sequence[Floats],
    batch_size: int = BATCH,
    first_message: int = 0,
    search: int = 0,
) -> Outcome:
    """Encode sources [B, ...] and decode at every decoder k with sides[k] [B, ...], in batches.

    Messages are numbered from ``first_message`` on; ``search`` is that of :class:`encoder.Encoder`.
    """
    encoder = Encoder(session, encoder_model, search)
    decoders = [Decoder(session, k, decoder_model) for k in range(session.decoders)]
    encoded, decoded, seconds = [], [], 0.0
    for start in range(0, len(sources), batch_size):
        rows = slice(start, start + batch_size)
        number = first_message + start
        started = time.process_time()
        batch = encoder.encode(sources[rows], number)
        seconds += time.process_time() - started
        encoded.append(batch)
        decoded.append([d.decode(batch.payload, sides[d.index][rows], number) for d in decoders])
    return Outcome(
        encoder_picks=np.concatenate([batch.picks for batch in encoded]),
        decoder_picks=np.stack([np.concatenate([row[k].picks for row in decoded]) for k in range(session.decoders)]),
        reconstructions=np.stack(
            [np.concatenate([row[k].reconstructions for row in decoded]) for k in range(session.decoders)]
        ),
        payload_bytes=sum(len(batch.payload) for batch in encoded),
        encoder_seconds=seconds,
    )
