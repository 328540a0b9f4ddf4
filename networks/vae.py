"""Networks of a β-VAE with importance weights, source ``vae`` (arXiv 2506.05632, appendix D.4).

The encoder's gives p_{W|A} = N(e1(a), diag e2(a)); the decoder's features of t, a weight estimator and the
reconstruction. A card's ``network`` is ``convolutional`` or absent, which stands for fully connected layers. Its
``weights_head`` is ``mixture`` (``networks/mixture.py``) or absent, which stands for the estimator.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from networks import mixture
from networks.layers import connected_layers, convolutional_layers, convolutional_reconstruction
from networks.mixture import MixtureNetwork
from networks.weights import load_network
from shared_rng import CodecError, ModelCard

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


class DecoderNetwork(nn.Module):
    """All that a decoder computes from side information [B, T] in [-1, 1] and latents [B, D]."""

    def __init__(
        self, features: nn.Sequential, reconstruction: nn.Sequential, width: int, latent_dimension: int, estimator: int
    ) -> None:
        """Put the parts together; ``width`` is the number of features F, ``estimator`` the estimator's hidden size."""
        super().__init__()
        self.features = features
        self.reconstruction = reconstruction
        self.estimator_side = nn.Linear(width, estimator)
        self.estimator_latent = nn.Linear(2 * latent_dimension, estimator, bias=False)
        self.estimator_head = nn.Sequential(
            nn.ReLU(), nn.Linear(estimator, estimator // 2), nn.ReLU(), nn.Linear(estimator // 2, 1)
        )

    def reconstruct(self, latents: Tensor, features: Tensor) -> Tensor:
        """Source [B, A] in [-1, 1] from latents [B, D] and features [B, F]."""
        reconstruction: Tensor = self.reconstruction(torch.cat((latents, features), dim=-1))
        return reconstruction

    def log_ratio(self, latents: Tensor, features: Tensor, rows: Tensor) -> Tensor:
        """log p_{W|T}(w|t) - log p_W(w), [C]: the logit that tells joint pairs from independent ones.

        The side information is seen once a message; ``rows`` [C] says whose it is for each latent [C, D].
        """
        side = self.estimator_side(features)[rows]
        latent = self.estimator_latent(torch.cat((latents, latents.square()), dim=-1))
        logits: Tensor = self.estimator_head(side + latent)
        return logits.squeeze(-1)

    def weigh(self, candidates: Tensor, features: Tensor) -> Tensor:
        """See :meth:`networks.decoders.DecoderNetwork.weigh`: :meth:`log_ratio` of all pairs."""
        side = self.estimator_side(features).unsqueeze(-2)
        latent = self.estimator_latent(torch.cat((candidates, candidates.square()), dim=-1)).unsqueeze(-3)
        logits: Tensor = self.estimator_head(side + latent)
        return logits.squeeze(-1)

    def answers(self, candidates: Tensor, features: Tensor) -> Tensor:
        """See :meth:`networks.decoders.DecoderNetwork.answers`."""
        repeated = features.unsqueeze(-2).expand(*candidates.shape[:-1], -1)
        flat = self.reconstruct(candidates.flatten(0, -2), repeated.flatten(0, -2))
        return flat.reshape(*candidates.shape[:-1], -1)


def encoder_from_card(card: ModelCard) -> EncoderNetwork:
    """An untrained network of the card's architecture.

    Raises:
        CodecError: a size is missing or out of range.
    """
    shape, hidden, outputs = card.image_shape("source"), card.size("encoder_hidden"), 2 * card.size("latent_dimension")
    if card.is_convolutional:
        return EncoderNetwork(
            nn.Sequential(*convolutional_layers(shape, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
        )
    return EncoderNetwork(connected_layers(math.prod(shape), hidden, hidden, outputs))


def load_encoder(card: ModelCard) -> EncoderNetwork:
    """The encoder's network with its weights; see :func:`networks.weights.load_network`."""
    return load_network(card, "encoder", encoder_from_card, _require_encoder_sizes)


def _require_encoder_sizes(card: ModelCard, weights: dict[str, Tensor]) -> None:
    if card.is_convolutional:
        return
    hidden, size = weights["layers.0.weight"].shape
    card.require_size(hidden, "encoder_hidden")
    card.require_size(size // math.prod(card.image_shape("source")[2:]), "source_height", "source_width")
    card.require_size(len(weights["layers.4.weight"]) // 2, "latent_dimension")


def decoder_from_card(card: ModelCard) -> DecoderNetwork | MixtureNetwork:
    """An untrained network of the card's architecture.

    Raises:
        CodecError: a size is missing or out of range, or ``architecture.weights_head`` is unknown.
    """
    if has_mixture(card):
        return mixture.decoder_from_card(card)
    source, side = card.image_shape("source"), card.image_shape("side")
    hidden, width, latent = card.size("decoder_hidden"), card.size("side_features"), card.size("latent_dimension")
    if card.is_convolutional:
        features = convolutional_layers(side, width)
        reconstruction = convolutional_reconstruction(latent + width, hidden, source)
    else:
        features = connected_layers(math.prod(side), hidden, width)
        layers = connected_layers(latent + width, hidden, hidden, math.prod(source))
        reconstruction = nn.Sequential(*layers, nn.Tanh())
    features = nn.Sequential(*features, nn.ReLU())
    return DecoderNetwork(features, reconstruction, width, latent, card.size("estimator_hidden"))


def load_decoder(card: ModelCard) -> DecoderNetwork | MixtureNetwork:
    """A decoder's network with its weights; see :func:`networks.weights.load_network`."""
    return load_network(card, "decoder", decoder_from_card, _require_decoder_sizes)


def _require_decoder_sizes(card: ModelCard, weights: dict[str, Tensor]) -> None:
    if has_mixture(card):
        mixture.require_sizes(card, weights)
        return
    if card.is_convolutional:
        return
    channels = math.prod(card.image_shape("side")[2:])
    hidden, side_size = weights["features.0.weight"].shape
    card.require_size(hidden, "decoder_hidden")
    card.require_size(side_size // channels, "side_height", "side_width")
    card.require_size(len(weights["features.2.weight"]), "side_features")
    card.require_size(len(weights["reconstruction.4.weight"]) // channels, "source_height", "source_width")
    card.require_size(weights["estimator_latent.weight"].shape[1] // 2, "latent_dimension")
    card.require_size(len(weights["estimator_latent.weight"]), "estimator_hidden")


def has_mixture(card: ModelCard) -> bool:
    """Whether a decoder's weights come from a mixture, which is trained for bins that are regions of the pool.

    Raises:
        CodecError: ``architecture.weights_head`` is unknown.
    """
    head = card.architecture.get("weights_head", "estimator")
    if head not in ("estimator", "mixture"):
        raise CodecError("card architecture.weights_head", repr(head), "'estimator', or absent, or 'mixture'")
    return bool(head == "mixture")
