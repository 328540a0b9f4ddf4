"""What a decoder knows: p_{W|T} given its own side information, and how to reconstruct the source."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from shared_rng import CodecError, ModelCard, Session

Floats = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


class DecoderModel(Protocol):
    """The decoder's half of a model."""

    @property
    def latent_dimension(self) -> int:
        """D."""
        ...

    @property
    def pool_variance(self) -> float:
        """Variance of each coordinate of p_W; infinite where the pool is a lattice, 1 where it is discrete."""
        ...

    @property
    def side_shape(self) -> tuple[int, ...]:
        """Shape of one sample of side information, without the batch axis."""
        ...

    @property
    def digest(self) -> bytes:
        """The model card's digest."""
        ...

    def for_session(self, session: Session, index: int) -> DecoderModel:
        """The model as decoder ``index`` of this session uses it.

        Raises:
            SessionMismatch: a session field is not what the model needs.
        """
        ...

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


@runtime_checkable
class GaussianProposal(Protocol):
    """A decoder's half whose p_{W|T} is Gaussian in closed form, so that a race can stop early."""

    def proposal(self, side: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of p_{W|T}, each [B, D], of side information [B, *side_shape]."""
        ...


def load_decoder_model(card: ModelCard) -> DecoderModel:
    """The decoder's half of the model on a card.

    Raises:
        CodecError: the card's source is unknown, or its architecture or weights do not fit.
    """
    if card.source == "gaussian":
        from decoder.gaussian import GaussianDecoderModel

        return GaussianDecoderModel.from_card(card)
    if card.source == "vae":
        from decoder.vae import VaeDecoderModel  # imports torch

        return VaeDecoderModel(card)
    if card.source == "codebook":
        from decoder.codebook import CodebookDecoderModel  # imports torch

        return CodebookDecoderModel(card)
    raise CodecError("card source", repr(card.source), "gaussian, vae or codebook")
