"""The recipe ``region``: its loss by hand, and a tiny model that learns, resumes and codes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from decoder import load_decoder_model
from encoder import load_encoder_model
from encoder.image_task import ImageTask
from experiments import images
from experiments.coding import code_in_process
from experiments.distortion import best_squared_errors
from experiments.recipes import recipe_kind
from experiments.region_recipe import RegionOptions, RegionRecipe, expected_error, match_probabilities
from experiments.region_samples import RegionSamples
from experiments.trainer import Trainer, TrainingOptions
from experiments.training import TrainingData, train
from shared_rng import ModelCard, Session, load_card, regions, variates
from tests.models import refused

TASK = ImageTask("digits", height=28, width=28, side="left", crop=14)
OPTIONS = RegionOptions(decoders=2, bins=4, pool_size=64)
RUN = TrainingOptions(epochs=2, batch=64, learning_rate=2e-3, seed=3)


def train_digits(out: Path, options: RegionOptions = OPTIONS, run: TrainingOptions = RUN) -> ModelCard:
    data = TrainingData(TASK, images.bundled_digits(240), "mnist --data DIR")
    return train(lambda: RegionRecipe(TASK, options), data, out, run)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> object:
    """The same order of additions everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    train_digits(folder)
    return folder


def test_samples_lie_in_their_region() -> None:
    """Labels are those of a session, and samples of a region are normals that fell into it."""
    torch.manual_seed(1)
    samples = RegionSamples(8, 4)
    points = torch.randn(1000, 4)
    snapped = np.rint(points.double().numpy() / variates.GRID) * variates.GRID
    assert (samples.labels(points).numpy() == regions.labels(snapped, 8)).mean() > 0.999
    labels = torch.arange(8).repeat(50)
    drawn = samples.draw(labels, 40)
    assert drawn.shape == (400, 40, 4)
    assert (samples.labels(drawn) == labels[:, None]).all()
    assert samples.log_shares.exp().sum().item() == pytest.approx(1.0, abs=1e-6)
    # Weighted by the regions' shares the samples are N(0, I): 16,000 of them, and 2,000 kept a region at most.
    mean = (samples.log_shares.exp()[:, None] * drawn.view(50, 8, 40, 4).mean(dim=(0, 2))).sum(dim=0)
    assert mean.abs().max() < 5.0 / math.sqrt(2000)


def test_match_probabilities() -> None:
    """(1 + q / (K p))^-1 for equal proposals; a decoder whose proposal misses the sample takes no part."""
    for ratio in (0.5, 1.0, 10.0):
        found = match_probabilities(torch.full((1, 4), math.log(ratio)))
        assert found.sum().item() == pytest.approx(1.0 / (1.0 + ratio / 4.0))
    found = match_probabilities(torch.tensor([[math.log(2.0), math.inf]]))
    assert found[0].tolist() == pytest.approx([1.0 / 3.0, 0.0])


def test_expected_error() -> None:
    """No match, or one decoder's, with the others' own samples."""
    match, lone = torch.tensor([0.5, 0.5, 0.25]), torch.tensor([0, 1, 1])
    matched, missed = torch.tensor([1.0, 2.0, 9.0]), torch.tensor([[5.0, 3.0], [5.0, 3.0], [5.0, 3.0]])
    found = expected_error(match, lone, matched, missed, softness=1e-3)
    assert found.tolist() == pytest.approx([2.0, 2.5, 0.75 * 3.0 + 0.25 * 5.0], abs=0.01)
    alone = expected_error(match[:1], lone[:1], torch.tensor([4.0]), torch.tensor([[7.0]]), softness=10.0)
    assert alone.item() == pytest.approx(5.5)


def test_both_ends_learn_from_the_loss() -> None:
    """Every layer has a gradient, also the mixture's and the encoder's variances."""
    torch.manual_seed(2)
    recipe = RegionRecipe(TASK, OPTIONS)
    loss, parts = recipe.step(torch.rand(16, 392) - 0.5, torch.rand(16, 2, 196) - 0.5, share_done=0.5)
    loss.backward()
    for name, parameter in recipe.modules().named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().max() > 0.0, name
    assert set(parts) == {"mse", "mse matched", "match", "rate nats"}
    assert 0.0 < parts["match"] < 1.0


class Interruption(Exception):
    """Ends a run."""


