"""Encoder search of image models: same wire, same decoders, the best message under simulated side information."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decoder import Decoder, load_decoder_model
from encoder import Encoder, image_search, load_encoder_model
from encoder.image_task import ImageTask
from encoder.similar import SimilarImages
from shared_rng import Session, bin_labels, load_card
from tests.bits import ESTIMATOR, MIXTURE, WORDS, write_model
from tests.models import SEED, Floats, refused, uniforms

IMAGES = 5
TASK = ImageTask("own", height=6, width=10, side="left", crop=4)
PICTURES = np.floor(256 * uniforms(60 * 60)).astype(np.uint8).reshape(60, 6, 10)
SOURCES = TASK.sources(np.floor(256 * uniforms(24 * 60, 2)).astype(np.uint8).reshape(24, 6, 10)).astype(np.float64)
FIRST = 7

CASES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "estimator": ("vae", ESTIMATOR, {}),
    "estimator, baseline": ("vae", ESTIMATOR, {"coupling": "baseline", "binning": "modulo"}),
    "convolutional": ("vae", ESTIMATOR | {"network": "convolutional"}, {}),
    "mixture, regions": ("vae", MIXTURE, {"binning": "region"}),
    "words": ("codebook", WORDS | {"coupling": "gls", "words": 64}, {}),
    "words, baseline": ("codebook", WORDS | {"coupling": "gls", "words": 64}, {"coupling": "baseline"}),
    "list": ("codebook", WORDS | {"coupling": "list", "words": 16}, {"coupling": "list", "pool_size": 16}),
}
QUICK = [name for name in CASES if name != "convolutional"]


@dataclass(frozen=True)
class Ends:
    """One session's encoder, with and without search, and its decoders."""

    similar: SimilarImages
    plain: Encoder
    searched: Encoder
    decoders: list[Decoder]

    @property
    def session(self) -> Session:
        return self.plain.session


def ends(folder: Path, name: str) -> Ends:
    source, architecture, changes = CASES[name]
    card = write_model(folder, source, architecture)
    fields: dict[str, Any] = {"bins": 8, "decoders": 2, "pool_size": 64, "latent_dimension": 2}
    if source == "codebook":
        fields |= {"pool_kind": "discrete", "latent_dimension": 1}
    session = Session(seed=SEED, model_digest=card.digest, **(fields | changes))
    similar = SimilarImages(TASK, PICTURES)
    model, decoder = load_encoder_model(card, similar), load_decoder_model(card)
    decoders = [Decoder(session, k, decoder) for k in range(2)]
    return Ends(similar, Encoder(session, model), Encoder(session, model, IMAGES), decoders)


def costs(made: Ends) -> Floats:
    """Mean over similar images of the best real decoder's error, for every message: [B, L_max]."""
    count, bins = len(SOURCES), made.session.bins
    crops = made.similar.crops(made.similar.nearest(SOURCES, IMAGES), 2)
    shape = (count, bins, IMAGES)
    labels = np.broadcast_to(np.arange(bins, dtype=np.uint32)[:, None], shape).ravel()
    numbers = np.broadcast_to(np.arange(FIRST, FIRST + count)[:, None, None], shape).ravel().tolist()
    sources = np.broadcast_to(SOURCES[:, None, None], (*shape, 6, 5)).reshape(-1, 6, 5)
    errors = []
    for k, decoder in enumerate(made.decoders):
        sides = np.broadcast_to(crops[:, None, :, k], (*shape, 4, 4)).reshape(-1, 4, 4)
        found = decoder.decode_labels(labels, sides, numbers)
        errors.append(np.square(found.reconstructions - sources).sum(axis=(1, 2)))
    return np.nan_to_num(np.min(errors, axis=0).reshape(shape).mean(axis=2), nan=np.inf)


