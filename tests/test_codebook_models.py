"""Both halves of a codebook, tiny and with random weights: what they compute, what they serve, what they refuse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decoder import Decoder, load_decoder_model
from decoder.codebook import CodebookDecoderModel
from encoder import Encoder, load_encoder_model
from encoder.codebook import CodebookEncoderModel
from shared_rng import ModelCard, SessionMismatch
from tests.models import CODEBOOK_BINS as BINS
from tests.models import CODEBOOK_WORDS as WORDS
from tests.models import Floats, codebook_tensors, make_session, refused, uniforms, write_codebook

BATCH = 12
SOURCES = (2.0 * uniforms(BATCH * 12, 2) - 1.0).reshape(BATCH, 4, 3)
SIDES = (2.0 * uniforms(BATCH * 6, 3) - 1.0).reshape(BATCH, 3, 2)


def ends(card: ModelCard, **changes: Any) -> tuple[Encoder, list[Decoder]]:
    fields = {"pool_kind": "discrete", "pool_size": WORDS, "bins": BINS, "decoders": 3, "model_digest": card.digest}
    session = make_session(**(fields | {"coupling": card.architecture["coupling"]} | changes))
    model = load_decoder_model(card)
    return Encoder(session, load_encoder_model(card)), [Decoder(session, k, model) for k in range(session.decoders)]


def linear(name: str, x: Floats, coupling: str = "gls") -> Floats:
    own = codebook_tensors(coupling)
    return np.asarray(x @ own[f"{name}.weight"].astype(np.float64).T + own[f"{name}.bias"])


def layers(prefix: str, places: Sequence[int], x: Floats, coupling: str = "gls") -> Floats:
    for place in places[:-1]:
        x = np.maximum(linear(f"{prefix}.{place}", x, coupling), 0.0)
    return linear(f"{prefix}.{places[-1]}", x, coupling)


def features(coupling: str = "gls") -> Floats:
    return np.maximum(layers("decoder.features", (0, 2), SIDES.reshape(BATCH, -1), coupling), 0.0)


def test_encoder_weights(tmp_path: Path) -> None:
    """One log weight a word; for a list, one a message, which all words of the bin share."""
    pool = np.tile(np.arange(WORDS, dtype=np.float64)[:, None], (BATCH, 1, 1))
    for coupling in ("gls", "list"):
        model = load_encoder_model(write_codebook(tmp_path, coupling))
        assert isinstance(model, CodebookEncoderModel)
        found = model.log_weights(SOURCES, pool)
        expected = layers("encoder.layers", (0, 2, 4), SOURCES.reshape(BATCH, -1), coupling)
        np.testing.assert_allclose(found, expected if coupling == "gls" else np.tile(expected, (1, 3)), rtol=1e-9)


def test_decoder_weights(tmp_path: Path) -> None:
    """The classifier's value of each word against its own message's side information, no other word's."""
    model = load_decoder_model(write_codebook(tmp_path))
    assert isinstance(model, CodebookDecoderModel)
    rows, words = np.array([0, 0, 3, 11]), np.array([2, 6, 11, 0])
    found = model.log_weights(SIDES, words.astype(np.float64)[:, None], rows)
    np.testing.assert_allclose(found, linear("decoder.classifier", features())[rows, words], rtol=1e-9)


@pytest.mark.parametrize("coupling", ["gls", "list"])
def test_reconstruct(tmp_path: Path, coupling: str) -> None:
    """The network, recomputed with NumPy; NaN for a message without a word only."""
    words = np.arange(BATCH, dtype=np.float64)[::-1].copy()
    words[3] = np.nan
    found = load_decoder_model(write_codebook(tmp_path, coupling)).reconstruct(words[:, None], SIDES)
    assert np.isnan(found).all(axis=(1, 2)).tolist() == [b == 3 for b in range(BATCH)]
    own = {name: tensor.astype(np.float64) for name, tensor in codebook_tensors(coupling).items()}
    chosen = np.arange(BATCH)[::-1]
    fused = linear("decoder.fusion", features(coupling), coupling)
    hidden = np.maximum(fused * (1.0 + own["decoder.scale"][chosen]) + own["decoder.shift"][chosen], 0.0)
    hidden = np.maximum(hidden + linear("decoder.mixing", hidden, coupling), 0.0)
    expected = np.tanh(linear("decoder.output", hidden, coupling)).reshape(BATCH, 4, 3)
    keep = ~np.isnan(words)
    np.testing.assert_allclose(found[keep], expected[keep], rtol=1e-9)


