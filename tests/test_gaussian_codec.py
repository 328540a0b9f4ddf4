"""Both ends of the Gaussian source together."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from decoder import Decoder
from encoder import Encoder
from encoder.model import target_log_weights
from shared_rng import Session, bin_labels, find_model, load_card, pack, samples
from tests.models import Floats, gaussian_card, gaussian_models, uniforms

# The statistics below use fixed seeds; a Kolmogorov-Smirnov distance times sqrt(n) passes 1.95 with
# probability 0.001, and a mean passes 4 standard errors with 3e-5.
TRIALS = 4000
MESSAGES = range(TRIALS)


def normals(count: int, variance: float, seed: int) -> Floats:
    return np.asarray(stats.norm.ppf(uniforms(count, seed)) * math.sqrt(variance))


def ends(session: Session, encoder_model: object, decoder_model: object) -> tuple[Encoder, list[Decoder]]:
    decoders = [Decoder(session, k, decoder_model) for k in range(session.decoders)]  # type: ignore[arg-type]
    return Encoder(session, encoder_model), decoders  # type: ignore[arg-type]


def test_plain_importance_sampling() -> None:
    """K = 1 with as many bins as candidates: the decoder has the encoder's pick in every message.

    The picks follow the normalised importance weights: by message, the weight of all candidates before the
    pick and a random share of the pick's own is uniform (randomised probability integral transform).
    """
    card = gaussian_card(noise=0.3, side=math.inf)
    session, encoder_model, decoder_model = gaussian_models(card, bins=64, decoders=1)
    encoder, (decoder,) = ends(session, encoder_model, decoder_model)
    sources = normals(TRIALS, 1.0, 1)
    batch = encoder.encode(sources)
    assert np.array_equal(batch.labels, batch.picks)
    assert len(batch.payload) == TRIALS * 6 // 8
    decoded = decoder.decode(batch.payload, np.zeros(TRIALS))
    assert np.array_equal(decoded.picks, batch.picks)

    mean, variance = encoder_model.target(sources)
    weights = np.exp(target_log_weights(mean, variance, samples(session, MESSAGES), session.pool_variance))
    weights /= weights.sum(axis=1, keepdims=True)
    own = weights[MESSAGES, batch.picks]
    transformed = np.cumsum(weights, axis=1)[MESSAGES, batch.picks] - own * uniforms(TRIALS, 2)
    assert stats.kstest(transformed, stats.uniform.cdf).statistic < 1.95 / math.sqrt(TRIALS)


@pytest.mark.parametrize(("decoders", "bins"), [(1, 4), (1, 16), (3, 4), (3, 16)])
def test_error_bound(decoders: int, bins: int) -> None:
    """Proposition 4: P_err <= 1 - E[(1 + p(W|A)/p(W|T) / (K L_max))^-1], here for the large pool's W."""
    card = gaussian_card(noise=0.05, side=0.5)
    session, encoder_model, decoder_model = gaussian_models(card, pool_size=512, bins=bins, decoders=decoders)
    encoder, all_decoders = ends(session, encoder_model, decoder_model)
    trials = 1500
    sources = normals(trials, 1.0, 3)
    sides = [sources + normals(trials, 0.5, 10 + k) for k in range(decoders)]
    batch = encoder.encode(sources)
    decoded = [d.decode(batch.payload, side) for d, side in zip(all_decoders, sides, strict=True)]
    matched = np.any([d.picks == batch.picks for d in decoded], axis=0)
    picked = samples(session, range(trials))[np.arange(trials), batch.picks, 0]
    log_ratio = stats.norm.logpdf(picked, sources, math.sqrt(0.05))
    log_ratio -= stats.norm.logpdf(picked, sides[0] / 1.5, math.sqrt(1 / 3 + 0.05))
    terms = 1.0 / (1.0 + np.exp(log_ratio) / (decoders * bins))
    error = math.hypot(matched.std(), terms.std()) / math.sqrt(trials)
    assert matched.mean() >= terms.mean() - 4 * error
    # Where a decoder has the encoder's sample, it has the encoder's latent.
    for d in decoded:
        assert np.array_equal(d.latents[d.picks == batch.picks, 0], picked[d.picks == batch.picks])
    # The bound is no empty statement here.
    assert 0.2 < terms.mean() < 0.95


def test_message_and_side_information_both_help() -> None:
    """The reconstruction's error is below that of the best estimate from side information alone."""
    session, encoder_model, decoder_model = gaussian_models(
        gaussian_card(noise=0.01, side=0.5), pool_size=1024, bins=64, decoders=1
    )
    encoder, (decoder,) = ends(session, encoder_model, decoder_model)
    sources = normals(1000, 1.0, 4)
    side = sources + normals(1000, 0.5, 5)
    found = decoder.decode(encoder.encode(sources).payload, side).reconstructions
    # Measured by its median, since a wrong pick is rare here but far off.
    assert np.median(np.abs(found - sources)) < 0.5 * np.median(np.abs(side / 1.5 - sources))


def test_one_message_alone_equals_the_batch() -> None:
    session, encoder_model, decoder_model = gaussian_models(load_card(find_model("gaussian")), pool_size=512)
    encoder, decoders = ends(session, encoder_model, decoder_model)
    sources, side = normals(16, 1.0, 6), normals(16, 1.5, 7)
    batch = encoder.encode(sources, 100)
    decoded = decoders[1].decode(batch.payload, side, 100)
    for b in (15, 0, 8):
        alone = encoder.encode(sources[b : b + 1], 100 + b)
        assert alone.picks[0] == batch.picks[b]
        one = decoders[1].decode(alone.payload, side[b : b + 1], 100 + b)
        assert (one.picks[0], one.reconstructions[0]) == (decoded.picks[b], decoded.reconstructions[b])


def test_foreign_message_costs_one_message() -> None:
    """A message that points to an empty bin fails alone, with NaN for its reconstruction."""
    session, encoder_model, decoder_model = gaussian_models(gaussian_card(), pool_size=17, bins=16, decoders=1)
    encoder, (decoder,) = ends(session, encoder_model, decoder_model)
    sources, side = normals(6, 1.0, 8), normals(6, 1.5, 9)
    labels = encoder.encode(sources, 40).labels
    honest = decoder.decode(pack(labels, 4), side, 40)
    assert honest.failures == {}
    used = bin_labels(session, [42])[0]
    labels[2] = next(label for label in range(16) if label not in used)
    spoilt = decoder.decode(pack(labels, 4), side, 40)
    assert set(spoilt.failures) == {42}
    assert "empty" in spoilt.failures[42]
    assert spoilt.picks[2] == -1
    assert np.isnan(spoilt.reconstructions[2])
    assert np.isnan(spoilt.latents[2]).all()
    others = np.array([0, 1, 3, 4, 5])
    for name in ("picks", "latents", "reconstructions"):
        assert np.array_equal(getattr(spoilt, name)[others], getattr(honest, name)[others])
