"""The mixture head, tiny and with random weights: a density, a card that fits, and the same numbers in batches."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from decoder import Decoder, load_decoder_model
from decoder.vae import VaeDecoderModel
from networks import vae
from networks.mixture import Mixture, MixtureNetwork, log_normal
from shared_rng import ModelCard, load_card, pack
from tests.models import VAE_ARCHITECTURE, make_session, refused, uniforms

ARCHITECTURE = {name: size for name, size in VAE_ARCHITECTURE.items() if name != "estimator_hidden"} | {
    "weights_head": "mixture",
    "fusion_hidden": 6,
    "mixture_components": 3,
    "mixture_hidden": 5,
}
SIDES = (2.0 * uniforms(12 * 6, 3) - 1.0).reshape(12, 3, 2)


def network() -> MixtureNetwork:
    """Random weights, wide enough that components differ."""
    torch.manual_seed(5)
    made = MixtureNetwork(6, 12, latent_dimension=2, hidden=9, features=7, fusion=6, components=3, mixture=5)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.uniform_(-1.0, 1.0)
    return made.double()


def write(folder: Path, changes: dict[str, Any] | None = None) -> ModelCard:
    """A model folder with the decoder's half alone."""
    weights = folder / "weights.safetensors"
    save_file({f"decoder.{name}": t.float().contiguous() for name, t in network().state_dict().items()}, weights)
    sha256 = hashlib.sha256(weights.read_bytes()).hexdigest()
    architecture = {name: value for name, value in (ARCHITECTURE | (changes or {})).items() if value is not None}
    card = {"source": "vae", "architecture": architecture, "weights": {"file": weights.name, "sha256": sha256}}
    (folder / "card.json").write_text(json.dumps(card), encoding="utf-8")
    return load_card(folder)


def test_density_integrates_to_one() -> None:
    """By a sum over a grid that is fine and wide against every component."""
    features = torch.from_numpy(uniforms(4 * 7, 2).reshape(4, 7))
    axis = torch.arange(-40.0, 40.0, 0.1, dtype=torch.float64)
    grid = torch.cartesian_prod(axis, axis)
    mass = network().density(features).log_density(grid.expand(4, -1, -1)).exp().sum(dim=1) * 0.01
    np.testing.assert_allclose(mass.detach().numpy(), 1.0, atol=1e-9)
    np.testing.assert_allclose(log_normal(grid).exp().sum().item() * 0.01, 1.0, atol=1e-9)


def test_density_is_a_mixture_of_gaussians() -> None:
    """Against the textbook formula, component by component."""
    weights, means, variances = [0.25, 0.75], [[1.0, -2.0], [0.5, 3.0]], [[0.5, 2.0], [1.5, 0.1]]
    expected = 0.0
    point = [0.7, 2.5]
    constants, coefficients = [], []
    for weight, mean, variance in zip(weights, means, variances, strict=True):
        pairs = list(zip(point, mean, variance, strict=True))
        expected += weight * math.prod(
            math.exp(-((x - m) ** 2) / (2 * v)) / math.sqrt(2 * math.pi * v) for x, m, v in pairs
        )
        constants.append(math.log(weight) - 0.5 * sum(math.log(2 * math.pi * v) + m * m / v for _, m, v in pairs))
        coefficients.append([*(m / v for _, m, v in pairs), *(-0.5 / v for _, _, v in pairs)])
    found = Mixture(torch.tensor(constants), torch.tensor(coefficients)).log_density(torch.tensor([point]))
    assert found.item() == pytest.approx(math.log(expected), abs=1e-5)


def test_log_weights(tmp_path: Path) -> None:
    """The density of each candidate's own message against the prior's; whatever else is in the batch."""
    model = load_decoder_model(write(tmp_path))
    assert isinstance(model, VaeDecoderModel)
    rows = np.array([0, 0, 1, 3, 3, 11])
    latents = 4.0 * uniforms(12, 4).reshape(6, 2) - 2.0
    found = model.log_weights(SIDES, latents, rows)
    assert (found.shape, found.dtype) == ((6,), np.float64)
    reference = network().float().double()
    for row, latent, weight in zip(rows, latents, found, strict=True):
        features = reference.features(torch.from_numpy(SIDES[row].reshape(1, 6)))
        point = torch.from_numpy(latent[None, None])
        expected = reference.density(features).log_density(point) - log_normal(point)
        assert weight == pytest.approx(expected.item(), rel=1e-9, abs=1e-9)


def test_reconstruct(tmp_path: Path) -> None:
    """Recomputed with NumPy: the latent scales and shifts the layer that merges both."""
    latents = 4.0 * uniforms(24, 5).reshape(12, 2) - 2.0
    found = load_decoder_model(write(tmp_path)).reconstruct(latents, SIDES)
    tensors = {name: t.detach().numpy() for name, t in network().float().double().state_dict().items()}

    def linear(name: str, x: np.ndarray) -> np.ndarray:
        return np.asarray(x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"])

    features = SIDES.reshape(12, 6)
    for name in ("features.0", "features.2"):
        features = np.maximum(linear(name, features), 0.0)
    latent = linear("fusion_latent.2", np.maximum(linear("fusion_latent.0", latents), 0.0))
    merged = np.maximum(linear("fusion_side", features) * (1.0 + latent[:, :9]) + latent[:, 9:], 0.0)
    hidden = np.maximum(linear("reconstruction.1", merged), 0.0)
    np.testing.assert_allclose(found.reshape(12, 12), np.tanh(linear("reconstruction.3", hidden)), rtol=1e-9)
    assert found.shape == (12, 4, 3)


def test_a_batch_of_one_gives_the_same_picks(tmp_path: Path) -> None:
    card = write(tmp_path)
    session = make_session(model_digest=card.digest, latent_dimension=2, pool_size=256, binning="region")
    decoder = Decoder(session, 1, load_decoder_model(card))
    labels = (np.arange(12) * 5 % session.bins).astype(np.uint32)
    together = decoder.decode(pack(labels, session.bits), SIDES, 5)
    assert together.failures == {}
    for b in range(12):
        alone = decoder.decode(pack(labels[b : b + 1], session.bits), SIDES[b : b + 1], 5 + b)
        assert alone.picks[0] == together.picks[b]


@pytest.mark.parametrize(
    "field",
    [
        *("latent_dimension", "source_height", "source_width", "side_height", "side_width", "decoder_hidden"),
        *("side_features", "fusion_hidden", "mixture_components", "mixture_hidden"),
    ],
)
def test_card_that_does_not_fit_the_weights(tmp_path: Path, field: str) -> None:
    card = write(tmp_path, {field: 14})
    with refused(f"architecture.{field}", "14", "as the weights have"):
        vae.load_decoder(card)
    for value in ("14", 0, 2.5, True):
        card = write(tmp_path, {field: value})
        with refused(f"card architecture.{field}", repr(value), "an integer above 0"):
            vae.load_decoder(card)


def test_unknown_heads_are_refused(tmp_path: Path) -> None:
    with refused("card architecture.weights_head", "'mixtures'", "'mixture'"):
        vae.load_decoder(write(tmp_path, {"weights_head": "mixtures"}))
    with refused("card weights", "Missing key", "the decoder's layers"):
        vae.load_decoder(write(tmp_path, {"weights_head": None, "estimator_hidden": 8}))
    with refused("card architecture.network", "convolutional", "mixture"):
        vae.load_decoder(write(tmp_path, {"network": "convolutional"}))
