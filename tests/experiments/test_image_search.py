"""What encoder search gains and costs: a tiny model on digits that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from encoder import Encoder, load_encoder_model
from encoder.similar import SimilarImages
from experiments import image_search, images
from experiments.catalogue import Model, named_models
from experiments.image_search import ImageSearchOptions, compare
from experiments.results import Record, Results
from shared_rng import Session
from tests.models import refused

DIGITS = images.bundled_digits(240)


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[Model]:
    """Of the shipped digits, the first 40 are for coding, the others for neighbours."""
    monkeypatch.setattr(
        image_search, "load_images", lambda name, folder, *, train: DIGITS[40:] if train else DIGITS[:40]
    )
    return named_models(["mnist-discrete-k4-l4"], "mnist")


def test_records(models: list[Model], tmp_path: Path) -> None:
    """A pair a coupling, on the same randomness; the gain is the difference of the means."""
    records = compare(ImageSearchOptions("mnist", search=3, messages=40, seed=7), models, None)
    assert [(r.coupling, r.search, r.messages, r.decoders, r.bins) for r in records] == [
        ("gls", None, 40, 4, 4),
        ("gls", 3, 40, 4, 4),
        ("baseline", None, 40, 4, 4),
        ("baseline", 3, 40, 4, 4),
    ]
    for plain, searched in zip(records[::2], records[1::2], strict=True):
        gain = plain.mse_paper - searched.mse_paper  # type: ignore[operator]
        assert searched.search_gain == pytest.approx(gain, abs=1e-12)
        assert searched.search_gain_sem > 0.0  # type: ignore[operator]
        assert plain.search_gain is None
        assert searched.encoder_ms > plain.encoder_ms > 0.0  # type: ignore[operator]
        assert len(image_search.row(plain)) == len(image_search.row(searched)) == len(image_search.COLUMNS)
    Results({}, records).write(tmp_path)
    assert Results.read(tmp_path).records == records


def test_the_search_is_the_encoders(models: list[Model]) -> None:
    """Matches of the record are those of picks that the encoder's own search gives."""
    card = models[0].card
    (_, record) = compare(ImageSearchOptions("mnist", search=3, messages=40, seed=7), models, None)[:2]
    session = Session(seed=7, model_digest=card.digest, bins=4, decoders=4, pool_kind="discrete", pool_size=16)
    model = load_encoder_model(card, SimilarImages(images.MNIST, DIGITS[40:]))
    batch = Encoder(session, model, 3).encode(images.MNIST.sources(DIGITS[:40]))
    assert record.payload_bytes == len(batch.payload)
    assert not np.array_equal(batch.labels, Encoder(session, model).encode(images.MNIST.sources(DIGITS[:40])).labels)


@pytest.mark.parametrize(
    ("model", "changes", "operand", "expected"),
    [
        ("mnist-discrete-k4-l4", {"bins": 8}, "model mnist-discrete-k4-l4", "a cell that it serves"),
        ("mnist", {"bins": 8}, "--decoders", "since model mnist serves any"),
        ("mnist", {"bins": 8, "decoders": 2, "pool_size": 100}, "--pool-size", "one of: 128, 256"),
        *(
            ("mnist", {"bins": 8, "decoders": 2} | {name: least - 1}, name, f"at least {least}")
            for name, least in (("search", 1), ("messages", 2), ("decoders", 1), ("bins", 1), ("pool_size", 1))
        ),
    ],
)
def test_refusals(model: str, changes: dict[str, Any], operand: str, expected: str) -> None:
    with refused(operand, expected=expected):
        compare(ImageSearchOptions("mnist", **changes), named_models([model], "mnist"), None)


def test_row_of_a_record_without_search() -> None:
    record = Record(
        source="mnist", coupling="list", decoders=4, bins=4, bits=2, messages=9, mse_paper=0.05, mse_paper_sem=0.001,
        mse_paper_decoders=[0.1, 0.2], match_probability=1.0, encoder_ms=0.25,
    )  # fmt: skip
    assert image_search.row(record)[5:] == ["–", "0.0500", "0.0010", "", "", "0.1500", "1.000", "0.25"]
