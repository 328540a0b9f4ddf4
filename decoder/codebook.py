"""Images on a learned alphabet, decoder's half: p_{W|T} is a classifier over N words, Â = g(word, t).

Words enter the network multiplicatively: with u = A(f(t)) the hidden layer is relu(u · (1 + scale[w]) + shift[w]),
so that a word can turn features of the side information on and off.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from decoder.model import Floats, Indices
from decoder.weights import load_network
from shared_rng import Codebook, CodecError, ModelCard, Session

_INITIAL_SPREAD = 0.1


class DecoderNetwork(nn.Module):
    """All that a decoder computes from side information [..., T] in [-1, 1] and words [...]."""

    def __init__(
        self, side_size: int, source_size: int, words: int, hidden: int, width: int, *, classifies: bool
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(side_size, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.fusion = nn.Linear(hidden, width)
        self.scale = nn.Parameter(torch.empty(words, width))
        self.shift = nn.Parameter(torch.empty(words, width))
        self.mixing = nn.Linear(width, width)
        self.output = nn.Linear(width, source_size)
        self.classifier = nn.Linear(hidden, words) if classifies else None

    def reconstruct(self, fused: Tensor, words: Tensor) -> Tensor:
        """Sources [..., A] in [-1, 1] from ``fusion`` of the features, [..., F], and words [...] of the same axes."""
        # In place where no gradient needs the value before: the training's time goes into these lines.
        hidden = torch.addcmul(fused + self.shift[words], fused, self.scale[words]).relu_()
        mixed: Tensor = self.mixing(hidden)
        output: Tensor = self.output(mixed.add_(hidden).relu_())
        return output.tanh_()

    def log_weights(self, features: Tensor, words: Tensor) -> Tensor:
        """log p_{W|T} up to a constant a message, of one word [C] a row of features [C, H]: [C]."""
        if self.classifier is None:
            raise CodecError("codebook", "log weights of a list", "a codebook for gls")
        return (features * self.classifier.weight[words]).sum(dim=-1) + self.classifier.bias[words]


def network_from_card(card: ModelCard) -> DecoderNetwork:
    """An untrained network of the card's architecture."""
    network = _layers(card)
    for parameter in (network.scale, network.shift):
        nn.init.normal_(parameter, std=_INITIAL_SPREAD)
    return network


def _layers(card: ModelCard) -> DecoderNetwork:
    codebook = Codebook.from_card(card)
    return DecoderNetwork(
        math.prod(card.image_shape("side")),
        math.prod(card.image_shape("source")),
        codebook.words,
        card.size("decoder_hidden"),
        card.size("decoder_width"),
        classifies=codebook.coupling == "gls",
    )


class CodebookDecoderModel:
    """Side information and reconstructions: images [B, height, width] or [B, height, width, 3] in [-1, 1]."""

    latent_dimension = 1
    pool_variance = 1.0

    def __init__(self, card: ModelCard) -> None:
        self.codebook = Codebook.from_card(card)
        self.digest = card.digest
        self.side_shape = card.image_shape("side")
        self._source_shape = card.image_shape("source")

        def require_sizes(weights: dict[str, Tensor]) -> None:
            channels = math.prod(self.side_shape[2:])
            hidden, side_size = weights["features.0.weight"].shape
            card.require_size(hidden, "decoder_hidden")
            card.require_size(side_size // channels, "side_height", "side_width")
            card.require_size(len(weights["output.weight"]) // channels, "source_height", "source_width")
            card.require_size(len(weights["fusion.weight"]), "decoder_width")
            card.require_size(len(weights["scale"]), "words")

        self._network = load_network(card, _layers, require_sizes)

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
