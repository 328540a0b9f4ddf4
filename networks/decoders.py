"""What networks of decoders have in common, whatever the source: enough to simulate many decoders at once."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor, nn

from networks import codebook, vae
from shared_rng import CodecError, ModelCard


class DecoderNetwork(Protocol):
    """A decoder's network; candidates are latents, or words as numbers, [..., D]."""

    @property
    def features(self) -> nn.Module:
        """Of flat side information: [B, T] in [-1, 1] → [B, F]."""
        ...

    def weigh(self, candidates: Tensor, features: Tensor) -> Tensor:
        """log p_{W|T} - log p_W up to a constant a row, of candidates [B, S, D] for features [B, R, F]: [B, R, S]."""
        ...

    def answers(self, candidates: Tensor, features: Tensor) -> Tensor:
        """Â = g(w, t): [B, R, C, A] of C candidates [B, R, C, D] for each of the features [B, R, F]."""
        ...


def load_decoder(card: ModelCard) -> DecoderNetwork:
    """The network of a decoder of any image model; see :func:`networks.weights.load_network`.

    Raises:
        CodecError: the card's source is no image model, or its architecture or weights do not fit.
    """
    if card.source == "vae":
        return vae.load_decoder(card)
    if card.source == "codebook":
        return codebook.load_decoder(card)
    raise CodecError("card source", repr(card.source), "vae or codebook")
