"""Images on a learned alphabet, encoder's half: p_{W|A} is a softmax over N words from a network.

For the coupling ``list`` the network gives one log weight a message: all words of a bin share it.
"""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import torch

from encoder.model import Floats
from networks import codebook
from shared_rng import Codebook, CodecError, ModelCard, Session


class CodebookEncoderModel:
    """Sources are images [B, height, width] or [B, height, width, 3], pixels in [-1, 1]."""

    latent_dimension = 1
    pool_variance = 1.0

    def __init__(self, card: ModelCard) -> None:
        self.codebook = Codebook.from_card(card)
        self.digest = card.digest
        self.source_shape = card.image_shape("source")
        self.side = card.side
        self._network = codebook.load_encoder(card)

    def for_session(self, session: Session) -> CodebookEncoderModel:
        """See :meth:`encoder.model.EncoderModel.for_session`."""
        self.codebook.require(session)
        return self

    def search(self, session: Session, nodes: int) -> NoReturn:
        """Refused: the encoder does not know the decoders' networks."""
        raise CodecError("encoder search", f"{nodes} nodes with a codebook", "a Gaussian model with a lattice pool")

    @torch.inference_mode()
    def log_weights(self, sources: Floats, samples: Floats) -> Floats:
        """See :meth:`encoder.model.EncoderModel.log_weights`; samples are words."""
        weights = self._network(torch.tensor(sources, dtype=torch.float64).flatten(1)).numpy()
        return np.asarray(np.take_along_axis(weights, samples[:, :, 0].astype(np.int64) % weights.shape[1], axis=1))
