"""Images, encoder's half (arXiv 2506.05632, appendix D.4): p_{W|A} = N(e1(a), diag e2(a)) from a network."""

from __future__ import annotations

import torch

from encoder.image_model import ImageEncoderModel
from encoder.model import Floats, target_log_weights
from encoder.similar import SimilarImages
from networks import vae
from shared_rng import ModelCard, Session


class VaeEncoderModel(ImageEncoderModel):
    """A continuous latent of dimension D; p_W = N(0, I)."""

    def __init__(self, card: ModelCard, similar: SimilarImages | None = None) -> None:
        super().__init__(card, similar)
        self.latent_dimension = card.size("latent_dimension")
        self.region_bins = vae.has_mixture(card)
        self._network = vae.load_encoder(card)

    def for_session(self, session: Session) -> VaeEncoderModel:
        """See :meth:`encoder.model.EncoderModel.for_session`."""
        session.require(
            model_digest=self.digest,
            pool_kind="gaussian",
            latent_dimension=self.latent_dimension,
            pool_variance=self.pool_variance,
            race_order="index",
        )
        return self

    @torch.inference_mode()
    def target(self, sources: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of p_{W|A}, each [B, D], of images [B, *source_shape]."""
        flat = torch.tensor(sources, dtype=torch.float64).flatten(1)
        mean, log_variance = self._network(flat)
        return mean.numpy(), log_variance.exp().numpy()

    def log_weights(self, sources: Floats, samples: Floats) -> Floats:
        """See :meth:`encoder.model.EncoderModel.log_weights`."""
        return target_log_weights(*self.target(sources), samples, self.pool_variance)
