"""Both halves of a VAE, tiny and with random weights: what they compute, and that a batch changes nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from decoder import Decoder, load_decoder_model
from decoder.vae import VaeDecoderModel
from encoder import Encoder, load_encoder_model
from encoder.model import target_log_weights
from encoder.vae import VaeEncoderModel
from shared_rng import CodecError, ModelCard, find_model, load_card, packed_size, samples
from tests.models import Floats, make_session, refused, uniforms, vae_tensors, write_vae

BATCH = 12
SOURCES = (2.0 * uniforms(BATCH * 12, 2) - 1.0).reshape(BATCH, 4, 3)
SIDES = (2.0 * uniforms(BATCH * 6, 3) - 1.0).reshape(BATCH, 3, 2)


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> ModelCard:
    return write_vae(tmp_path_factory.mktemp("vae"))


def linear(name: str, x: Floats) -> Floats:
    """One layer of the network, by name, in double precision."""
    tensors = vae_tensors()
    bias = tensors.get(f"{name}.bias", np.zeros(1, np.float32))
    return np.asarray(x @ tensors[f"{name}.weight"].astype(np.float64).T + bias)


def relu(x: Floats) -> Floats:
    return np.maximum(x, 0.0)


def layers(prefix: str, places: Sequence[int], x: Floats) -> Floats:
    """Linear layers with ReLU between them."""
    for place in places[:-1]:
        x = relu(linear(f"{prefix}.{place}", x))
    return linear(f"{prefix}.{places[-1]}", x)


def features(sides: Floats) -> Floats:
    return relu(layers("decoder.features", (0, 2), sides.reshape(len(sides), -1)))


def test_target(card: ModelCard) -> None:
    """The network, recomputed with NumPy, and its log-variance kept within -10 and 4."""
    model = load_encoder_model(card)
    assert isinstance(model, VaeEncoderModel)
    assert (model.latent_dimension, model.source_shape, model.pool_variance) == (2, (4, 3), 1.0)
    assert model.digest == card.digest
    for scale in (1.0, 100.0):
        mean, variance = model.target(scale * SOURCES)
        assert mean.shape == variance.shape == (BATCH, 2)
        assert mean.dtype == variance.dtype == np.float64
        expected = layers("encoder.layers", (0, 2, 4), scale * SOURCES.reshape(BATCH, -1))
        np.testing.assert_allclose(mean, expected[:, :2], rtol=1e-9)
        np.testing.assert_allclose(variance, np.exp(np.clip(expected[:, 2:], -10, 4)), rtol=1e-9)
    # At the larger scale some of the network's log-variances do leave that range.
    assert (np.abs(expected[:, 2:] + 3.0) > 7.0).any()


def test_log_weights(card: ModelCard) -> None:
    """Each candidate against its own message's side information."""
    model = load_decoder_model(card)
    assert isinstance(model, VaeDecoderModel)
    assert (model.latent_dimension, model.side_shape, model.pool_variance) == (2, (3, 2), 1.0)
    assert model.digest == card.digest
    rows = np.array([0, 0, 1, 3, 3, 11])
    latents = 4.0 * uniforms(12, 4).reshape(6, 2) - 2.0
    found = model.log_weights(SIDES, latents, rows)
    assert found.shape == (6,)
    assert found.dtype == np.float64
    side = linear("decoder.estimator_side", features(SIDES))[rows]
    latent = linear("decoder.estimator_latent", np.concatenate([latents, latents**2], axis=1))
    expected = layers("decoder.estimator_head", (1, 3), relu(side + latent))[:, 0]
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_reconstruct(card: ModelCard) -> None:
    """Images in [-1, 1], and NaN for a message without a latent only."""
    latents = 4.0 * uniforms(2 * BATCH, 5).reshape(BATCH, 2) - 2.0
    latents[3] = np.nan
    found = load_decoder_model(card).reconstruct(latents, SIDES)
    assert found.shape == (BATCH, 4, 3)
    assert found.dtype == np.float64
    expected = layers("decoder.reconstruction", (0, 2, 4), np.concatenate([latents, features(SIDES)], axis=1))
    np.testing.assert_allclose(found, np.tanh(expected).reshape(BATCH, 4, 3), rtol=1e-9)
    assert np.isnan(found).all(axis=(1, 2)).tolist() == [b == 3 for b in range(BATCH)]
    assert np.abs(np.delete(found, 3, axis=0)).max() < 1.0


