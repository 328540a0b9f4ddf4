"""Images, decoder's half (arXiv 2506.05632, appendix D.4): features of t, weight estimator, reconstruction."""

from __future__ import annotations

import torch
from torch import Tensor

from decoder.model import Floats, Indices
from networks import vae
from shared_rng import ModelCard, Session


class VaeDecoderModel:
    """Side information and reconstructions: images [B, height, width] or [B, height, width, 3] in [-1, 1]."""

    pool_variance = 1.0

    def __init__(self, card: ModelCard) -> None:
        self.digest = card.digest
        self.latent_dimension = card.size("latent_dimension")
        self.side_shape = card.image_shape("side")
        self._source_shape = card.image_shape("source")
        self._network = vae.load_decoder(card)

    def for_session(self, session: Session, index: int) -> VaeDecoderModel:
        """See :meth:`decoder.model.DecoderModel.for_session`."""
        session.require(
            model_digest=self.digest,
            pool_kind="gaussian",
            latent_dimension=self.latent_dimension,
            pool_variance=self.pool_variance,
            race_order="index",
        )
        return self

    def _features(self, side: Floats) -> Tensor:
        flat = torch.tensor(side, dtype=torch.float64).flatten(1)
        features: Tensor = self._network.features(flat)
        return features

    @torch.inference_mode()
    def log_weights(self, side: Floats, samples: Floats, rows: Indices) -> Floats:
        """See :meth:`decoder.model.DecoderModel.log_weights`."""
        logits = self._network.log_ratio(torch.from_numpy(samples), self._features(side), torch.from_numpy(rows))
        return logits.numpy()

    @torch.inference_mode()
    def reconstruct(self, latents: Floats, side: Floats) -> Floats:
        """Images [B, *source_shape] in [-1, 1]."""
        flat = self._network.reconstruct(torch.from_numpy(latents), self._features(side))
        return flat.numpy().reshape(-1, *self._source_shape)
