"""Small sessions and models that many tests need, and the errors they expect."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import save_file

from decoder.gaussian import GaussianDecoderModel
from encoder.gaussian import GaussianEncoderModel
from shared_rng import CodecError, ModelCard, Session, load_card
from shared_rng.card import model_digest
from shared_rng.philox import words

Floats = npt.NDArray[np.float64]

SEED = 0x0123456789ABCDEFFEDCBA9876543210


@contextmanager
def refused(operand: str, given: str = "", expected: str = "", kind: type[CodecError] = CodecError) -> Iterator[None]:
    """The block raises exactly ``kind``, naming the operand, and saying what came and what was expected."""
    with pytest.raises(CodecError) as caught:
        yield
    error = caught.value
    assert type(error) is kind, error
    assert (operand in error.operand, given in str(error.given), expected in str(error.expected)) == (True,) * 3, error
    assert str(error) == f"{error.operand}: got {error.given}, expected {error.expected}"


def make_session(**changes: Any) -> Session:
    """A valid session with some fields changed."""
    fields: dict[str, Any] = {"seed": SEED, "pool_size": 64, "bins": 8, "decoders": 2, "model_digest": bytes(32)}
    return Session(**(fields | changes))


def uniforms(count: int, seed: int = 1) -> Floats:
    """Fixed numbers in (0, 1), from Philox: NumPy promises its raw words for ever, and not those of Generator."""
    return ((words(seed, 99, 0, 0, count) >> np.uint64(11)).astype(np.float64) + 0.5) * 2.0**-53


def gaussian_card(prior: float = 1.0, noise: float = 0.05, side: float = 0.5) -> ModelCard:
    """A Gaussian source's card, without a file."""
    architecture = {"prior_variance": prior, "noise_variance": noise, "side_variance": side}
    return ModelCard("gaussian", architecture, {}, None, model_digest("gaussian", architecture, None))


def gaussian_models(card: ModelCard, **changes: Any) -> tuple[Session, GaussianEncoderModel, GaussianDecoderModel]:
    """Both halves of a Gaussian model, and a session that fits them."""
    encoder_model, decoder_model = GaussianEncoderModel.from_card(card), GaussianDecoderModel.from_card(card)
    changes = {"model_digest": card.digest, "pool_variance": encoder_model.pool_variance} | changes
    return make_session(**changes), encoder_model, decoder_model


VAE_ARCHITECTURE = {
    "latent_dimension": 2,
    "source_height": 4,
    "source_width": 3,
    "side_height": 3,
    "side_width": 2,
    "encoder_hidden": 10,
    "decoder_hidden": 9,
    "side_features": 7,
    "estimator_hidden": 8,
}

# The names and shapes are the format of a weights file: nets that rename a layer cannot read the shipped models.
VAE_SHAPES: dict[str, tuple[int, ...]] = {
    "encoder.layers.0.weight": (10, 12),
    "encoder.layers.0.bias": (10,),
    "encoder.layers.2.weight": (10, 10),
    "encoder.layers.2.bias": (10,),
    "encoder.layers.4.weight": (4, 10),
    "encoder.layers.4.bias": (4,),
    "decoder.features.0.weight": (9, 6),
    "decoder.features.0.bias": (9,),
    "decoder.features.2.weight": (7, 9),
    "decoder.features.2.bias": (7,),
    "decoder.reconstruction.0.weight": (9, 9),
    "decoder.reconstruction.0.bias": (9,),
    "decoder.reconstruction.2.weight": (9, 9),
    "decoder.reconstruction.2.bias": (9,),
    "decoder.reconstruction.4.weight": (12, 9),
    "decoder.reconstruction.4.bias": (12,),
    "decoder.estimator_side.weight": (8, 7),
    "decoder.estimator_side.bias": (8,),
    "decoder.estimator_latent.weight": (8, 4),
    "decoder.estimator_head.1.weight": (4, 8),
    "decoder.estimator_head.1.bias": (4,),
    "decoder.estimator_head.3.weight": (1, 4),
    "decoder.estimator_head.3.bias": (1,),
}


