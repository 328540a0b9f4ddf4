"""Codebook recipes: what a step's loss is made of, what starting from another model means, and that it learns."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from decoder import load_decoder_model
from encoder import load_encoder_model
from encoder.image_task import Images, ImageTask
from experiments.codebook_recipe import (
    CodebookOptions,
    CodebookRecipe,
    ListRecipe,
    QuantiserRecipe,
    drawn_error,
    drawn_messages,
    fused_features,
    start_from,
    word_errors,
)
from experiments.coding import code_in_process
from experiments.discrete_recipe import DiscreteRecipe, marginal_loss
from experiments.distortion import best_squared_errors
from experiments.recipes import RECIPES, recipe_options
from experiments.trainer import TrainingOptions, draw
from experiments.training import TrainingData, train
from experiments.zero_bits_recipe import ZeroBitsRecipe
from shared_rng import Codebook, Coupling, ModelCard, Session, load_card
from tests.models import refused, uniforms

TASK = ImageTask("shades", height=8, width=8, crop=4)


def shades(count: int, seed: int = 5) -> Images:
    """Images whose right half is one of four shades; the left half tells nothing."""
    images = np.floor(20 * uniforms(count * 64, seed)).astype(np.uint8).reshape(count, 8, 8)
    images[:, :, 4:] += (np.floor(4 * uniforms(count, seed + 1)).astype(np.uint8) * 70)[:, None, None]
    return images


def trained(folder: Path, recipe: type[CodebookRecipe], options: CodebookOptions, epochs: int = 12) -> ModelCard:
    data = TrainingData(TASK, shades(1200), "--images DIR")
    return train(lambda: recipe(TASK, options), data, folder, TrainingOptions(epochs=epochs, batch=40, seed=1))


def coded(card: ModelCard, coupling: Coupling) -> float:
    """mse_paper of 300 images through a real session."""
    book = Codebook.from_card(card)
    fields = {"pool_kind": "discrete", "pool_size": book.words, "bins": book.bins, "model_digest": card.digest}
    session = Session(seed=1, decoders=2, coupling=coupling, **fields)
    images = shades(300, 8)
    sources, sides = TASK.sources(images), [TASK.side_information(images, k) for k in range(2)]
    outcome = code_in_process(session, load_encoder_model(card), load_decoder_model(card), sources, sides)
    return float(best_squared_errors(sources, outcome.reconstructions).mean()) / 2.0


NOISE = 400 / 12 / 127.5**2 / 2.0
"""mse_paper of a reconstruction that knows the shade: 20 grey levels, evenly."""
TWO_SHADES = 35.0**2 / 127.5**2 / 2.0
"""What is added where a reconstruction lies between two neighbouring shades."""


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> object:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def list_card(tmp_path_factory: pytest.TempPathFactory) -> ModelCard:
    return trained(tmp_path_factory.mktemp("list"), ListRecipe, CodebookOptions(2, 2))


def test_a_list_learns_all_shades(list_card: ModelCard) -> None:
    """One bit and two decoders: four words, one a shade. What the card says is what a session gives."""
    found = coded(list_card, "list")
    assert found < NOISE + 0.1 * TWO_SHADES
    assert list_card.training["metrics"]["mse_paper"] == pytest.approx(found, rel=0.3)


def test_a_quantiser_learns_pairs(tmp_path: Path) -> None:
    """Two words: between two shades each. Its exported distribution is nearly its greatest weight."""
    card = trained(tmp_path, QuantiserRecipe, CodebookOptions(2, 2))
    assert coded(card, "gls") == pytest.approx(NOISE + TWO_SHADES, rel=0.15)
    logits = load_encoder_model(card).log_weights(TASK.sources(shades(50)), np.tile([[0.0], [1.0]], (50, 1, 1)))
    assert np.median(np.abs(logits[:, 0] - logits[:, 1])) > 8.0


def test_gls_is_better_than_one_shared_race(list_card: ModelCard, tmp_path: Path) -> None:
    """Two words a bin that the side information does not tell apart: two races hit 2/3 of the time, one 1/2."""
    options = CodebookOptions(2, 2, start=str(list_card.weights.parent) if list_card.weights else None)
    card = trained(tmp_path, DiscreteRecipe, options, epochs=4)
    gls, baseline = coded(card, "gls"), coded(card, "baseline")
    assert gls < 0.95 * baseline
    metrics = card.training["metrics"]
    assert metrics["mse_paper"] < 0.95 * metrics["mse_paper_baseline"]
    assert list_card.weights is not None
    name = list_card.weights.parent.name
    assert card.training["options"]["start"] == name
    assert f"--start {name} --epochs" in card.training["command"]


@pytest.mark.parametrize("recipe", [ListRecipe, QuantiserRecipe, DiscreteRecipe])
@pytest.mark.parametrize(("decoders", "bins"), [(1, 2), (3, 8)])
def test_a_step(recipe: type[CodebookRecipe], decoders: int, bins: int) -> None:
    """Every half has a gradient, at the start and in the end."""
    torch.manual_seed(1)
    made = recipe(TASK, CodebookOptions(decoders, bins))
    source, sides = torch.rand(16, 32), torch.rand(16, decoders, 16)
    for share in (0.0, 0.99):
        made.modules().zero_grad()
        loss, parts = made.step(source, sides, share)
        loss.backward()
        assert all(np.isfinite(value) for value in parts.values())
        for name in ("encoder.layers.4.weight", "decoder.scale", "decoder.features.0.weight", "decoder.output.bias"):
            gradient = dict(made.modules().named_parameters())[name].grad
            assert gradient is not None
            assert gradient.abs().sum() > 0.0


@pytest.mark.parametrize("recipe", [ListRecipe, DiscreteRecipe, ZeroBitsRecipe])
@pytest.mark.parametrize("decoders", [0, 65537])
def test_more_decoders_than_a_session_has(recipe: type[Any], decoders: int) -> None:
    with refused("decoders", str(decoders), "an integer in 1 … 65536"):
        recipe(TASK, CodebookOptions(decoders, 4))


@pytest.mark.parametrize("weight", [math.nan, math.inf])
def test_drawing_from_what_is_no_number(weight: float) -> None:
    """Which training that diverges comes to before its loss is seen."""
    assert draw(torch.tensor([[0.0, 2.0], [3.0, 0.0]])).tolist() == [1, 0]
    with refused("training", "probabilities that are no numbers", "try a smaller learning rate"):
        draw(torch.tensor([[0.0, 2.0], [weight, 0.0]]))


@pytest.mark.parametrize("recipe", [ListRecipe, DiscreteRecipe])
def test_diverged_training_is_told(recipe: type[CodebookRecipe], tmp_path: Path) -> None:
    options = TrainingOptions(epochs=2, batch=40, learning_rate=1e20)
    with refused("training", "", "try a smaller learning rate"):
        train(lambda: recipe(TASK, CodebookOptions(2, 4)), TrainingData(TASK, shades(1200), ""), tmp_path, options)
    assert not (tmp_path / "card.json").exists()


def test_errors_are_those_of_the_decoder() -> None:
    """Scored in blocks and drawn one by one: the same numbers as one reconstruction at a time."""
    torch.manual_seed(2)
    made = ListRecipe(TASK, CodebookOptions(3, 4))
    source, sides = torch.rand(700, 32), torch.randn(700, 3, 16)
    fused = fused_features(made.decoder, sides)
    messages = drawn_messages(torch.zeros(700, 4), 2)
    assert (messages[:, 0] != messages[:, 1]).all()
    words = made.words(messages)
    assert torch.equal(words % 4, messages.unsqueeze(-1).expand(-1, -1, 3))
    assert torch.equal(words[:, :, 2] - words[:, :, 0], torch.full((700, 2), 8))
    errors = word_errors(made.decoder, source, fused, words)
    one = made.decoder.reconstruct(fused[5, 2], words[5, 1, 2])
    assert errors[5, 1, 2].item() == pytest.approx((one - source[5]).square().sum().item(), rel=1e-5)
    drawn = torch.full((700,), 1 * 3 + 2)
    assert drawn_error(made.decoder, source, sides, words, drawn).item() == pytest.approx(
        errors[:, 1, 2].mean().item(), rel=1e-5
    )


def test_a_word_is_worth_what_the_best_of_k_errs() -> None:
    """At a low temperature: the less of the word's error and of the least among the other decoders' picks."""
    errors = torch.tensor([[[1.0, 9.0], [4.0, 7.0], [6.0, 5.0]]])
    picked = torch.tensor([[9.0, 4.0, 5.0]])
    worth = [[1.0, 4.0], [4.0, 5.0], [4.0, 4.0]]
    for k in range(3):
        for word in range(2):
            soft = torch.zeros(1, 3, 2)
            soft[0, k, word] = 1.0
            assert marginal_loss(soft, errors, picked, 1e-3).item() == pytest.approx(worth[k][word], abs=1e-2)
    alone = marginal_loss(torch.ones(1, 1, 2), errors[:, :1], picked[:, :1], 1e-3)
    assert alone.item() == pytest.approx(10.0)


def test_messages_are_drawn_by_their_weight() -> None:
    """First draws follow softmax(logits): 40,000 of probability .2 have standard error .002."""
    torch.manual_seed(3)
    logits = torch.log(torch.tensor([0.2, 0.5, 0.3])).expand(40_000, -1)
    shares = torch.bincount(drawn_messages(logits, 2)[:, 0], minlength=3) / 40_000
    assert shares.tolist() == pytest.approx([0.2, 0.5, 0.3], abs=0.01)


@pytest.mark.parametrize(("decoders", "bins"), [(2, 2), (2, 4), (4, 2), (1, 2)])
def test_starting_from_another_model(list_card: ModelCard, decoders: int, bins: int) -> None:
    """Networks are taken over, words and the encoder's rows by bin and word of the bin; copies have noise."""
    torch.manual_seed(4)
    card = ModelCard("codebook", list_card.architecture | {"words": bins * decoders, "bins": bins}, {}, None, b"")
    original = ListRecipe(TASK, CodebookOptions(2, 2))
    made = ListRecipe(TASK, CodebookOptions(decoders, bins))
    start_from(list_card, list_card, original.encoder, original.decoder)
    start_from(list_card, card, made.encoder, made.decoder)
    assert torch.equal(made.decoder.mixing.weight, original.decoder.mixing.weight)
    for word in range(bins * decoders):
        source = word % bins % 2 + 2 * (word // bins % 2)
        same = torch.equal(made.decoder.scale[word], original.decoder.scale[source])
        assert same == (word % bins < 2 and word // bins < 2)
        torch.testing.assert_close(made.decoder.scale[word], original.decoder.scale[source], atol=0.4, rtol=0.0)
    found = [
        torch.equal(made.encoder.layers[4].weight[m], original.encoder.layers[4].weight[m % 2]) for m in range(bins)
    ]
    assert found == [m < 2 for m in range(bins)]


def test_starting_from_what_does_not_fit(list_card: ModelCard) -> None:
    with refused("--start", "a model of source vae", "a model of source codebook"):
        ListRecipe(TASK, CodebookOptions(start="mnist"))
    other = ImageTask("other", height=10, width=10, crop=4)
    assert list_card.weights is not None
    with refused("--start", "a model with source_height ", "source_height 10"):
        ListRecipe(other, CodebookOptions(start=str(list_card.weights.parent)))
    colour = replace(list_card, architecture=list_card.architecture | {"channels": 3})
    recipe = ListRecipe(TASK, CodebookOptions(2, 2))
    with refused("--start", "a model with channels 3", "channels None"):
        start_from(colour, list_card, recipe.encoder, recipe.decoder)


def test_going_on_from_a_start_that_is_spelled_otherwise(list_card: ModelCard, tmp_path: Path) -> None:
    """The folder may have moved with the checkpoint's; another model is another run."""
    assert list_card.weights is not None
    folder = list_card.weights.parent
    (tmp_path / "moved").mkdir()
    (tmp_path / "moved" / folder.name).symlink_to(folder)
    (tmp_path / "other").symlink_to(folder)
    starts = [str(path) for path in (folder, tmp_path / "moved" / folder.name, tmp_path / "other")]
    first, moved, other = (CodebookOptions(2, 2, start=start) for start in starts)
    made = trained(tmp_path / "out", ListRecipe, first, 1)
    assert trained(tmp_path / "out", ListRecipe, moved, 1).digest == made.digest
    with refused("checkpoint.pt", "start other", f"start {folder.name}"):
        trained(tmp_path / "out", ListRecipe, other, 1)


def test_recipes_are_registered() -> None:
    for name in ("list", "quantiser", "discrete"):
        assert recipe_options(name, {"bins": 4, "decoders": None, "start": "x"}) == CodebookOptions(4, 4, "x")
        assert RECIPES[name].make(TASK, CodebookOptions(1, 2)).card()[1]["bins"] == 2
    with refused("--beta", "1.0", "options of recipe list"):
        recipe_options("list", {"beta": 1.0})
    with refused("bins", "3", "a power of two"):
        ListRecipe(TASK, CodebookOptions(1, 3))


def test_saved_cards_are_read_again(list_card: ModelCard) -> None:
    assert list_card.weights is not None
    assert load_card(list_card.weights.parent).digest == list_card.digest