@pytest.mark.parametrize("coupling", ["gls", "baseline", "list"])
def test_codec(tmp_path: Path, coupling: str) -> None:
    """Every word that a decoder picks is of the bin; a batch of one picks as a batch of many does."""
    card = write_codebook(tmp_path, "list" if coupling == "list" else "gls")
    encoder, decoders = ends(card, coupling=coupling)
    sources = np.sign(2.0 * uniforms(BATCH * 12, 1) - 1.0).reshape(BATCH, 4, 3)  # far enough apart for two messages
    batch = encoder.encode(sources, 5)
    decoded = [decoder.decode(batch.payload, SIDES, 5) for decoder in decoders]
    assert (batch.labels == batch.picks % BINS).all()
    for k, found in enumerate(decoded):
        assert found.failures == {}
        assert np.array_equal(found.picks % BINS, batch.labels)
        assert found.reconstructions.shape == (BATCH, 4, 3)
        if coupling == "list":
            assert np.array_equal(found.picks, batch.labels + BINS * k)
        for b in range(BATCH):
            alone = encoder.encode(sources[b : b + 1], 5 + b)
            assert alone.picks[0] == batch.picks[b]
            assert decoders[k].decode(alone.payload, SIDES[b : b + 1], 5 + b).picks[0] == found.picks[b]
    assert (coupling == "list") == (decoded[0].picks != decoded[1].picks).all()
    assert len(set(batch.labels.tolist())) > 1


@pytest.mark.parametrize("channels", [1, 3])
def test_colour(tmp_path: Path, channels: int) -> None:
    colours = (3,) if channels == 3 else ()
    encoder, decoders = ends(write_codebook(tmp_path, "list", channels))
    assert (encoder.model.source_shape, decoders[0].model.side_shape) == ((4, 3, *colours), (3, 2, *colours))
    batch = encoder.encode(np.zeros((2, 4, 3, *colours)))
    assert decoders[1].decode(batch.payload, np.zeros((2, 3, 2, *colours))).reconstructions.shape == (2, 4, 3, *colours)


@pytest.mark.parametrize(
    ("coupling", "change", "field", "given", "expected"),
    [
        ("gls", {"pool_size": 8}, "pool_size", "8", "12"),
        ("gls", {"bins": 2}, "bins", "2", "4"),
        ("gls", {"model_digest": bytes(32)}, "model_digest", "00", ""),
        ("gls", {"pool_kind": "gaussian"}, "pool_kind", "gaussian", "discrete"),
        ("gls", {"coupling": "list"}, "coupling", "list", "gls or baseline"),
        ("list", {"coupling": "gls"}, "coupling", "gls", "list"),
        ("list", {"coupling": "baseline"}, "coupling", "baseline", "list"),
    ],
)
def test_sessions_of_others(
    tmp_path: Path, coupling: str, change: dict[str, Any], field: str, given: str, expected: str
) -> None:
    """Refused at both ends, by the field's name."""
    card = write_codebook(tmp_path, coupling)
    fields = {"pool_kind": "discrete", "pool_size": WORDS, "bins": BINS, "decoders": 3, "model_digest": card.digest}
    session = make_session(**(fields | {"coupling": coupling} | change))
    with refused(field, given, expected, SessionMismatch):
        Encoder(session, load_encoder_model(card))
    with refused(field, given, expected, SessionMismatch):
        Decoder(session, 0, load_decoder_model(card))
