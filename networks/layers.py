"""Stacks of layers: fully connected ones, and those of the paper's architecture (arXiv 2506.05632, appendix D.4)."""

from __future__ import annotations

from itertools import pairwise

from torch import Tensor, nn

from shared_rng import CodecError

CHANNELS = (64, 128, 256)


def connected_layers(*sizes: int) -> nn.Sequential:
    """[..., sizes[0]] → [..., sizes[-1]]: fully connected layers with ReLU between them."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


class _AsImages(nn.Module):
    """Flat images [B, H·W·C], colours last, → [B, C, H, W]."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self._shape = (*shape, 1) if len(shape) == 2 else shape

    def forward(self, flat: Tensor) -> Tensor:
        """The images."""
        images: Tensor = flat.unflatten(1, self._shape)
        return images.permute(0, 3, 1, 2)


class _AsFlat(nn.Module):
    """Images [B, C, H', W'], at least as large as ``shape``, → flat [B, H·W·C], colours last."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__()
        self._height, self._width = shape[:2]

    def forward(self, images: Tensor) -> Tensor:
        """The upper left part, flat."""
        return images[:, :, : self._height, : self._width].permute(0, 2, 3, 1).flatten(1)


def convolutional_layers(shape: tuple[int, ...], outputs: int) -> nn.Sequential:
    """Flat images of ``shape`` → [B, outputs]: three convolutions, two of which halve the size, and one layer.

    Raises:
        CodecError: the images are too small.
    """
    first, second, third = CHANNELS
    if min(shape[:2]) < 4:
        raise CodecError("image of a convolutional network", f"{shape[0]}×{shape[1]} pixels", "at least 4×4")
    return nn.Sequential(
        _AsImages(shape),
        nn.Conv2d(1 if len(shape) == 2 else shape[2], first, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.Conv2d(first, second, kernel_size=4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(second, third, kernel_size=4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(third * (shape[0] // 4) * (shape[1] // 4), outputs),
    )


def convolutional_reconstruction(inputs: int, hidden: int, shape: tuple[int, ...]) -> nn.Sequential:
    """Sample and features [B, inputs] → flat images of ``shape`` in [-1, 1]: two layers, three convolutions."""
    first, second, third = CHANNELS
    height, width = -(-shape[0] // 4), -(-shape[1] // 4)
    return nn.Sequential(
        *connected_layers(inputs, hidden, third * height * width),
        nn.ReLU(),
        nn.Unflatten(1, (third, height, width)),
        nn.ConvTranspose2d(third, second, kernel_size=4, stride=2, padding=1),
        nn.ReLU(),
        nn.ConvTranspose2d(second, first, kernel_size=4, stride=2, padding=1),
        nn.ReLU(),
        nn.Conv2d(first, 1 if len(shape) == 2 else shape[2], kernel_size=3, padding=1),
        _AsFlat(shape),
        nn.Tanh(),
    )