def vae_tensors() -> dict[str, npt.NDArray[np.float32]]:
    """Fixed random weights of the tiny VAE."""
    sizes = [int(np.prod(shape)) for shape in VAE_SHAPES.values()]
    parts = np.split(2.0 * uniforms(sum(sizes)) - 1.0, np.cumsum(sizes)[:-1])
    return {
        name: part.reshape(shape).astype(np.float32)
        for (name, shape), part in zip(VAE_SHAPES.items(), parts, strict=True)
    }


def write_vae(
    folder: Path, tensors: dict[str, npt.NDArray[Any]] | None = None, architecture: dict[str, Any] | None = None
) -> ModelCard:
    """Write a tiny VAE's model folder, with changes to weights or architecture, and load its card."""
    weights = folder / "weights.safetensors"
    save_file(vae_tensors() if tensors is None else tensors, weights)
    sha256 = hashlib.sha256(weights.read_bytes()).hexdigest()
    card = {
        "source": "vae",
        "architecture": VAE_ARCHITECTURE | (architecture or {}),
        "weights": {"file": weights.name, "sha256": sha256},
    }
    (folder / "card.json").write_text(json.dumps(card), encoding="utf-8")
    return load_card(folder)


CODEBOOK_WORDS, CODEBOOK_BINS = 12, 4

CODEBOOK_ARCHITECTURE: dict[str, Any] = {
    "words": CODEBOOK_WORDS,
    "bins": CODEBOOK_BINS,
    "source_height": 4,
    "source_width": 3,
    "side_height": 3,
    "side_width": 2,
    "encoder_hidden": 10,
    "decoder_hidden": 9,
    "decoder_width": 8,
}


def codebook_shapes(coupling: str, channels: int = 1) -> dict[str, tuple[int, ...]]:
    """The names and shapes of a weights file, which are its format."""
    outputs = CODEBOOK_BINS if coupling == "list" else CODEBOOK_WORDS
    classifier = {"decoder.classifier.weight": (CODEBOOK_WORDS, 9), "decoder.classifier.bias": (CODEBOOK_WORDS,)}
    return {
        "encoder.layers.0.weight": (10, 12 * channels),
        "encoder.layers.0.bias": (10,),
        "encoder.layers.2.weight": (10, 10),
        "encoder.layers.2.bias": (10,),
        "encoder.layers.4.weight": (outputs, 10),
        "encoder.layers.4.bias": (outputs,),
        "decoder.features.0.weight": (9, 6 * channels),
        "decoder.features.0.bias": (9,),
        "decoder.features.2.weight": (9, 9),
        "decoder.features.2.bias": (9,),
        "decoder.fusion.weight": (8, 9),
        "decoder.fusion.bias": (8,),
        "decoder.scale": (CODEBOOK_WORDS, 8),
        "decoder.shift": (CODEBOOK_WORDS, 8),
        "decoder.mixing.weight": (8, 8),
        "decoder.mixing.bias": (8,),
        "decoder.output.weight": (12 * channels, 8),
        "decoder.output.bias": (12 * channels,),
    } | ({} if coupling == "list" else classifier)


def codebook_tensors(coupling: str, channels: int = 1) -> dict[str, npt.NDArray[np.float32]]:
    """Fixed random weights of the tiny codebook."""
    named = codebook_shapes(coupling, channels)
    sizes = [int(np.prod(shape)) for shape in named.values()]
    parts = np.split(2.0 * uniforms(sum(sizes)) - 1.0, np.cumsum(sizes)[:-1])
    return {n: p.reshape(shape).astype(np.float32) for (n, shape), p in zip(named.items(), parts, strict=True)}


def write_codebook(folder: Path, coupling: str = "gls", channels: int = 1, **changes: Any) -> ModelCard:
    """Write a tiny codebook's model folder, with changes to the architecture."""
    weights = folder / "weights.safetensors"
    save_file(codebook_tensors(coupling, channels), weights)
    colours = {} if channels == 1 else {"channels": channels}
    card = {
        "source": "codebook",
        "architecture": CODEBOOK_ARCHITECTURE | {"coupling": coupling} | colours | changes,
        "weights": {"file": weights.name, "sha256": hashlib.sha256(weights.read_bytes()).hexdigest()},
    }
    (folder / "card.json").write_text(json.dumps(card), encoding="utf-8")
    return load_card(folder)
