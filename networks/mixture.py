"""A decoder's network with a density in closed form: p_{W|T} is a mixture of Gaussians that t names.

A mixture density network (Bishop, 1994) in place of appendix D.4's estimator of a density ratio: p_{W|T} integrates to
one whatever the weights are, so that a loss can speak of the probability that a decoder picks the encoder's sample.
The latent enters the reconstruction as a scale and a shift of each unit of the layer that merges it with the side
information.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from networks.layers import connected_layers
from shared_rng import CodecError, ModelCard

LOG_TWO_PI = math.log(2.0 * math.pi)
_LOG_VARIANCE_RANGE = (-7.0, 3.0)


def log_normal(latents: Tensor) -> Tensor:
    """log p_W(w) = log N(w; 0, I) of latents [..., D], in nats: [...]."""
    return -0.5 * (latents.square() + LOG_TWO_PI).sum(dim=-1)


@dataclass(frozen=True)
class Mixture:
    """Mixtures of C Gaussians with diagonal covariances, as log-densities linear in (w, w²).

    Attributes:
        constants: [..., C], log-weight and all that does not depend on w, in nats.
        coefficients: [..., C, 2 D], of w and of w².
    """

    constants: Tensor
    coefficients: Tensor

    def log_density(self, latents: Tensor) -> Tensor:
        """log p(w) in nats of S latents [..., S, D] under each mixture: [..., S]."""
        moments = torch.cat((latents, latents.square()), dim=-1)
        terms = moments @ self.coefficients.transpose(-1, -2) + self.constants.unsqueeze(-2)
        return terms.logsumexp(dim=-1)


class MixtureNetwork(nn.Module):
    """All that a decoder computes from side information [..., T] in [-1, 1] and latents [..., D]."""

    def __init__(
        self,
        side_size: int,
        source_size: int,
        latent_dimension: int,
        hidden: int,
        features: int,
        fusion: int,
        components: int,
        mixture: int,
    ) -> None:
        super().__init__()
        self.latent_dimension = latent_dimension
        self.features = nn.Sequential(*connected_layers(side_size, hidden, features), nn.ReLU())
        self.fusion_side = nn.Linear(features, hidden)
        self.fusion_latent = connected_layers(latent_dimension, fusion, 2 * hidden)
        self.reconstruction = nn.Sequential(nn.ReLU(), *connected_layers(hidden, hidden, source_size), nn.Tanh())
        size = components * (1 + 2 * latent_dimension)
        self.mixture = connected_layers(features, mixture, size)
        self.components = components

    def reconstruct(self, latents: Tensor, features: Tensor) -> Tensor:
        """Source [..., A] in [-1, 1] from latents [..., D] and features [..., F]."""
        scale, shift = self.fusion_latent(latents).chunk(2, dim=-1)
        reconstruction: Tensor = self.reconstruction(self.fusion_side(features) * (1.0 + scale) + shift)
        return reconstruction

    def density(self, features: Tensor) -> Mixture:
        """p_{W|T} for features [..., F]."""
        numbers = self.mixture(features).unflatten(-1, (self.components, 1 + 2 * self.latent_dimension))
        weights, means, log_variances = numbers.split((1, self.latent_dimension, self.latent_dimension), dim=-1)
        log_variances = log_variances.clamp(*_LOG_VARIANCE_RANGE)
        precisions = (-log_variances).exp()
        constants = weights.squeeze(-1).log_softmax(dim=-1)
        constants = constants - 0.5 * (log_variances + LOG_TWO_PI + means.square() * precisions).sum(dim=-1)
        return Mixture(constants, torch.cat((means * precisions, -0.5 * precisions), dim=-1))

    def log_ratio(self, latents: Tensor, features: Tensor, rows: Tensor) -> Tensor:
        """log p_{W|T}(w|t) - log p_W(w), [C]; ``rows`` [C] says whose features [B, F] belong to each latent [C, D]."""
        density = self.density(features)
        own = Mixture(density.constants[rows], density.coefficients[rows])
        return own.log_density(latents.unsqueeze(-2)).squeeze(-1) - log_normal(latents)

    def weigh(self, candidates: Tensor, features: Tensor) -> Tensor:
        """See :meth:`networks.decoders.DecoderNetwork.weigh`: :meth:`log_ratio` of all pairs."""
        densities = self.density(features).log_density(candidates.unsqueeze(-3))
        return densities - log_normal(candidates).unsqueeze(-2)

    def answers(self, candidates: Tensor, features: Tensor) -> Tensor:
        """See :meth:`networks.decoders.DecoderNetwork.answers`."""
        return self.reconstruct(candidates, features.unsqueeze(-2))


def decoder_from_card(card: ModelCard) -> MixtureNetwork:
    """An untrained network of the card's architecture.

    Raises:
        CodecError: a size is missing or out of range, or layers are convolutional.
    """
    if card.is_convolutional:
        raise CodecError("card architecture.network", "convolutional", "none beside weights_head 'mixture'")
    return MixtureNetwork(
        side_size=math.prod(card.image_shape("side")),
        source_size=math.prod(card.image_shape("source")),
        latent_dimension=card.size("latent_dimension"),
        hidden=card.size("decoder_hidden"),
        features=card.size("side_features"),
        fusion=card.size("fusion_hidden"),
        components=card.size("mixture_components"),
        mixture=card.size("mixture_hidden"),
    )


def require_sizes(card: ModelCard, weights: dict[str, Tensor]) -> None:
    """Check the card's sizes against the weights of such a network, by layer.

    Raises:
        CodecError: they differ; it names them.
    """
    channels = math.prod(card.image_shape("side")[2:])
    hidden, side_size = weights["features.0.weight"].shape
    fusion, latent = weights["fusion_latent.0.weight"].shape
    card.require_size(hidden, "decoder_hidden")
    card.require_size(side_size // channels, "side_height", "side_width")
    card.require_size(len(weights["features.2.weight"]), "side_features")
    card.require_size(len(weights["reconstruction.3.weight"]) // channels, "source_height", "source_width")
    card.require_size(latent, "latent_dimension")
    card.require_size(fusion, "fusion_hidden")
    card.require_size(len(weights["mixture.0.weight"]), "mixture_hidden")
    card.require_size(len(weights["mixture.2.weight"]) // (1 + 2 * latent), "mixture_components")
