"""What the encoder's halves of image models share."""

from __future__ import annotations

from encoder.image_search import ImageSearch, SimulatedDecoders
from encoder.model import Floats
from encoder.similar import SimilarImages
from shared_rng import ModelCard, Session


class ImageEncoderModel:
    """Sources are images [B, height, width] or [B, height, width, 3], pixels in [-1, 1]; p_W has variance 1."""

    pool_variance = 1.0
    region_bins = False

    def __init__(self, card: ModelCard, similar: SimilarImages | None) -> None:
        """Take what a card says of sources; with ``similar`` images the encoder can search."""
        self.source_shape = card.image_shape("source")
        self.side = card.side
        self.digest = card.digest
        self._decoders = None if similar is None else SimulatedDecoders.of(card, similar)

    def search(self, session: Session, nodes: int) -> ImageSearch:
        """See :meth:`encoder.model.EncoderModel.search`; nodes are similar images."""
        return ImageSearch(session, self, self._decoders, nodes)

    def log_weights(self, sources: Floats, samples: Floats) -> Floats:
        """See :meth:`encoder.model.EncoderModel.log_weights`."""
        raise NotImplementedError
