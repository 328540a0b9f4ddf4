"""The convolutional encoder of the paper's architecture (arXiv 2506.05632, appendix D.4)."""

from __future__ import annotations

from torch import Tensor, nn

from shared_rng import CodecError

CHANNELS = (64, 128, 256)


class _AsImages(nn.Module):
    """Flat images [B, H·W·C], colours last, → [B, C, H, W]."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self._shape = (*shape, 1) if len(shape) == 2 else shape

    def forward(self, flat: Tensor) -> Tensor:
        """The images."""
        images: Tensor = flat.unflatten(1, self._shape)
        return images.permute(0, 3, 1, 2)


def convolutional_layers(shape: tuple[int, ...], hidden: int, outputs: int) -> nn.Sequential:
    """Flat images of ``shape`` → [B, outputs]: three convolutions, two of which halve the size, and two layers.

    Raises:
        CodecError: the images are too small.
    """
    first, second, third = CHANNELS
    convolutions = nn.Sequential(
        _AsImages(shape),
        nn.Conv2d(1 if len(shape) == 2 else shape[2], first, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(first, second, kernel_size=4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(second, third, kernel_size=4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
    )
    if min(shape[:2]) < 4:
        raise CodecError("image of a convolutional network", f"{shape[0]}×{shape[1]} pixels", "at least 4×4")
    width = third * (shape[0] // 4) * (shape[1] // 4)
    return nn.Sequential(*convolutions, nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
