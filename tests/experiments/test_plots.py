"""Plots are written and show what they are given; they read records and the example, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from matplotlib.axes import Axes
from PIL import Image

from experiments import plots
from experiments.coding import Example, Outcome
from experiments.results import Record
from tests.models import uniforms


def pixels(path: Path) -> npt.NDArray[np.uint8]:
    with Image.open(path) as image:
        assert image.format == "PNG"
        return np.asarray(image.convert("RGB"))


def has_colour(picture: npt.NDArray[np.uint8], colour: str) -> bool:
    """Whether some pixels have the colour exactly, as the inside of a line or marker does."""
    rgb = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return int((picture == rgb).all(axis=2).sum()) > 20


def record(coupling: str, decoders: int, bins: int, **changes: Any) -> Record:
    fields: dict[str, Any] = {
        "source": "mnist",
        "coupling": coupling,
        "decoders": decoders,
        "bins": bins,
        "bits": bins.bit_length() - 1,
        "messages": 64,
        "pool_size": 256,
        "match_probability": 0.5,
        "failed_messages": 0,
        "payload_bytes": 16,
        "seconds": 1.0,
        "mse_paper": 0.1 / decoders,
        "mse_paper_sem": 0.005,
    }
    return Record(**(fields | changes))


@pytest.mark.parametrize("decoders", [(1,), (2, 4), (1, 2, 3, 4), (5,)])
def test_rate_distortion(tmp_path: Path, decoders: tuple[int, ...]) -> None:
    """A colour a K, and no colour of a K that did not run; a fifth decoder takes the first colour again."""
    records = [record(c, k, bins) for c in ("gls", "baseline") for k in decoders for bins in (4, 16)]
    path = tmp_path / "plot.png"
    plots.rate_distortion(records, path)
    picture = pixels(path)
    shown = [has_colour(picture, colour) for colour in plots.COLOURS]
    assert shown == [any((k - 1) % 4 == place for k in decoders) for place in range(4)]


def test_rate_distortion_of_one_cell(tmp_path: Path) -> None:
    """One coupling and one L_max, which the paper has not, draw a point and no warning."""
    plots.rate_distortion([record("gls", 1, 2)], tmp_path / "plot.png")
    assert has_colour(pixels(tmp_path / "plot.png"), plots.COLOURS[0])


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[npt.NDArray[Any]]:
    """Every picture that is drawn, in order."""
    pictures: list[npt.NDArray[Any]] = []
    show = Axes.imshow

    def imshow(self: Axes, picture: npt.NDArray[Any], **options: Any) -> Any:
        assert (options["vmin"], options["vmax"]) == (0.0, 1.0)
        pictures.append(picture)
        return show(self, picture, **options)

    monkeypatch.setattr(Axes, "imshow", imshow)
    return pictures


def example(picks: list[list[int]]) -> Example:
    """Messages with the encoder's pick 0, and the decoders' picks [K][B]; decoder k is off by (k + 1) / 10."""
    decoders, messages = len(picks), len(picks[0])
    sources = (uniforms(messages * 28 * 14) - 0.5).reshape(messages, 28, 14).astype(np.float32)
    outcome = Outcome(
        encoder_picks=np.zeros(messages, dtype=np.int64),
        decoder_picks=np.array(picks),
        reconstructions=np.stack([sources + (k + 1) / 10 for k in range(decoders)]),
        payload_bytes=1,
    )
    sides = (uniforms(decoders * messages * 14 * 14, 2) - 0.5).reshape(decoders, messages, 14, 14).astype(np.float32)
    return Example(sources, sides, outcome, "GLS, 4 bits")


def shown_as(picture: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Pixels in [-1, 1] as they are drawn, in [0, 1]."""
    return np.clip((picture + 1.0) / 2.0, 0.0, 1.0)


@pytest.mark.parametrize(
    ("picks", "shown"),
    [
        # Matched messages first, then unmatched ones, at most four of each.
        ([[0, 5, 5, 0], [5, 5, 0, 0]], [0, 2, 3, 1]),
        ([[0] * 9], [0, 1, 2, 3]),
        ([[5, 6]], [0, 1]),
        ([[5] * 3 + [0] * 6], [3, 4, 5, 6, 0, 1, 2]),
    ],
)
def test_examples(tmp_path: Path, drawn: list[npt.NDArray[Any]], picks: list[list[int]], shown: list[int]) -> None:
    """Source, side information, reconstructions, and the best one, a row a message."""
    given = example(picks)
    plots.examples(given, tmp_path / "plot.png")
    expected = []
    for message in shown:
        reconstructions = given.outcome.reconstructions[:, message]
        expected += [given.sources[message], *given.sides[:, message], *reconstructions, reconstructions[0]]
    assert len(drawn) == len(expected)
    for found, wanted in zip(drawn, expected, strict=True):
        np.testing.assert_allclose(found, shown_as(wanted))
    picture = pixels(tmp_path / "plot.png")
    assert len(np.unique(picture)) > 100
    # A green frame marks a decoder that picked the encoder's sample.
    assert has_colour(picture, "#009E73") == any(0 in row for row in picks)


def test_best_of_an_example_is_never_a_failed_message(tmp_path: Path, drawn: list[npt.NDArray[Any]]) -> None:
    """A failed message has no reconstruction: the other decoder's is the best."""
    given = example([[-1], [0]])
    given.outcome.reconstructions[0] = np.nan
    plots.examples(given, tmp_path / "plot.png")
    np.testing.assert_allclose(drawn[-1], shown_as(given.outcome.reconstructions[1, 0]))
