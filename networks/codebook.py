"""Networks of a learned alphabet, source ``codebook``.

The encoder's gives log weights of words, or of messages for the coupling ``list``: all words of a bin share one.
At a decoder p_{W|T} is a classifier over N words and Â = g(word, t). Words enter its network multiplicatively: with
u = A(f(t)) the hidden layer is relu(u · (1 + scale[w]) + shift[w]), so that a word can turn features of the side
information on and off.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from networks.layers import connected_layers
from networks.weights import load_network
from shared_rng import Codebook, CodecError, ModelCard

_INITIAL_SPREAD = 0.1


class EncoderNetwork(nn.Module):
    """Source [B, A] in [-1, 1] → unnormalised log weights of words or messages, [B, outputs]."""

    def __init__(self, source_size: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.layers = connected_layers(source_size, hidden, hidden, outputs)

    def forward(self, source: Tensor) -> Tensor:
        """Log weights."""
        weights: Tensor = self.layers(source)
        return weights


class DecoderNetwork(nn.Module):
    """All that a decoder computes from side information [..., T] in [-1, 1] and words [...]."""

    def __init__(
        self, side_size: int, source_size: int, words: int, hidden: int, width: int, *, classifies: bool
    ) -> None:
        super().__init__()
        self.features = nn.Sequential(*connected_layers(side_size, hidden, hidden), nn.ReLU())
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
        classifier = self._classifier()
        return (features * classifier.weight[words]).sum(dim=-1) + classifier.bias[words]

    def weigh(self, candidates: Tensor, features: Tensor) -> Tensor:
        """See :meth:`networks.decoders.DecoderNetwork.weigh`; candidates are words."""
        table: Tensor = self._classifier()(features)
        words = candidates.squeeze(-1).long().unsqueeze(-2)
        return table.gather(-1, words.expand(*table.shape[:-1], -1))

    def answers(self, candidates: Tensor, features: Tensor) -> Tensor:
        """See :meth:`networks.decoders.DecoderNetwork.answers`; candidates are words."""
        return self.reconstruct(self.fusion(features).unsqueeze(-2), candidates.squeeze(-1).long())

    def _classifier(self) -> nn.Linear:
        if self.classifier is None:
            raise CodecError("codebook", "log weights of a list", "a codebook for gls")
        return self.classifier


def encoder_from_card(card: ModelCard) -> EncoderNetwork:
    """An untrained network of the card's architecture."""
    outputs = card.size(_outputs(card))
    return EncoderNetwork(math.prod(card.image_shape("source")), card.size("encoder_hidden"), outputs)


def load_encoder(card: ModelCard) -> EncoderNetwork:
    """The encoder's network with its weights; see :func:`networks.weights.load_network`."""
    return load_network(card, "encoder", encoder_from_card, _require_encoder_sizes)


def _outputs(card: ModelCard) -> str:
    return "bins" if Codebook.from_card(card).coupling == "list" else "words"


def _require_encoder_sizes(card: ModelCard, weights: dict[str, Tensor]) -> None:
    hidden, size = weights["layers.0.weight"].shape
    card.require_size(hidden, "encoder_hidden")
    card.require_size(size // math.prod(card.image_shape("source")[2:]), "source_height", "source_width")
    card.require_size(len(weights["layers.4.weight"]), _outputs(card))


def decoder_from_card(card: ModelCard) -> DecoderNetwork:
    """An untrained network of the card's architecture."""
    network = _decoder_layers(card)
    for parameter in (network.scale, network.shift):
        nn.init.normal_(parameter, std=_INITIAL_SPREAD)
    return network


def _decoder_layers(card: ModelCard) -> DecoderNetwork:
    """The network without first values of words; drawing them without memory would bring in two seconds of imports."""
    codebook = Codebook.from_card(card)
    return DecoderNetwork(
        math.prod(card.image_shape("side")),
        math.prod(card.image_shape("source")),
        codebook.words,
        card.size("decoder_hidden"),
        card.size("decoder_width"),
        classifies=codebook.coupling == "gls",
    )


def load_decoder(card: ModelCard) -> DecoderNetwork:
    """A decoder's network with its weights; see :func:`networks.weights.load_network`."""
    return load_network(card, "decoder", _decoder_layers, _require_decoder_sizes)


def _require_decoder_sizes(card: ModelCard, weights: dict[str, Tensor]) -> None:
    channels = math.prod(card.image_shape("side")[2:])
    hidden, side_size = weights["features.0.weight"].shape
    card.require_size(hidden, "decoder_hidden")
    card.require_size(side_size // channels, "side_height", "side_width")
    card.require_size(len(weights["output.weight"]) // channels, "source_height", "source_width")
    card.require_size(len(weights["fusion.weight"]), "decoder_width")
    card.require_size(len(weights["scale"]), "words")