def test_interrupted_run_gives_the_same_bits(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = 0
    step = Trainer.step

    def counted(self: Trainer, source: torch.Tensor, sides: torch.Tensor) -> dict[str, float]:
        nonlocal done
        if done == 4:
            raise Interruption
        done += 1
        return step(self, source, sides)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "step", counted)
        with pytest.raises(Interruption):
            train_digits(tmp_path)
    torch.manual_seed(99)
    train_digits(tmp_path)
    found, expected = ((folder / "weights.safetensors").read_bytes() for folder in (tmp_path, trained))
    assert found == expected


def test_start_from_another_model(trained: Path, tmp_path: Path) -> None:
    """Its weights are where training begins, whatever its K and L_max; other kinds of models are refused."""
    started = RegionRecipe(TASK, RegionOptions(decoders=1, bins=8, start=str(trained)))
    tensors = load_file(trained / "weights.safetensors")
    for name, tensor in started.modules().state_dict().items():
        assert torch.equal(tensor, tensors[name].float())
    with refused("--start", "vae", "recipe region"):
        RegionRecipe(TASK, RegionOptions(start="mnist"))
    with refused("--start", "a model with source_height 28", "source_height 8"):
        RegionRecipe(ImageTask("small", height=8, width=8, crop=4), RegionOptions(start=str(trained)))


def test_card(trained: Path) -> None:
    card = load_card(trained)
    assert (card.source, card.architecture["weights_head"]) == ("vae", "mixture")
    assert "--recipe region --decoders 2 --bins 4 --pool-size 64 --epochs 2" in card.training["command"]
    metrics = card.training["metrics"]
    assert 0.0 < metrics["match_probability"] <= 1.0
    assert 0.05 < metrics["mse"] < 0.6


def test_trained_model_codes(trained: Path, tmp_path: Path) -> None:
    """Through sessions, both couplings; more training is better, and the games that metrics are from are the codec."""
    digits = images.bundled_digits(1000)[500:]
    sources = TASK.sources(digits)
    sides = [TASK.side_information(digits, k) for k in range(2)]
    long = train_digits(tmp_path, run=TrainingOptions(epochs=24, batch=64, learning_rate=2e-3, seed=3))
    errors = {}
    for name, card in (("short", load_card(trained)), ("long", long)):
        for coupling in ("gls", "baseline"):
            session = Session(
                seed=7,
                pool_size=64,
                bins=4,
                decoders=2,
                latent_dimension=4,
                binning="region",
                coupling=coupling,
                model_digest=card.digest,
            )
            outcome = code_in_process(session, load_encoder_model(card), load_decoder_model(card), sources, sides)
            errors[name, coupling] = best_squared_errors(sources, outcome.reconstructions).mean()
    assert errors["long", "gls"] < errors["short", "gls"]
    assert errors["long", "gls"] < errors["long", "baseline"]


@pytest.mark.parametrize("training", [{}, {"options": [1]}, {"options": {}}, {"options": {"pool_size": "64"}}])
def test_cards_without_a_pool_size(training: dict[str, object]) -> None:
    """Sessions have N of the training, so a card must tell it."""
    card = ModelCard("vae", {"latent_dimension": 4}, training, None, bytes(32))
    with refused("card training.options.pool_size", expected="an integer, since the recipe is region"):
        recipe_kind("region").pools(card, 2, 4)


def test_usual_pool_size() -> None:
    """256 where there is a choice, or more where L_max is larger; what a model was trained for where there is none."""
    card = ModelCard("vae", {"latent_dimension": 4, "words": 8}, {"options": {"pool_size": 64}}, None, bytes(32))
    assert [recipe_kind("paper").usual_pool_size(card, 2, bins) for bins in (4, 256, 512)] == [256, 256, 512]
    assert recipe_kind("region").usual_pool_size(card, 2, 4) == 64
    assert recipe_kind("list").usual_pool_size(card, 2, 4) == 8
    with refused("bins", "128", "at most pool_size, 64"):
        recipe_kind("region").usual_pool_size(card, 2, 128)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("decoders", 0, "an integer in 1 … 65536"),
        ("decoders", 65537, "an integer in 1 … 65536"),
        ("bins", 1, "a power of two"),
        ("bins", 3, "a power of two"),
        ("pool_size", 3, "4 … 16777216"),
        ("pool_size", 2**24 + 1, "4 … 16777216"),
    ],
)
def test_refused_options(name: str, value: int, expected: str) -> None:
    with refused(name, str(value), expected):
        RegionRecipe(TASK, RegionOptions(**({"decoders": 2, "bins": 4, "pool_size": 64} | {name: value})))
