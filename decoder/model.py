"""What a decoder knows: p_{W|T} given its own side information, and how to reconstruct the source."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from shared_rng import CodecError, ModelCard

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class DecoderModel(Protocol):
    """The decoder's half of a model.

    Attributes:
        latent_dimension: D.
        pool_variance: variance of each coordinate of p_W.
        side_shape: shape of one sample of side information, without the batch axis.
        digest: the model card's digest.
    """

    latent_dimension: int
    pool_variance: float
    side_shape: tuple[int, ...]
    digest: bytes

    def log_weights(self, side: Floats, samples: Floats, rows: Indices) -> Floats:
        """log p_{W|T}(u|t) - log p_W(u) up to a constant a message (λ_p of section 3), in nats.

        Args:
            side: [B, *side_shape].
            samples: [C, D], the candidates of all messages' bins.
            rows: [C], the message, 0 … B - 1, of each candidate.

        Returns:
            [C].
        """
        ...

    def reconstruct(self, latents: Floats, side: Floats) -> Floats:
        """Â = g(W, T): [B, *source_shape] from latents [B, D] and side [B, *side_shape]."""
        ...


def load_decoder_model(card: ModelCard) -> DecoderModel:
    """The decoder's half of the model on a card.

    Raises:
        CodecError: the card's source is unknown, or its architecture or weights do not fit.
    """
    if card.source == "gaussian":
        from decoder.gaussian import GaussianDecoderModel

        return GaussianDecoderModel(card)
    if card.source == "vae":
        from decoder.vae import VaeDecoderModel  # imports torch

        return VaeDecoderModel(card)
    raise CodecError("card source", repr(card.source), "gaussian or vae")
