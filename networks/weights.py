"""Weights of one end's half of an image model: read without pickle, checked before any layer takes memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from shared_rng import CodecError, ModelCard

End = Literal["encoder", "decoder"]

_Network = TypeVar("_Network", bound=nn.Module)


def load_network(
    card: ModelCard,
    end: End,
    build: Callable[[ModelCard], _Network],
    require_sizes: Callable[[ModelCard, dict[str, Tensor]], None],
) -> _Network:
    """The network of one end with its weights, in double precision, ready to compute.

    Double precision makes a pick independent of batch size, thread count and instruction set in practice.

    Args:
        card: the card.
        end: whose network; a file's names begin with it.
        build: makes the untrained network.
        require_sizes: compares the card with the weights, by layer; called where all layers are there with as many
            axes as they should have.

    Raises:
        CodecError: there are no weights, the file is damaged, or card and weights do not fit.
    """
    if card.weights is None:
        raise CodecError("card weights", "nothing", f"the weights of a {card.source}")
    try:
        tensors = load_file(card.weights)
    except SafetensorError as error:
        raise CodecError(
            "card weights.file", f"{card.weights.name}: {error}", "a complete file of safetensors"
        ) from error
    try:
        with torch.device("meta"):
            network = build(card).double()
    except RuntimeError as error:
        raise CodecError("card architecture", str(error).splitlines()[0], "sizes that a network can have") from error
    own = half_of(tensors, end)
    for name, tensor in own.items():
        if not tensor.is_floating_point():
            raise CodecError(f"card weights, {end}.{name}", tensor.dtype, "floating-point numbers")
    layers = network.state_dict()
    if set(own) == set(layers) and all(own[name].ndim == layer.ndim for name, layer in layers.items()):
        require_sizes(card, own)
    try:
        network.load_state_dict({name: tensor.double() for name, tensor in own.items()}, assign=True)
    except RuntimeError as error:
        raise CodecError("card weights", str(error), f"the {end}'s layers") from error
    return network.eval()


def half_of(tensors: dict[str, Tensor], end: End) -> dict[str, Tensor]:
    """The weights of one end, by the names of its network, of those of both."""
    prefix = f"{end}."
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