def ends(card: ModelCard, **changes: Any) -> tuple[Encoder, Decoder]:
    session = make_session(**({"model_digest": card.digest, "latent_dimension": 2} | changes))
    return Encoder(session, load_encoder_model(card)), Decoder(session, 1, load_decoder_model(card))


def test_a_batch_of_one_gives_the_same_picks(card: ModelCard) -> None:
    """Rows of a matrix product may differ in the last bits with the batch: the picks must not."""
    encoder, decoder = ends(card, pool_size=256)
    batch = encoder.encode(SOURCES, 5)
    decoded = decoder.decode(batch.payload, SIDES, 5)
    assert decoded.failures == {}
    assert decoded.reconstructions.shape == (BATCH, 4, 3)
    assert len(set(batch.picks.tolist())) > 1
    for b in range(BATCH):
        alone = encoder.encode(SOURCES[b : b + 1], 5 + b)
        assert alone.picks[0] == batch.picks[b]
        one = decoder.decode(alone.payload, SIDES[b : b + 1], 5 + b)
        assert one.picks[0] == decoded.picks[b]
        np.testing.assert_allclose(one.reconstructions[0], decoded.reconstructions[b], atol=1e-12)


def test_encoder_log_weights_are_finite(card: ModelCard) -> None:
    """Also for sources at the edge of the range; of the model alone, for those far outside."""
    encoder, _ = ends(card)
    edge = np.concatenate([SOURCES, np.ones((1, 4, 3)), -np.ones((1, 4, 3))])
    sources = np.concatenate([edge, 1000 * SOURCES])
    mean, variance = encoder.model.target(sources)
    weights = target_log_weights(mean, variance, samples(encoder.session, range(len(sources))), 1.0)
    assert np.isfinite(weights).all()
    assert (encoder.encode(edge).picks >= 0).all()


@pytest.mark.parametrize("shape", [(4, 3), (2, 12), (2, 3, 4), (2, 1, 4, 3)])
def test_wrong_source_shape(card: ModelCard, shape: tuple[int, ...]) -> None:
    with refused("sources", f"shape {shape}", "shape (B >= 1, 4, 3)"):
        ends(card)[0].encode(np.zeros(shape))


@pytest.mark.parametrize("shape", [(3, 2), (2, 6), (2, 2, 3), (2, 4, 3)])
def test_wrong_side_shape(card: ModelCard, shape: tuple[int, ...]) -> None:
    with refused("side information", f"shape {shape}", "shape (B >= 1, 3, 2)"):
        ends(card)[1].decode(bytes(packed_size(shape[0], 3)), np.zeros(shape))


def test_read_only_arrays(card: ModelCard) -> None:
    """As they come from the wire."""
    encoder, decoder = ends(card)
    sources, sides = SOURCES.copy(), SIDES.copy()
    sources.flags.writeable = sides.flags.writeable = False
    batch = encoder.encode(sources)
    assert decoder.decode(batch.payload, sides).failures == {}


def test_weights_that_are_not_finite(card: ModelCard, tmp_path: Path) -> None:
    """A broken network costs its messages, each by name, and no exception from the depth."""
    tensors: dict[str, npt.NDArray[np.float32]] = vae_tensors()
    tensors["encoder.layers.4.bias"] = np.full(4, np.nan, np.float32)
    tensors["decoder.estimator_head.3.bias"] = np.full(1, np.nan, np.float32)
    encoder, decoder = ends(write_vae(tmp_path, tensors))
    with pytest.raises(CodecError, match="message 5: got 64 of 64 log importance weights are NaN"):
        encoder.encode(SOURCES[:2], 5)
    batch = ends(card)[0].encode(SOURCES[:2], 5)
    assert set(decoder.decode(batch.payload, SIDES[:2], 5).failures) == {5, 6}


@pytest.mark.parametrize("name", ["mnist", "cifar10"])
def test_shipped_model(name: str) -> None:
    """The models in the package load at both ends, and an image goes through."""
    card = load_card(find_model(name))
    encoder_model, decoder_model = load_encoder_model(card), load_decoder_model(card)
    dimension = encoder_model.latent_dimension
    session = make_session(model_digest=card.digest, latent_dimension=dimension)
    batch = Encoder(session, encoder_model).encode(np.full((1, *encoder_model.source_shape), -1.0))
    decoded = Decoder(session, 0, decoder_model).decode(batch.payload, np.full((1, *decoder_model.side_shape), -1.0))
    assert decoded.reconstructions.shape == (1, *encoder_model.source_shape)
    assert decoded.failures == {}
