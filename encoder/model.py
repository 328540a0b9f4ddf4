"""What an encoder knows about its source: the target distribution p_{W|A}, nothing of the side information."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from shared_rng import Codebook, CodecError, ModelCard, Session

if TYPE_CHECKING:
    from encoder.similar import SimilarImages

Floats = npt.NDArray[np.float64]


class MessageSearch(Protocol):
    """What finds the message that serves the decoders of one session best, by the expected distortion of the best."""

    def labels(self, sources: Floats, first_message: int) -> npt.NDArray[np.uint32]:
        """The best message of each source [B, *source_shape], numbered from ``first_message`` on: uint32 [B]."""
        ...


class EncoderModel(Protocol):
    """The encoder's half of a model."""

    @property
    def latent_dimension(self) -> int:
        """D."""
        ...

    @property
    def pool_variance(self) -> float:
        """Variance of each coordinate of p_W; infinite where the pool is a lattice, 1 where it is discrete."""
        ...

    @property
    def source_shape(self) -> tuple[int, ...]:
        """Shape of one source sample, without the batch axis."""
        ...

    @property
    def side(self) -> str:
        """Where sources are halves of images, the half that they are not: left, right, top or bottom; else empty."""
        ...

    @property
    def region_bins(self) -> bool:
        """Whether it is made for sessions whose binning is ``region``."""
        ...

    @property
    def digest(self) -> bytes:
        """The model card's digest."""
        ...

    def for_session(self, session: Session) -> EncoderModel:
        """The model as this session uses it.

        Raises:
            SessionMismatch: a session field is not what the model needs.
        """
        ...

    def search(self, session: Session, nodes: int) -> MessageSearch:
        """A searching encoder for this session, with ``nodes`` values of side information, or similar images.

        Raises:
            CodecError: the session cannot be searched.
        """
        ...

    def log_weights(self, sources: Floats, samples: Floats) -> Floats:
        """log p_{W|A}(u|a) - log p_W(u) up to a constant a message (λ_q of section 3), in nats.

        Args:
            sources: [B, *source_shape].
            samples: [B, N, D], the pools.

        Returns:
            [B, N].
        """
        ...


@runtime_checkable
class GaussianTarget(Protocol):
    """An encoder's half whose p_{W|A} is Gaussian, so that a race can stop early."""

    def target(self, sources: Floats) -> tuple[Floats, Floats]:
        """Mean and variance of p_{W|A}, each [B, D], of sources [B, *source_shape]."""
        ...


@runtime_checkable
class AlphabetModel(Protocol):
    """An encoder's half whose pool is a learned alphabet, made for one kind of session."""

    @property
    def codebook(self) -> Codebook:
        """What a session must be."""
        ...


def target_log_weights(mean: Floats, variance: Floats, samples: Floats, pool_variance: float) -> Floats:
    """log p_{W|A}(u|a) - log p_W(u) up to a constant a message (λ_q of section 3), for Gaussian or flat p_W.

    Args:
        mean: [B, D] of p_{W|A}.
        variance: [B, D] of p_{W|A}.
        samples: [B, N, D], the pool.
        pool_variance: variance of each coordinate of p_W, infinite where the pool is a lattice.

    Returns:
        [B, N] in nats.
    """
    # A source far out of range overflows to weights of zero, which the selection reports.
    with np.errstate(over="ignore"):
        distance = np.square(samples - mean[:, None, :]) / variance[:, None, :]
        distance -= np.square(samples) / pool_variance
        return np.asarray(-0.5 * distance.sum(axis=2), dtype=np.float64)


def load_encoder_model(card: ModelCard, similar: SimilarImages | None = None) -> EncoderModel:
    """The encoder's half of the model on a card; with ``similar`` images an image model can search.

    Raises:
        CodecError: the card's source is unknown, or its architecture or weights do not fit.
    """
    if card.source == "gaussian":
        from encoder.gaussian import GaussianEncoderModel

        return GaussianEncoderModel.from_card(card)
    if card.source == "vae":
        from encoder.vae import VaeEncoderModel  # imports torch

        return VaeEncoderModel(card, similar)
    if card.source == "codebook":
        from encoder.codebook import CodebookEncoderModel  # imports torch

        return CodebookEncoderModel(card, similar)
    raise CodecError("card source", repr(card.source), "gaussian, vae or codebook")