@pytest.mark.parametrize("name", CASES)
def test_the_best_message_is_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Of all, the one that real decoders answer best to, with the crops that stand for their side information."""
    monkeypatch.setattr(image_search, "MESSAGES", 8)
    made = ends(tmp_path, name)
    plain, searched = made.plain.encode(SOURCES, FIRST), made.searched.encode(SOURCES, FIRST)
    table, rows = costs(made), np.arange(len(SOURCES))
    assert np.array_equal(searched.labels, table.argmin(axis=1))
    # It is another one often enough for this to say something.
    assert (searched.labels != plain.labels).mean() > 0.2
    assert (table[rows, searched.labels] < table[rows, plain.labels])[searched.labels != plain.labels].all()


@pytest.mark.parametrize("name", QUICK)
def test_few_messages_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With fewer than all, the score is never worse than that of GLS, whose message is among them."""
    monkeypatch.setattr(image_search, "MESSAGES", 3)
    made = ends(tmp_path, name)
    plain, searched = made.plain.encode(SOURCES, FIRST).labels, made.searched.encode(SOURCES, FIRST).labels
    table, rows = costs(made), np.arange(len(SOURCES))
    assert (table[rows, searched] <= table[rows, plain]).all()
    assert (table[rows, searched] < table[rows, plain]).any()
    monkeypatch.setattr(image_search, "MESSAGES", 1)
    assert np.array_equal(ends(tmp_path, name).searched.encode(SOURCES, FIRST).labels, plain)


@pytest.mark.parametrize("name", QUICK)
def test_the_pick_is_the_winner_of_the_sent_bin(tmp_path: Path, name: str) -> None:
    """The pick lies in the bin, is that of GLS where the message is, and every decoder picks in the bin."""
    made = ends(tmp_path, name)
    plain, searched = made.plain.encode(SOURCES, FIRST), made.searched.encode(SOURCES, FIRST)
    pools = bin_labels(made.session, range(FIRST, FIRST + len(SOURCES)))
    rows = np.arange(len(SOURCES))
    assert np.array_equal(pools[rows, searched.picks], searched.labels)
    same = searched.labels == plain.labels
    assert same.any()
    assert np.array_equal(searched.picks[same], plain.picks[same])
    sides = TASK.side_information(PICTURES[: len(SOURCES)], 1)
    decoded = made.decoders[1].decode(searched.payload, sides, FIRST)
    assert decoded.failures == {}
    assert np.array_equal(pools[rows, decoded.picks], searched.labels)
    assert len(searched.payload) == len(plain.payload)


@pytest.mark.parametrize("name", QUICK)
def test_a_batch_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A batch of one as one of many; whatever is computed at a time."""
    whole = ends(tmp_path, name).searched.encode(SOURCES[:8], FIRST)
    monkeypatch.setattr(image_search, "_ANSWERS", 20)
    monkeypatch.setattr(image_search, "_WEIGHTS", 50)
    made = ends(tmp_path, name)
    alone = [made.searched.encode(SOURCES[b : b + 1], FIRST + b) for b in range(8)]
    assert np.array_equal(np.concatenate([batch.labels for batch in alone]), whole.labels)
    assert np.array_equal(np.concatenate([batch.picks for batch in alone]), whole.picks)


def test_empty_bins_are_never_sent(tmp_path: Path) -> None:
    """Where labels are random and as many as candidates nearly, some bins hold none."""
    card = write_model(tmp_path, "vae", ESTIMATOR)
    session = Session(
        seed=SEED, model_digest=card.digest, bins=32, decoders=2, pool_size=40, latent_dimension=2, binning="random"
    )
    model = load_encoder_model(card, SimilarImages(TASK, PICTURES))
    found = Encoder(session, model, IMAGES).encode(SOURCES, FIRST)
    pools = bin_labels(session, range(FIRST, FIRST + len(SOURCES)))
    assert np.array_equal(pools[np.arange(len(SOURCES)), found.picks], found.labels)


def test_refusals(tmp_path: Path) -> None:
    made = ends(tmp_path, "list")
    card = load_card(tmp_path)
    with refused("encoder search", "without images", "--search-images"):
        Encoder(made.session, load_encoder_model(card), 8)
    with refused("search images", "61", "1 … 60"):
        Encoder(made.session, made.plain.model, 61)
