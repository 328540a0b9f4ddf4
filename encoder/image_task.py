"""What is coded of an image: one half is the source, crops of the other half help.

arXiv 2506.05632, appendix D.4: MNIST's right half from 14×14 crops of the left half, CIFAR-10's from 16×16
crops, one crop a decoder. Pixels are in [-1, 1].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import numpy.typing as npt

from encoder.files import to_unit_range, without
from shared_rng import CodecError, ModelCard, philox

Images = npt.NDArray[np.uint8]
Floats = npt.NDArray[np.float32]
Offsets = npt.NDArray[np.int64]
Side = Literal["left", "right", "top", "bottom"]

_CROP_SEED = 0x63726F7073
_COLUMN_BLOCK = 1
"""Words of message 0 place a crop's row, those of message 1 its column; the domain is the decoder's number."""


@dataclass(frozen=True)
class ImageTask:
    """Images [B, height, width] (grey) or [B, height, width, 3] (colour), 8 bits, and how they are split.

    Attributes:
        name: ``mnist``, ``cifar10`` or a name of the user's.
        height: of the whole image.
        width: of the whole image.
        channels: 1 or 3.
        side: the half of which decoders see crops; the encoder's source is the other half.
        crop: height and width of a crop.

    Raises:
        CodecError: a value is out of range, or the crop is larger than the half.
    """

    name: str
    height: int
    width: int
    channels: int = 1
    side: Side = "left"
    crop: int = 14

    def __post_init__(self) -> None:
        if self.channels not in (1, 3):
            raise CodecError("channels", self.channels, "1 (grey) or 3 (colour)")
        if self.side not in get_args(Side):
            raise CodecError("side", repr(self.side), "left, right, top or bottom")
        if self.height < 2 or self.width < 2:
            raise CodecError("image size", f"{self.height}×{self.width}", "at least 2×2")
        height, width = self._half
        if not 1 <= self.crop <= min(height, width):
            raise CodecError("crop", self.crop, f"1 … {min(height, width)}, inside the {height}×{width} half")

    @classmethod
    def of_card(cls, card: ModelCard, height: int, width: int) -> ImageTask:
        """How images of a size are split for a card's model.

        Raises:
            CodecError: halves of such images are no sources of the model, or its crops are not square.
        """
        side_shape = card.image_shape("side")
        if side_shape[0] != side_shape[1]:
            raise CodecError("crops of the model", f"{side_shape[0]}×{side_shape[1]} pixels", "square ones")
        channels = 3 if len(side_shape) == 3 else 1
        task = cls("images", height, width, channels, cast("Side", card.side), side_shape[0])
        if task.source_shape != (source := card.image_shape("source")):
            raise CodecError("image size", f"{height}×{width}", f"twice the model's {source[0]}×{source[1]} sources")
        return task

    @property
    def _half(self) -> tuple[int, int]:
        """Height and width of the half that crops come from; of an odd size the source has one row more."""
        if self.side in ("left", "right"):
            return self.height, self.width // 2
        return self.height // 2, self.width

    @property
    def _colours(self) -> tuple[int, ...]:
        return () if self.channels == 1 else (self.channels,)

    @property
    def source_shape(self) -> tuple[int, ...]:
        """Of one source: [height, width] or [height, width, 3]."""
        height, width = self._half
        if self.side in ("left", "right"):
            return self.height, self.width - width, *self._colours
        return self.height - height, self.width, *self._colours

    @property
    def side_shape(self) -> tuple[int, ...]:
        """Of one crop: [crop, crop] or [crop, crop, 3]."""
        return self.crop, self.crop, *self._colours

    def architecture(self) -> dict[str, Any]:
        """What a card's architecture says of images; ``channels`` only where it is not 1, ``side`` if not left."""
        names = ("source_height", "source_width", "side_height", "side_width")
        sizes = (*self.source_shape[:2], *self.side_shape[:2])
        found: dict[str, Any] = dict(zip(names, sizes, strict=True))
        if self.channels != 1:
            found["channels"] = self.channels
        if self.side != "left":
            found["side"] = self.side
        return found

    def sources(self, images: Images) -> Floats:
        """The encoder's halves in [-1, 1]: [B, *source_shape]."""
        return to_unit_range(without(self.side, images, *self.source_shape[:2]))

    def crops(self, images: Images, rows: Offsets, columns: Offsets) -> Images:
        """The crop of each image whose upper left corner is at ``rows`` [B], ``columns`` [B] of the half: 8 bits."""
        height, width = self._half
        # The half at the lower or right end begins where the source ends.
        top = self.height - height if self.side == "bottom" else 0
        left = self.width - width if self.side == "right" else 0
        reach = np.arange(self.crop)
        places = np.arange(len(images))[:, None, None]
        y, x = top + rows[:, None] + reach, left + columns[:, None] + reach
        return np.asarray(images[places, y[:, :, None], x[:, None, :]])

    def draw_offsets(self, generator: np.random.Generator, shape: tuple[int, ...]) -> tuple[Offsets, Offsets]:
        """Uniform rows and columns of crops for training, each of ``shape``."""
        height, width = self._half
        rows = generator.integers(0, height - self.crop + 1, shape)
        columns = generator.integers(0, width - self.crop + 1, shape) if width > self.crop else np.zeros_like(rows)
        return rows, columns

    def offsets(self, count: int, decoder: int) -> tuple[Offsets, Offsets]:
        """Fixed rows and columns of decoder ``decoder``'s crops of the first ``count`` images: each [count]."""
        height, width = self._half
        found = []
        for block, choices in ((0, height - self.crop + 1), (_COLUMN_BLOCK, width - self.crop + 1)):
            words = philox.words(_CROP_SEED, decoder, block, 0, count)
            found.append((words % np.uint64(choices)).astype(np.int64))
        return found[0], found[1]

    def side_information(self, images: Images, decoder: int) -> Floats:
        """Decoder ``decoder``'s fixed crop of each image, in [-1, 1]: [B, *side_shape]."""
        return to_unit_range(self.crops(images, *self.offsets(len(images), decoder)))


def whole_sizes(card: ModelCard) -> tuple[tuple[int, int], ...]:
    """Height and width of the images that have a card's sources as halves: of an even size, and of an odd one.

    The other half of an odd one is a row less, so such images are left out where a crop needs all of them.
    """
    height, width = card.image_shape("source")[:2]
    crop = max(card.image_shape("side")[:2])
    if card.side in ("left", "right"):
        return tuple((height, width + other) for other in _other_halves(width, crop))
    return tuple((height + other, width) for other in _other_halves(height, crop))


def _other_halves(length: int, crop: int) -> tuple[int, ...]:
    return (length, length - 1) if crop < length else (length,)
