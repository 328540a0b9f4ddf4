"""The Gaussian decoder: p_{W|T} and the estimate of A by brute force, and the codec around any decoder model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from decoder import Decoder, load_decoder_model
from decoder.gaussian import GaussianDecoderModel
from shared_rng import ModelCard, SessionMismatch, bin_candidates, bin_labels, pack
from tests.models import Floats, gaussian_card, gaussian_models, refused, uniforms

VARIANCES = [tuple(np.exp(6.0 * uniforms(3, seed) - 3.0)) for seed in range(5)]
ROWS = np.array([0, 0, 1, 3, 3, 3, 4])


def normals(*shape: int, seed: int = 1) -> Floats:
    return np.asarray(stats.norm.ppf(uniforms(int(np.prod(shape)), seed)).reshape(shape))


def covariance(prior: float, noise: float, side: float) -> Floats:
    """Of (A, W, T) = (A, A + noise, A + other noise)."""
    mixing = np.array([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0], [1.0, 0.0, 1.0]])
    return np.asarray(mixing @ np.diag([prior, noise, side]) @ mixing.T)


def a_decoder(index: int = 0, **changes: Any) -> Decoder:
    session, _, model = gaussian_models(gaussian_card(), **changes)
    return Decoder(session, index, model)


@pytest.mark.parametrize("variances", VARIANCES)
def test_log_weights_are_those_of_w_given_t(variances: tuple[float, float, float]) -> None:
    """log p_{W|T}(u|t) - log p_W(u), but for one constant a message."""
    model = GaussianDecoderModel.from_card(gaussian_card(*variances))
    joint = covariance(*variances)
    side, pool = normals(5, seed=2), normals(7, 1, seed=3)
    found = model.log_weights(side, pool, ROWS)
    mean = joint[1, 2] / joint[2, 2] * side[ROWS]
    variance = joint[1, 1] - joint[1, 2] ** 2 / joint[2, 2]
    expected = stats.norm.logpdf(pool[:, 0], mean, np.sqrt(variance))
    expected -= stats.norm.logpdf(pool[:, 0], 0.0, np.sqrt(joint[1, 1]))
    assert found.shape == (7,)
    assert found.dtype == np.float64
    _, first, message = np.unique(ROWS, return_index=True, return_inverse=True)
    np.testing.assert_allclose(found - found[first][message], expected - expected[first][message], atol=1e-9)
    assert model.pool_variance == pytest.approx(joint[1, 1])


@pytest.mark.parametrize("variances", VARIANCES)
def test_reconstruction_is_the_linear_mmse(variances: tuple[float, float, float]) -> None:
    """Solve the normal equations of A from (W, T)."""
    joint = covariance(*variances)
    latent_gain, side_gain = np.linalg.solve(joint[1:, 1:], joint[1:, 0])
    latents, side = normals(6, 1, seed=4), normals(6, seed=5)
    found = GaussianDecoderModel.from_card(gaussian_card(*variances)).reconstruct(latents, side)
    np.testing.assert_allclose(found, latent_gain * latents[:, 0] + side_gain * side, rtol=1e-9)


def test_without_side_information() -> None:
    """An infinite variance: p_{W|T} = p_W, whatever stands in for t, and the estimate is that from W alone."""
    model = load_decoder_model(gaussian_card(1.0, 0.25, float("inf")))
    side, pool = normals(5, seed=2), normals(7, 1, seed=3)
    np.testing.assert_allclose(model.log_weights(side, pool, ROWS), 0.0, atol=1e-12)
    latents = normals(5, 1, seed=4)
    np.testing.assert_allclose(model.reconstruct(latents, side), latents[:, 0] / 1.25)


@pytest.mark.parametrize("name", ["prior_variance", "noise_variance", "side_variance"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan"), "1", None, True])
def test_bad_card(name: str, value: object) -> None:
    card = ModelCard("gaussian", gaussian_card().architecture | {name: value}, {}, None, bytes(32))
    if name == "side_variance" and value == float("inf"):
        assert load_decoder_model(card).side_shape == ()
        return
    with refused(f"architecture.{name}", str(value), "a"):
        load_decoder_model(card)


def test_load_by_source() -> None:
    assert isinstance(load_decoder_model(gaussian_card()), GaussianDecoderModel)
    with refused("card source", "'audio'", "gaussian, vae or codebook"):
        load_decoder_model(ModelCard("audio", {}, {}, None, bytes(32)))


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("model_digest", {"model_digest": bytes(32)}),
        ("pool_kind", {"pool_kind": "discrete", "pool_variance": 1.0}),
        ("latent_dimension", {"latent_dimension": 2}),
        ("pool_variance", {"pool_variance": 1.0500001}),
    ],
)
def test_session_of_another_model(field: str, change: dict[str, Any]) -> None:
    with refused(field, kind=SessionMismatch):
        a_decoder(**change)


@pytest.mark.parametrize("index", [-1, 2, 100])
def test_index_of_no_decoder(index: int) -> None:
    with refused("decoder", str(index), "0 … 1"):
        a_decoder(index)


@pytest.mark.parametrize("index", [0, 1])
def test_decode(index: int) -> None:
    """The latents are the picked candidates of the bins, and the reconstructions follow from them."""
    codec = a_decoder(index)
    labels = np.array([3, 0, 7, 7, 1], dtype=np.uint32)
    side = normals(5, seed=6)
    batch = codec.decode(pack(labels, 3), side, 30)
    assert (batch.first_message, batch.failures) == (30, {})
    candidates = bin_candidates(codec.session, range(30, 35), labels)
    for b in range(5):
        own = candidates.rows == b
        position = candidates.indices[own].tolist().index(int(batch.picks[b]))
        assert batch.latents[b] == candidates.samples[own][position]
    assert np.array_equal(bin_labels(codec.session, range(30, 35))[np.arange(5), batch.picks], labels)
    assert np.array_equal(batch.reconstructions, codec.model.reconstruct(batch.latents, side))


def test_one_message_alone_equals_the_batch() -> None:
    codec = a_decoder(1)
    labels, side = (np.arange(20) * 5 % 8).astype(np.uint32), normals(20, seed=6)
    batch = codec.decode(pack(labels, 3), side, 2**40)
    for b in reversed(range(20)):
        alone = codec.decode(pack(labels[b : b + 1], 3), side[b : b + 1], 2**40 + b)
        assert alone.picks[0] == batch.picks[b]
        assert alone.reconstructions[0] == batch.reconstructions[b]


@pytest.mark.parametrize("shape", [(), (0,), (5, 1), (5, 1, 1)])
def test_wrong_shape(shape: tuple[int, ...]) -> None:
    """The batch of none has a payload of no bytes, and is refused all the same."""
    with refused("side information", f"shape {shape}", "shape (B >= 1)"):
        a_decoder().decode(bytes(2) if shape != (0,) else b"", np.zeros(shape))


def test_messages_of_any_numbers() -> None:
    """Unpacked messages of any numbers, repeated or not, give what the payload gives."""
    labels, side = (np.arange(20) * 5 % 8).astype(np.uint32), normals(20, seed=6)
    order = np.array([3, 3, 19, 0, 7])
    for index in range(2):
        codec = a_decoder(index)
        expected = codec.decode(pack(labels, 3), side, 7)
        found = codec.decode_labels(labels[order], side[order], [int(n) + 7 for n in order])
        assert np.array_equal(found.picks, expected.picks[order])
        assert np.array_equal(found.reconstructions, expected.reconstructions[order])
    with refused("messages", "20 labels, 19 numbers and 20 rows", "as many of each"):
        a_decoder().decode_labels(labels, side, range(19))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_side_information_that_is_not_finite(value: float) -> None:
    with refused("side information, row 1 (message 11)", "NaN or infinity", "finite"):
        a_decoder().decode(bytes(2), np.array([0.0, value, 0.0, value]), 10)


@pytest.mark.parametrize("payload", [b"", b"\0", bytes(3), b"\0\1"])
def test_payload_of_another_count(payload: bytes) -> None:
    with refused("packed messages"):
        a_decoder().decode(payload, np.zeros(4))


def test_side_information_without_a_usable_weight() -> None:
    """So far away that every weight is zero: that message fails, the others do not."""
    batch = a_decoder().decode(bytes(2), np.array([0.5, 1e200, 0.5]), 10)
    assert set(batch.failures) == {11}
    assert np.isnan(batch.reconstructions).tolist() == [False, True, False]
