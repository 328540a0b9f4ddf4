"""Images on a learned alphabet, encoder's half: p_{W|A} is a softmax over N words from a network.

For the coupling ``list`` the network gives one log weight a message: all words of a bin share it.
"""

from __future__ import annotations

import math
from typing import NoReturn

import numpy as np
import torch
from torch import Tensor, nn

from encoder.model import Floats
from encoder.weights import load_network
from shared_rng import Codebook, CodecError, ModelCard, Session


class EncoderNetwork(nn.Module):
    """Source [B, A] in [-1, 1] → unnormalised log weights of words or messages, [B, outputs]."""

    def __init__(self, source_size: int, hidden: int, outputs: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(source_size, hidden),
            nn.ReLU(),
            nn.Linear(hidden, hidden),
            nn.ReLU(),
            nn.Linear(hidden, outputs),
        )

    def forward(self, source: Tensor) -> Tensor:
        """Log weights."""
        weights: Tensor = self.layers(source)
        return weights


def network_from_card(card: ModelCard) -> EncoderNetwork:
    """An untrained network of the card's architecture."""
    codebook = Codebook.from_card(card)
    outputs = codebook.bins if codebook.coupling == "list" else codebook.words
    return EncoderNetwork(math.prod(card.image_shape("source")), card.size("encoder_hidden"), outputs)


class CodebookEncoderModel:
    """Sources are images [B, height, width] or [B, height, width, 3], pixels in [-1, 1]."""

    latent_dimension = 1
    pool_variance = 1.0

    def __init__(self, card: ModelCard) -> None:
        self.codebook = Codebook.from_card(card)
        self.digest = card.digest
        self.source_shape = card.image_shape("source")
        self.side = card.side

        def require_sizes(weights: dict[str, Tensor]) -> None:
            hidden, size = weights["layers.0.weight"].shape
            card.require_size(hidden, "encoder_hidden")
            card.require_size(size // math.prod(self.source_shape[2:]), "source_height", "source_width")
            card.require_size(len(weights["layers.4.weight"]), "bins" if self.codebook.coupling == "list" else "words")

        self._network = load_network(card, network_from_card, require_sizes)

    def for_session(self, session: Session) -> CodebookEncoderModel:
        """See :meth:`encoder.model.EncoderModel.for_session`."""
        self.codebook.require(session)
        return self

    def search(self, session: Session, nodes: int) -> NoReturn:
        """Refused: the encoder does not know the decoders' networks."""
        raise CodecError("encoder search", f"{nodes} nodes with a codebook", "a Gaussian model with a lattice pool")

    @torch.inference_mode()
    def log_weights(self, sources: Floats, samples: Floats) -> Floats:
        """See :meth:`encoder.model.EncoderModel.log_weights`; samples are words."""
        weights = self._network(torch.tensor(sources, dtype=torch.float64).flatten(1)).numpy()
        return np.asarray(np.take_along_axis(weights, samples[:, :, 0].astype(np.int64) % weights.shape[1], axis=1))
