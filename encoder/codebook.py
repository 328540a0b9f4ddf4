"""Images on a learned alphabet, encoder's half: p_{W|A} is a softmax over N words from a network.

For the coupling ``list`` the network gives one log weight a message: all words of a bin share it.
"""

from __future__ import annotations

import numpy as np
import torch

from encoder.image_model import ImageEncoderModel
from encoder.model import Floats
from encoder.similar import SimilarImages
from networks import codebook
from shared_rng import Codebook, ModelCard, Session


class CodebookEncoderModel(ImageEncoderModel):
    """The pool is an alphabet."""

    latent_dimension = 1

    def __init__(self, card: ModelCard, similar: SimilarImages | None = None) -> None:
        super().__init__(card, similar)
        self.codebook = Codebook.from_card(card)
        self._network = codebook.load_encoder(card)

    def for_session(self, session: Session) -> CodebookEncoderModel:
        """See :meth:`encoder.model.EncoderModel.for_session`."""
        self.codebook.require(session)
        return self

    @torch.inference_mode()
    def log_weights(self, sources: Floats, samples: Floats) -> Floats:
        """See :meth:`encoder.model.EncoderModel.log_weights`; samples are words."""
        weights = self._network(torch.tensor(sources, dtype=torch.float64).flatten(1)).numpy()
        return np.asarray(np.take_along_axis(weights, samples[:, :, 0].astype(np.int64) % weights.shape[1], axis=1))
