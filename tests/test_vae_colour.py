"""VAEs of colour images and of the convolutional architecture: shapes, both halves, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decoder import Decoder, load_decoder_model
from encoder import Encoder, load_encoder_model
from encoder.image_task import ImageTask
from experiments.codebook_recipe import CodebookOptions, ListRecipe
from experiments.paper_recipe import PaperOptions, PaperRecipe
from experiments.trainer import TrainingOptions
from experiments.training import TrainingData, held_out_tensors, train
from shared_rng import CodecError, ModelCard, load_card
from tests.models import make_session, refused, uniforms

TASK = ImageTask("own", height=10, width=9, channels=3, side="top", crop=4)
PICTURES = np.floor(256 * uniforms(40 * 270)).astype(np.uint8).reshape(40, 10, 9, 3)


def trained(folder: Path, task: ImageTask, architecture: str) -> ModelCard:
    """One epoch on random pictures."""
    pictures = PICTURES if task.channels == 3 else PICTURES[..., 0]
    data = TrainingData(task, pictures, "--images DIR")
    options = TrainingOptions(epochs=1, batch=12, seed=1)
    return train(lambda: PaperRecipe(task, PaperOptions(architecture=architecture)), data, folder, options)


@pytest.mark.parametrize("architecture", ["small", "paper"])
@pytest.mark.parametrize("channels", [1, 3])
def test_model_codes(tmp_path: Path, channels: int, architecture: str) -> None:
    """What is trained loads at both ends and takes pictures of the task's shapes; sizes need not divide by four."""
    task = ImageTask("own", 10, 9, channels, "top", 4)
    trained(tmp_path, task, architecture)
    card = load_card(tmp_path)
    encoder_model, decoder_model = load_encoder_model(card), load_decoder_model(card)
    assert (encoder_model.source_shape, decoder_model.side_shape) == (task.source_shape, task.side_shape)
    pictures = PICTURES[:5] if channels == 3 else PICTURES[:5, ..., 0]
    session = make_session(model_digest=card.digest, latent_dimension=4)
    batch = Encoder(session, encoder_model).encode(task.sources(pictures))
    decoded = Decoder(session, 1, decoder_model).decode(batch.payload, task.side_information(pictures, 1))
    assert decoded.reconstructions.shape == (5, *task.source_shape)
    assert np.abs(decoded.reconstructions).max() <= 1.0
    with refused("sources", "shape", str(task.source_shape[-1])):
        Encoder(session, encoder_model).encode(np.zeros((2, 3, 3)))


@pytest.mark.parametrize("architecture", ["small", "paper"])
def test_pixels_keep_their_places(tmp_path: Path, architecture: str) -> None:
    """Flat sources of training are the arrays of the codec: both give one latent mean."""
    torch.manual_seed(0)
    recipe = PaperRecipe(TASK, PaperOptions(architecture=architecture))
    source, sides = held_out_tensors(TASK, PICTURES[:3], 2)
    assert (source.shape, sides.shape) == ((3, 5 * 9 * 3), (3, 2, 4 * 4 * 3))
    card = trained(tmp_path, TASK, architecture)
    tensors = load_encoder_model(card).target(TASK.sources(PICTURES[:3]).astype(np.float64))
    from safetensors.torch import load_file

    weights = {k.removeprefix("encoder."): v.float() for k, v in load_file(tmp_path / "weights.safetensors").items()
               if k.startswith("encoder.")}  # fmt: skip
    recipe.encoder.load_state_dict(weights)
    with torch.no_grad():
        mean, _ = recipe.encoder(source)
    np.testing.assert_allclose(mean.numpy(), tensors[0], atol=1e-4)


@pytest.mark.parametrize(
    ("change", "operand", "expected"),
    [
        ({"channels": 2}, "card architecture.channels", "1 (grey) or 3 (colour)"),
        ({"channels": True}, "card architecture.channels", "1 (grey) or 3 (colour)"),
        ({"network": "large"}, "card architecture.network", "convolutional, or none"),
        ({"side": "middle"}, "card architecture.side", "left, right, top or bottom"),
    ],
)
def test_cards_that_cannot_be(tmp_path: Path, change: dict[str, Any], operand: str, expected: str) -> None:
    card = trained(tmp_path, TASK, "small")
    other = ModelCard("vae", card.architecture | change, {}, card.weights, bytes(32))
    for load in (load_encoder_model, load_decoder_model) if "side" not in change else (load_encoder_model,):
        with refused(operand, expected=expected):
            load(other)


@pytest.mark.parametrize("architecture", ["small", "paper"])
def test_weights_of_other_sizes(tmp_path: Path, architecture: str) -> None:
    """Refused, and no exception from the depth."""
    card = trained(tmp_path, TASK, architecture)
    sizes = {"source_height": 12, "side_height": 8, "side_width": 8}
    other = ModelCard("vae", card.architecture | sizes, {}, card.weights, bytes(32))
    for load in (load_encoder_model, load_decoder_model):
        with pytest.raises(CodecError, match="card"):
            load(other)


def test_unknown_architecture() -> None:
    with refused("architecture", "'large'", "one of: small, paper"):
        PaperOptions(architecture="large")


def test_small_networks_of_large_images_are_narrower() -> None:
    """Most of their weights are in the first and last layers."""
    digits, photographs = (ImageTask("any", height=size, width=size, crop=size // 2, channels=3) for size in (24, 32))
    own_paper, narrow_paper = (PaperRecipe(task, PaperOptions()).card()[1] for task in (digits, photographs))
    own_list, narrow_list = (ListRecipe(task, CodebookOptions()).card()[1] for task in (digits, photographs))
    for own, narrow in ((own_paper, narrow_paper), (own_list, narrow_list)):
        assert narrow["encoder_hidden"] < own["encoder_hidden"]
        assert narrow["decoder_hidden"] < own["decoder_hidden"]
