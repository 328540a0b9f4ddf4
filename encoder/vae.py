"""Images, encoder's half (arXiv 2506.05632, appendix D.4): p_{W|A} = N(e1(a), diag e2(a)) from a network."""

from __future__ import annotations

from typing import NoReturn

import torch

from encoder.model import Floats, target_log_weights
from networks import vae
from shared_rng import CodecError, ModelCard, Session


class VaeEncoderModel:
    """Sources are images [B, height, width] or [B, height, width, 3], pixels in [-1, 1]; p_W = N(0, I)."""

    pool_variance = 1.0

    def __init__(self, card: ModelCard) -> None:
        self.latent_dimension = card.size("latent_dimension")
        self.source_shape = card.image_shape("source")
        self.side = card.side
        self.digest = card.digest
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

    def search(self, session: Session, nodes: int) -> NoReturn:
        """Refused: the encoder does not know the decoders' networks."""
        raise CodecError("encoder search", f"{nodes} nodes with a VAE", "a Gaussian model with a lattice pool")

    @torch.inference_mode()
    def target(self, sources: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of p_{W|A}, each [B, D], of images [B, *source_shape]."""
        flat = torch.tensor(sources, dtype=torch.float64).flatten(1)
        mean, log_variance = self._network(flat)
        return mean.numpy(), log_variance.exp().numpy()

    def log_weights(self, sources: Floats, samples: Floats) -> Floats:
        """See :meth:`encoder.model.EncoderModel.log_weights`."""
        return target_log_weights(*self.target(sources), samples, self.pool_variance)
