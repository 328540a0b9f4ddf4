"""Images on a learned alphabet, decoder's half: p_{W|T} is a classifier over N words, Â = g(word, t)."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from decoder.model import Floats, Indices
from networks import codebook
from shared_rng import Codebook, ModelCard, Session


class CodebookDecoderModel:
    """Side information and reconstructions: images [B, height, width] or [B, height, width, 3] in [-1, 1]."""

    latent_dimension = 1
    pool_variance = 1.0

    def __init__(self, card: ModelCard) -> None:
        self.codebook = Codebook.from_card(card)
        self.digest = card.digest
        self.side_shape = card.image_shape("side")
        self._source_shape = card.image_shape("source")
        self._network = codebook.load_decoder(card)

    def for_session(self, session: Session, index: int) -> CodebookDecoderModel:
        """See :meth:`decoder.model.DecoderModel.for_session`."""
        self.codebook.require(session)
        return self

    def _features(self, side: Floats) -> Tensor:
        features: Tensor = self._network.features(torch.tensor(side, dtype=torch.float64).flatten(1))
        return features

    @torch.inference_mode()
    def log_weights(self, side: Floats, samples: Floats, rows: Indices) -> Floats:
        """See :meth:`decoder.model.DecoderModel.log_weights`; samples are words, those of the bin alone."""
        words = torch.from_numpy(samples[:, 0].astype(np.int64))
        return self._network.log_weights(self._features(side)[torch.from_numpy(rows)], words).numpy()

    @torch.inference_mode()
    def reconstruct(self, latents: Floats, side: Floats) -> Floats:
        """Images [B, *source_shape] in [-1, 1] from words [B, 1]; NaN where a message failed."""
        failed = np.isnan(latents[:, 0])
        words = torch.from_numpy(np.where(failed, 0, latents[:, 0]).astype(np.int64))
        flat = self._network.reconstruct(self._network.fusion(self._features(side)), words).numpy()
        flat[failed] = np.nan
        return flat.reshape(-1, *self._source_shape)
