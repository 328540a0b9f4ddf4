"""Encode a batch of source samples into messages, in one process and without a network."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from encoder.model import EncoderModel, Floats, GaussianTarget
from shared_rng import (
    Session,
    bin_labels,
    checked_batch,
    encoder_select,
    kernel,
    pack,
    require_picks,
    samples,
    selected_labels,
)

_CHUNK_BYTES = 2**22
"""Bound on one chunk's pool in memory; chunking changes no pick."""


@dataclass(frozen=True)
class EncodedBatch:
    """Messages of consecutive numbers.

    Attributes:
        first_message: number of the first.
        labels: uint32 [B], the messages M = l_Y.
        picks: int64 [B], Y: index of the picked candidate; known to the encoder only.
        payload: the labels packed, ceil(B · R / 8) bytes; all that is broadcast, with B and the number.
    """

    first_message: int
    labels: npt.NDArray[np.uint32]
    picks: npt.NDArray[np.int64]
    payload: bytes


class Encoder:
    """The encoder of one session (arXiv 2506.05632, section 3)."""

    def __init__(self, session: Session, model: EncoderModel, search: int = 0) -> None:
        """Bind a session to the encoder's half of its model.

        Args:
            session: the session.
            model: the encoder's half of its model.
            search: nodes of a searching encoder (``encoder.search``), or its similar images
                (``encoder.image_search``), or 0 for GLS alone. The pick is then the winner of the sent bin.

        Raises:
            SessionMismatch: a session field is not what the model needs.
            CodecError: the session cannot be searched.
        """
        self.session = session
        self.model = model.for_session(session)
        self._search = self.model.search(session, search) if search else None

    def encode(self, sources: npt.NDArray[np.floating], first_message: int = 0) -> EncodedBatch:
        """Messages of sources [B, *source_shape], numbered from ``first_message`` on.

        Raises:
            CodecError: the shape is wrong, the batch is empty, a value is not finite, or a message has no
                usable weight; the offending message is named, and nothing of the batch is encoded.
        """
        checked = checked_batch("sources", sources, self.model.source_shape, first_message)
        size = max(1, _CHUNK_BYTES // (8 * self.session.pool_size * self.session.latent_dimension))
        if kernel.serves(self.session):
            size = len(checked)
        chunks = [
            self._encode_chunk(checked[start : start + size], first_message + start)
            for start in range(0, len(checked), size)
        ]
        picks = np.concatenate([picks for picks, _ in chunks])
        labels = np.concatenate([labels for _, labels in chunks])
        return EncodedBatch(first_message, labels, picks, pack(labels, self.session.bits))

    def _encode_chunk(
        self, sources: Floats, first_message: int
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint32]]:
        messages = range(first_message, first_message + len(sources))
        if kernel.serves(self.session) and isinstance(self.model, GaussianTarget):
            mean, variance = self.model.target(sources)
            labels = None if self._search is None else self._search.labels(sources, first_message)
            selection = kernel.encoder_race(self.session, messages, mean, variance, labels).selection
            require_picks(selection)
            return selection.picks, kernel.labels_of(self.session, messages, selection.picks)
        log_weights = self.model.log_weights(sources, samples(self.session, messages))
        if self._search is not None:
            wanted = self._search.labels(sources, first_message)
            log_weights = np.where(bin_labels(self.session, messages) == wanted[:, None], log_weights, -np.inf)
        selection = encoder_select(self.session, messages, log_weights)
        require_picks(selection)
        return selection.picks, selected_labels(self.session, messages, selection)
