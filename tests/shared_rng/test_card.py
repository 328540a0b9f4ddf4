"""Model cards: what is refused, and what the digest does and does not cover."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from shared_rng import ModelCard, find_model, load_card
from shared_rng.card import model_digest
from tests.models import refused

WEIGHTS = b"the weights"
SHA256 = hashlib.sha256(WEIGHTS).hexdigest()
CARD: dict[str, Any] = {
    "source": "vae",
    "architecture": {"latent_dimension": 4, "scale": 0.5},
    "weights": {"file": "weights.bin", "sha256": SHA256},
    "training": {"command": "train"},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model folder with a good card and good weights."""
    (tmp_path / "weights.bin").write_bytes(WEIGHTS)
    write(tmp_path, CARD)
    return tmp_path


def write(folder: Path, card: object) -> Path:
    (folder / "card.json").write_text(json.dumps(card), encoding="utf-8")
    return folder


def without(*names: str) -> dict[str, Any]:
    return {name: value for name, value in CARD.items() if name not in names}


def test_good_card(folder: Path) -> None:
    digest = model_digest("vae", CARD["architecture"], SHA256)
    assert load_card(folder) == ModelCard("vae", CARD["architecture"], CARD["training"], folder / "weights.bin", digest)
    assert len(digest) == 32


def test_card_without_weights_and_training(tmp_path: Path) -> None:
    card = load_card(write(tmp_path, without("weights", "training")))
    assert (card.weights, card.training) == (None, {})
    assert card.digest == model_digest("vae", CARD["architecture"], None)


def test_digest_is_part_of_the_format() -> None:
    """Two ends compare it: it must not move with Python, the order of fields, or a restart."""
    summary = '{"architecture": {"a": 1.0, "b": 2}, "source": "gaussian", "weights_sha256": null}'
    assert model_digest("gaussian", {"b": 2, "a": 1.0}, None).hex() == hashlib.sha256(summary.encode()).hexdigest()


def test_digest_ignores_training(folder: Path) -> None:
    before = load_card(folder).digest
    assert load_card(write(folder, CARD | {"training": {"command": "another"}})).digest == before
    assert load_card(write(folder, without("training"))).digest == before


@pytest.mark.parametrize(
    "change",
    [{"source": "gaussian"}, {"architecture": {"latent_dimension": 5, "scale": 0.5}}, {"architecture": {}}],
)
def test_digest_covers_source_and_architecture(folder: Path, change: dict[str, Any]) -> None:
    assert load_card(write(folder, CARD | change)).digest != load_card(write(folder, CARD)).digest


def test_digest_covers_the_weights(folder: Path) -> None:
    before = load_card(folder).digest
    (folder / "weights.bin").write_bytes(b"others")
    sha256 = hashlib.sha256(b"others").hexdigest()
    assert load_card(write(folder, CARD | {"weights": {"file": "weights.bin", "sha256": sha256}})).digest != before


def test_no_card(tmp_path: Path) -> None:
    with refused("model", str(tmp_path), "card.json"):
        load_card(tmp_path)
    with refused("model", str(tmp_path / "nowhere"), "card.json"):
        load_card(tmp_path / "nowhere")


@pytest.mark.parametrize("text", [b"", b"{", b"\xff\xfe", b"{'source': 1}"])
def test_bad_json(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "card.json").write_bytes(text)
    with refused("card.json", "no valid JSON", "a JSON object"):
        load_card(tmp_path)


@pytest.mark.parametrize(
    ("card", "operand", "given", "expected"),
    [
        ([], "card.json", "list", "a JSON object"),
        ("card", "card.json", "str", "a JSON object"),
        (without("source"), "source", "None", "type str"),
        (CARD | {"source": 3}, "source", "3", "type str"),
        (without("architecture"), "architecture", "None", "type dict"),
        (CARD | {"architecture": [1]}, "architecture", "[1]", "type dict"),
        (CARD | {"weights": None}, "weights", "None", "type dict"),
        (CARD | {"weights": {"sha256": SHA256}}, "file", "None", "type str"),
        (CARD | {"weights": {"file": "weights.bin"}}, "sha256", "None", "type str"),
        (CARD | {"weights": {"file": "none.bin", "sha256": SHA256}}, "weights.file", "none.bin", "existing"),
        (CARD | {"weights": {"file": "weights.bin", "sha256": "00" * 32}}, "weights.sha256", "00" * 32, SHA256),
    ],
)
def test_malformed_card(folder: Path, card: object, operand: str, given: str, expected: str) -> None:
    with refused(operand, given, expected):
        load_card(write(folder, card))


@pytest.mark.parametrize("value", ["1", None, True, [1]])
def test_number(value: object) -> None:
    card = ModelCard("gaussian", {"variance": value, "good": 2, "better": 0.5}, {}, None, bytes(32))
    with refused("architecture.variance", repr(value), "a number"):
        card.number("variance")
    with refused("architecture.absent", "None", "a number"):
        card.number("absent")
    assert (card.number("good"), card.number("better")) == (2, 0.5)


def test_find_model_by_name() -> None:
    folder = find_model("gaussian")
    assert folder.name == "gaussian"
    assert load_card(folder).source == "gaussian"


def test_a_folder_of_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither is taken silently for the other; a folder without a model is none."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mnist").mkdir()
    assert find_model("mnist").parent.name == "zoo"
    (tmp_path / "mnist" / "card.json").write_text("{}")
    with refused("model", "'mnist', a shipped model and a folder here", "./mnist"):
        find_model("mnist")
    assert find_model("./mnist") == Path("mnist")
    monkeypatch.chdir(find_model("gaussian").parent)
    assert find_model("mnist").samefile("mnist")


def test_find_model_by_path(folder: Path) -> None:
    assert find_model(str(folder)) == folder


@pytest.mark.parametrize("name", ["no-such-model", "card.json"])
def test_unknown_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "card.json").write_text("{}", encoding="utf-8")
    with refused("model", repr(name), "gaussian"):
        find_model(name)
