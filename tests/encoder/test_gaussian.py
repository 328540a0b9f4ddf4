"""The Gaussian encoder: p_{W|A} against brute-force conditioning, and the codec around any encoder model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import encoder.codec
from encoder import Encoder, load_encoder_model
from encoder.gaussian import GaussianEncoderModel
from encoder.model import target_log_weights
from shared_rng import CodecError, ModelCard, SessionMismatch, bin_labels, pack, samples
from tests.models import Floats, gaussian_card, gaussian_models, refused, uniforms

VARIANCES = [tuple(np.exp(6.0 * uniforms(3, seed) - 3.0)) for seed in range(5)]


def normals(*shape: int, seed: int = 1) -> Floats:
    return np.asarray(stats.norm.ppf(uniforms(int(np.prod(shape)), seed)).reshape(shape))


def an_encoder(**changes: Any) -> Encoder:
    session, model, _ = gaussian_models(gaussian_card(), **changes)
    return Encoder(session, model)


@pytest.mark.parametrize(("prior", "noise", "side"), VARIANCES)
def test_target_is_w_given_a(prior: float, noise: float, side: float) -> None:
    """Condition the joint covariance of (A, W) by hand; the side information's variance must not matter."""
    model = GaussianEncoderModel.from_card(gaussian_card(prior, noise, side))
    mixing = np.array([[1.0, 0.0], [1.0, 1.0]])  # (A, W) from independent A and noise
    covariance = mixing @ np.diag([prior, noise]) @ mixing.T
    sources = normals(7)
    mean, variance = model.target(sources)
    assert mean.shape == variance.shape == (7, 1)
    np.testing.assert_allclose(mean[:, 0], covariance[0, 1] / covariance[0, 0] * sources)
    np.testing.assert_allclose(variance, covariance[1, 1] - covariance[0, 1] ** 2 / covariance[0, 0])
    assert model.pool_variance == pytest.approx(covariance[1, 1])
    assert (model.latent_dimension, model.source_shape) == (1, ())


@pytest.mark.parametrize(("dimension", "pool_variance"), [(1, 1.0), (1, 1.7), (3, 0.4)])
def test_target_log_weights(dimension: int, pool_variance: float) -> None:
    """log p_{W|A}(u|a) - log p_W(u), but for one constant a message."""
    mean, variance = normals(4, dimension, seed=2), np.exp(normals(4, dimension, seed=3))
    pool = normals(4, 20, dimension, seed=4)
    found = target_log_weights(mean, variance, pool, pool_variance)
    assert found.shape == (4, 20)
    assert found.dtype == np.float64
    target = stats.norm.logpdf(pool, mean[:, None], np.sqrt(variance)[:, None]).sum(axis=2)
    expected = target - stats.norm.logpdf(pool, 0.0, np.sqrt(pool_variance)).sum(axis=2)
    np.testing.assert_allclose(found - found[:, :1], expected - expected[:, :1], atol=1e-9)


@pytest.mark.parametrize("name", ["prior_variance", "noise_variance"])
@pytest.mark.parametrize("value", [0.0, -1.0, float("inf"), float("nan"), "1", None, True])
def test_bad_card(name: str, value: object) -> None:
    card = ModelCard("gaussian", gaussian_card().architecture | {name: value}, {}, None, bytes(32))
    with refused(f"architecture.{name}", str(value), "a"):
        load_encoder_model(card)


def test_load_by_source() -> None:
    assert isinstance(load_encoder_model(gaussian_card()), GaussianEncoderModel)
    with refused("card source", "'audio'", "gaussian, vae or codebook"):
        load_encoder_model(ModelCard("audio", {}, {}, None, bytes(32)))


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
        an_encoder(**change)


def test_encode() -> None:
    """The batch's parts belong together, and its messages carry the numbers they were given."""
    codec = an_encoder(pool_size=256, bins=16)
    sources = normals(9)
    batch = codec.encode(sources, 50)
    messages = range(50, 59)
    assert batch.first_message == 50
    assert batch.labels.dtype == np.uint32
    assert batch.picks.dtype == np.int64
    assert np.array_equal(batch.labels, bin_labels(codec.session, messages)[np.arange(9), batch.picks])
    assert batch.payload == pack(batch.labels, 4)
    picked = samples(codec.session, messages)[np.arange(9), batch.picks, 0]
    # 256 candidates, and W within .05 (variance) of the source: five deviations are plenty.
    assert np.abs(picked - sources).max() < 5 * np.sqrt(0.05)


def test_one_message_alone_equals_the_batch() -> None:
    codec = an_encoder(decoders=3)
    sources = normals(20)
    batch = codec.encode(sources, 2**40)
    alone = [codec.encode(sources[b : b + 1], 2**40 + b) for b in range(20)]
    assert np.array_equal(batch.picks, np.concatenate([one.picks for one in alone]))
    assert np.array_equal(batch.labels, np.concatenate([one.labels for one in alone]))


@pytest.mark.parametrize("chunk_bytes", [1, 8 * 64 * 3, 8 * 64 * 19, 8 * 64 * 20])
def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch, chunk_bytes: int) -> None:
    """One, 3, 19 or all 20 messages at a time."""
    codec = an_encoder()
    batch = codec.encode(normals(20), 7)
    calls: list[int] = []
    whole = Encoder._encode_chunk

    def counted(self: Encoder, sources: Floats, first_message: int) -> Any:
        calls.append(len(sources))
        return whole(self, sources, first_message)

    monkeypatch.setattr(Encoder, "_encode_chunk", counted)
    monkeypatch.setattr(encoder.codec, "_CHUNK_BYTES", chunk_bytes)
    again = codec.encode(normals(20), 7)
    size = max(1, chunk_bytes // (8 * 64))
    assert calls == [min(size, 20 - start) for start in range(0, 20, size)]
    assert np.array_equal(again.picks, batch.picks)
    assert again.payload == batch.payload


@pytest.mark.parametrize("shape", [(), (0,), (3, 1), (2, 2), (1, 1, 1)])
def test_wrong_shape(shape: tuple[int, ...]) -> None:
    with refused("sources", f"shape {shape}", "shape (B >= 1)"):
        an_encoder().encode(np.zeros(shape))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_source_that_is_not_finite(value: float) -> None:
    sources = np.array([0.0, 1.0, value, value])
    with refused("sources, row 2 (message 12)", "NaN or infinity", "finite"):
        an_encoder().encode(sources, 10)


def test_source_without_a_usable_weight() -> None:
    """So far away that every weight is zero: the message is named, and nothing is encoded."""
    with refused("message 11", "all 64 importance weights are zero"):
        an_encoder().encode(np.array([0.0, 1e200, 0.0]), 10)


@pytest.mark.parametrize(("first", "count"), [(-1, 1), (2**64, 1), (2**64 - 1, 2)])
def test_message_numbers_out_of_range(first: int, count: int) -> None:
    with pytest.raises(CodecError, match=r"^message: "):
        an_encoder().encode(np.zeros(count), first)


def test_last_message_number() -> None:
    assert len(an_encoder().encode(np.zeros(2), 2**64 - 2).picks) == 2
