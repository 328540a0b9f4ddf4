"""Weights of both ends: what is read of a file, and what is refused of a card that does not fit them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from networks import codebook, vae
from shared_rng import ModelCard, load_card
from tests.models import refused, vae_tensors, write_codebook, write_vae

Load = Callable[[ModelCard], nn.Module]

VAE_ENCODER_FIELDS = ["latent_dimension", "source_height", "source_width", "encoder_hidden"]
VAE_DECODER_FIELDS = [
    *("latent_dimension", "source_height", "source_width", "side_height", "side_width"),
    *("decoder_hidden", "side_features", "estimator_hidden"),
]


@pytest.mark.parametrize(
    ("load", "field"),
    [
        *(pytest.param(vae.load_encoder, field, id=f"encoder-{field}") for field in VAE_ENCODER_FIELDS),
        *(pytest.param(vae.load_decoder, field, id=f"decoder-{field}") for field in VAE_DECODER_FIELDS),
    ],
)
def test_vae_card_that_does_not_fit_the_weights(tmp_path: Path, load: Load, field: str) -> None:
    card = write_vae(tmp_path, architecture={field: 14})
    with refused(f"architecture.{field}", "14", "as the weights have"):
        load(card)
    for value in ("14", 0, 2.5, True):
        card = write_vae(tmp_path, architecture={field: value})
        with refused(f"card architecture.{field}", repr(value), "an integer above 0"):
            load(card)


@pytest.mark.parametrize(("load", "prefix"), [(vae.load_encoder, "encoder."), (vae.load_decoder, "decoder.")])
def test_weights_of_the_other_half_only(tmp_path: Path, load: Load, prefix: str) -> None:
    """Each end needs its own half of the weights, and needs no other."""
    tensors = vae_tensors()
    own = {name: t for name, t in tensors.items() if name.startswith(prefix)}
    load(write_vae(tmp_path, own))
    other = {name: t for name, t in tensors.items() if not name.startswith(prefix)}
    with refused("card weights", "Missing key", "layers"):
        load(write_vae(tmp_path, other))
    with refused("card weights", "Unexpected key", "layers"):
        load(write_vae(tmp_path, own | {f"{prefix}extra": np.zeros(1, np.float32)}))


@pytest.mark.parametrize("load", [vae.load_encoder, vae.load_decoder])
def test_card_without_weights(tmp_path: Path, load: Load) -> None:
    write_vae(tmp_path)
    path = tmp_path / "card.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "weights": None}).replace(', "weights": null', ""))
    with refused("card weights", "nothing", "the weights of a vae"):
        load(load_card(tmp_path))


def test_missing_and_foreign_weights(tmp_path: Path) -> None:
    write_vae(tmp_path)
    weights = tmp_path / "weights.safetensors"
    weights.write_bytes(weights.read_bytes() + b"\0")
    with refused("card weights.sha256"):
        load_card(tmp_path)
    weights.unlink()
    with refused("card weights.file", str(weights), "an existing file"):
        load_card(tmp_path)


@pytest.mark.parametrize("load", [vae.load_encoder, vae.load_decoder])
def test_half_precision_weights(tmp_path: Path, load: Load) -> None:
    """The shipped models are stored in half precision and computed in double."""
    network = load(write_vae(tmp_path, {name: t.astype(np.float16) for name, t in vae_tensors().items()}))
    assert {t.dtype.itemsize for t in network.state_dict().values()} == {8}


CODEBOOK_ENCODER_FIELDS = ["words", "source_height", "source_width", "encoder_hidden"]
CODEBOOK_DECODER_FIELDS = ["words", "source_height", "source_width", "side_height", "side_width", "decoder_hidden"]


@pytest.mark.parametrize(
    ("load", "field"),
    [
        *(pytest.param(codebook.load_encoder, field, id=f"encoder-{field}") for field in CODEBOOK_ENCODER_FIELDS),
        *(pytest.param(codebook.load_decoder, field, id=f"decoder-{field}") for field in CODEBOOK_DECODER_FIELDS),
        pytest.param(codebook.load_decoder, "decoder_width", id="decoder-decoder_width"),
    ],
)
def test_codebook_card_that_does_not_fit_the_weights(tmp_path: Path, load: Load, field: str) -> None:
    with refused(f"architecture.{field}", "16", "as the weights have"):
        load(write_codebook(tmp_path, **{field: 16}))
    for value in ("16", 0, 2.5, True):
        with refused(f"card architecture.{field}", repr(value), "an integer above 0"):
            load(write_codebook(tmp_path, **{field: value}))


@pytest.mark.parametrize("load", [codebook.load_encoder, codebook.load_decoder])
def test_bad_codebooks(tmp_path: Path, load: Load) -> None:
    with refused("card architecture.coupling", "baseline", "gls or list"):
        load(_relabelled(tmp_path, "baseline"))
    with refused("card architecture.words", "12", "a multiple of architecture.bins, 8"):
        load(write_codebook(tmp_path, bins=8))
    fault = ("card weights", "classifier") if load is codebook.load_decoder else ("architecture.bins", "4")
    with refused(*fault):
        load(_relabelled(tmp_path, "list"))


def _relabelled(folder: Path, coupling: str) -> ModelCard:
    """Weights for gls with a card that says something else."""
    write_codebook(folder)
    path = folder / "card.json"
    path.write_text(path.read_text().replace('"coupling": "gls"', f'"coupling": "{coupling}"'))
    return load_card(folder)
