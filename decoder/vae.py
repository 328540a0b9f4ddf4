"""Images, decoder's half (arXiv 2506.05632, appendix D.4): features of t, weight estimator, reconstruction.

A card's ``network`` is ``convolutional`` or absent, which stands for fully connected layers. Its ``weights_head`` is
``mixture`` (``decoder/mixture.py``) or absent, which stands for the estimator.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from decoder import mixture
from decoder.convolutional import convolutional_features, convolutional_reconstruction
from decoder.mixture import MixtureNetwork
from decoder.model import Floats, Indices
from decoder.weights import load_network
from shared_rng import CodecError, ModelCard, Session


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


def network_from_card(card: ModelCard) -> DecoderNetwork | MixtureNetwork:
    """An untrained network of the card's architecture.

    Raises:
        CodecError: a size is missing or out of range, or ``architecture.weights_head`` is unknown.
    """
    if _has_mixture(card):
        return mixture.network_from_card(card)
    source, side = card.image_shape("source"), card.image_shape("side")
    hidden, width, latent = card.size("decoder_hidden"), card.size("side_features"), card.size("latent_dimension")
    if card.is_convolutional:
        features = convolutional_features(side, width)
        reconstruction = convolutional_reconstruction(latent + width, hidden, source)
    else:
        features = nn.Sequential(nn.Linear(math.prod(side), hidden), nn.ReLU(), nn.Linear(hidden, width), nn.ReLU())
        reconstruction = nn.Sequential(
            nn.Linear(latent + width, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, math.prod(source)),
            nn.Tanh(),
        )
    return DecoderNetwork(features, reconstruction, width, latent, card.size("estimator_hidden"))


def _has_mixture(card: ModelCard) -> bool:
    head = card.architecture.get("weights_head", "estimator")
    if head not in ("estimator", "mixture"):
        raise CodecError("card architecture.weights_head", repr(head), "'estimator', or absent, or 'mixture'")
    return bool(head == "mixture")


def _require_sizes(card: ModelCard, weights: dict[str, Tensor]) -> None:
    """Check the card against the weights of a fully connected network with an estimator."""
    channels = math.prod(card.image_shape("side")[2:])
    hidden, side_size = weights["features.0.weight"].shape
    card.require_size(hidden, "decoder_hidden")
    card.require_size(side_size // channels, "side_height", "side_width")
    card.require_size(len(weights["features.2.weight"]), "side_features")
    card.require_size(len(weights["reconstruction.4.weight"]) // channels, "source_height", "source_width")
    card.require_size(weights["estimator_latent.weight"].shape[1] // 2, "latent_dimension")
    card.require_size(len(weights["estimator_latent.weight"]), "estimator_hidden")


class VaeDecoderModel:
    """Side information and reconstructions: images [B, height, width] or [B, height, width, 3] in [-1, 1]."""

    pool_variance = 1.0

    def __init__(self, card: ModelCard) -> None:
        self.digest = card.digest
        self.latent_dimension = card.size("latent_dimension")
        self.side_shape = card.image_shape("side")
        self._source_shape = card.image_shape("source")

        def require_sizes(weights: dict[str, Tensor]) -> None:
            if _has_mixture(card):
                mixture.require_sizes(card, weights)
            elif not card.is_convolutional:
                _require_sizes(card, weights)

        self._network = load_network(card, network_from_card, require_sizes)

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
