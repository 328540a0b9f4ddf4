"""Images, encoder's half (arXiv 2506.05632, appendix D.4): p_{W|A} = N(e1(a), diag e2(a)) from a network.

A card's ``network`` is ``convolutional`` or absent, which stands for fully connected layers.
"""

from __future__ import annotations

import math
from typing import NoReturn

import torch
from torch import Tensor, nn

from encoder.convolutional import convolutional_layers
from encoder.model import Floats, target_log_weights
from encoder.weights import load_network
from shared_rng import CodecError, ModelCard, Session

_LOG_VARIANCE_RANGE = (-10.0, 4.0)


class EncoderNetwork(nn.Module):
    """Source [B, A] in [-1, 1] → mean and log-variance of p_{W|A}, each [B, D]."""

    def __init__(self, layers: nn.Sequential) -> None:
        super().__init__()
        self.layers = layers

    def forward(self, source: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and log-variance."""
        mean, log_variance = self.layers(source).chunk(2, dim=-1)
        return mean, log_variance.clamp(*_LOG_VARIANCE_RANGE)


def network_from_card(card: ModelCard) -> EncoderNetwork:
    """An untrained network of the card's architecture."""
    shape, hidden, outputs = card.image_shape("source"), card.size("encoder_hidden"), 2 * card.size("latent_dimension")
    if card.is_convolutional:
        return EncoderNetwork(convolutional_layers(shape, hidden, outputs))
    layers = nn.Sequential(
        nn.Linear(math.prod(shape), hidden),
        nn.ReLU(),
        nn.Linear(hidden, hidden),
        nn.ReLU(),
        nn.Linear(hidden, outputs),
    )
    return EncoderNetwork(layers)


class VaeEncoderModel:
    """Sources are images [B, height, width] or [B, height, width, 3], pixels in [-1, 1]; p_W = N(0, I)."""

    pool_variance = 1.0

    def __init__(self, card: ModelCard) -> None:
        self.latent_dimension = card.size("latent_dimension")
        self.source_shape = card.image_shape("source")
        self.side = card.side
        self.digest = card.digest

        def require_sizes(weights: dict[str, Tensor]) -> None:
            if not card.is_convolutional:
                hidden, size = weights["layers.0.weight"].shape
                card.require_size(hidden, "encoder_hidden")
                card.require_size(size // math.prod(self.source_shape[2:]), "source_height", "source_width")
                card.require_size(len(weights["layers.4.weight"]) // 2, "latent_dimension")

        self._network = load_network(card, network_from_card, require_sizes)

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
