"""Training on random digits: an interrupted run gives the same bits, and what it writes loads and is checked."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

from decoder.model import load_decoder_model
from encoder.model import load_encoder_model
from experiments import images
from experiments.images import MNIST
from experiments.paper_recipe import PaperOptions, PaperRecipe
from experiments.trainer import Trainer, TrainingOptions
from experiments.training import TrainingData, train
from shared_rng import CodecError, ModelCard, load_card
from shared_rng.card import model_digest
from tests.models import refused, uniforms

DIGITS = np.rint(255 * uniforms(222 * 784)).astype(np.uint8).reshape(222, 28, 28)
OPTIONS = TrainingOptions(epochs=2, batch=64, learning_rate=2e-3, seed=3)
STEPS = 3
"""A pass: 200 digits train, in whole batches of 64; the last 22 are held out."""


def train_digits(
    out: Path, options: TrainingOptions = OPTIONS, beta: float = 4.0, digits: npt.NDArray[np.uint8] = DIGITS
) -> ModelCard:
    """The paper's recipe on random digits."""
    data = TrainingData(MNIST, digits, "mnist --data DIR")
    return train(lambda: PaperRecipe(MNIST, PaperOptions(beta)), data, out, options)


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> object:
    """The same order of additions everywhere."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a complete run."""
    folder = tmp_path_factory.mktemp("undisturbed")
    train_digits(folder)
    return folder


class Interruption(Exception):
    """Ends a run."""


def interrupted(folder: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """A run that ends after some steps, in any place of a pass."""
    done = 0
    step = Trainer.step

    def counted(self: Trainer, source: torch.Tensor, side: torch.Tensor) -> dict[str, float]:
        nonlocal done
        if done == steps:
            raise Interruption
        done += 1
        return step(self, source, side)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "step", counted)
        with pytest.raises(Interruption):
            train_digits(folder)
    assert not (folder / "card.json").exists()


@pytest.mark.parametrize("steps", [0, 2, STEPS, STEPS + 2])
def test_interrupted_run_gives_the_same_bits(
    undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    """Before the first checkpoint, right at it, and in the next pass: weights and card of an undisturbed run."""
    interrupted(tmp_path, monkeypatch, steps)
    assert (tmp_path / "checkpoint.pt").exists() == (steps >= STEPS)
    torch.manual_seed(steps)  # Whatever ran in between.
    card = train_digits(tmp_path)
    found, expected = ((folder / "weights.safetensors").read_bytes() for folder in (tmp_path, undisturbed))
    assert found == expected
    assert card.digest == load_card(undisturbed).digest
    assert list(tmp_path.glob("*.partial")) == []


def test_finished_run_trains_no_more(undisturbed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same command again writes the same files."""
    for path in undisturbed.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(Trainer, "step", None)
    train_digits(tmp_path)
    assert (tmp_path / "weights.safetensors").read_bytes() == (undisturbed / "weights.safetensors").read_bytes()


@pytest.mark.parametrize(
    ("name", "value"), [("beta", 5.0), ("epochs", 3), ("batch", 32), ("learning_rate", 1e-3), ("seed", 4)]
)
def test_other_options_are_another_run(undisturbed: Path, name: str, value: float) -> None:
    """Refused by name, with both values, and the folder stays as it was."""
    before = {path: path.read_bytes() for path in undisturbed.iterdir()}
    own = {"beta": 4.0, **asdict(OPTIONS)}[name]
    with refused("checkpoint.pt", f"{name} {value}", f"{name} {own}, or another --out"):
        if name == "beta":
            train_digits(undisturbed, beta=value)
        else:
            train_digits(undisturbed, replace(OPTIONS, **{name: value}))
    assert {path: path.read_bytes() for path in undisturbed.iterdir()} == before


def test_seed_decides(undisturbed: Path, tmp_path: Path) -> None:
    """Another seed gives other weights, in a folder of its own."""
    card = train_digits(tmp_path, replace(OPTIONS, seed=4, epochs=1))
    assert card.digest != load_card(undisturbed).digest


def test_card(undisturbed: Path) -> None:
    """It loads, its digest is that of architecture and weights, and it says how the model came about."""
    card = load_card(undisturbed)
    weights = (undisturbed / "weights.safetensors").read_bytes()
    assert card.digest == model_digest("vae", card.architecture, hashlib.sha256(weights).hexdigest())
    assert card.training["options"] == {"beta": 4.0, "architecture": "small", **asdict(OPTIONS)}
    assert card.training["data"]["sha256"] == hashlib.sha256(DIGITS.tobytes()).hexdigest()
    assert (card.training["data"]["images"], card.training["data"]["held_out"]) == (222, 22)
    for option in (
        "train mnist --data DIR --out DIR --recipe paper",
        "--beta 4.0",
        "--epochs 2",
        "--batch 64",
        "--learning-rate 0.002",
        "--seed 3",
    ):
        assert option in card.training["command"]
    metrics = card.training["metrics"]
    assert metrics["held_out_images"] == 22
    # Random pixels cannot be predicted: their variance on [-1, 1] is 1/3. The nets know next to nothing yet.
    assert 0.3 < metrics["mse_encoder_sample"] < 1.0
    assert 0.0 <= metrics["rate_nats"] < 5.0
    assert 0.5 < metrics["estimator_nats"] < 2.5


def test_model_codes(undisturbed: Path) -> None:
    """Both halves take the shapes of the data."""
    card = load_card(undisturbed)
    encoder, decoder = load_encoder_model(card), load_decoder_model(card)
    assert encoder.digest == decoder.digest == card.digest
    digits = images.bundled_digits(3)
    assert encoder.source_shape == (28, 14)
    mean, variance = encoder.target(MNIST.sources(digits).astype(np.float64))
    assert mean.shape == variance.shape == (3, 4)
    side = MNIST.side_information(digits, 0).astype(np.float64)
    assert decoder.side_shape == (14, 14)
    assert decoder.reconstruct(mean, side).shape == (3, 28, 14)
    assert decoder.log_weights(side, mean, np.arange(3)).shape == (3,)


def test_tampered_weights_are_refused(undisturbed: Path, tmp_path: Path) -> None:
    weights = bytearray((undisturbed / "weights.safetensors").read_bytes())
    weights[-1] ^= 1
    (tmp_path / "weights.safetensors").write_bytes(weights)
    text = (undisturbed / "card.json").read_text()
    (tmp_path / "card.json").write_text(text)
    recorded = json.loads(text)["weights"]["sha256"]
    with refused("card weights.sha256", recorded, hashlib.sha256(weights).hexdigest()):
        load_card(tmp_path)


@pytest.mark.parametrize("count", [70, 3])
def test_too_few_digits(tmp_path: Path, count: int) -> None:
    """The last tenth is held out; what is left must fill a batch."""
    with refused("training images", str(count - count // 10), "at least one batch, 64"):
        train_digits(tmp_path / "out", digits=DIGITS[:count])
    assert not (tmp_path / "out").exists()


def test_damaged_checkpoint_is_refused(undisturbed: Path, tmp_path: Path) -> None:
    """Named, instead of a traceback."""
    state = (undisturbed / "checkpoint.pt").read_bytes()
    for damaged in (b"", state[:10], state[:5000], state[: len(state) // 2]):
        (tmp_path / "checkpoint.pt").write_bytes(damaged)
        with refused("checkpoint.pt", "", "a complete checkpoint; remove it"):
            train_digits(tmp_path)
    for other in ([1, 2], {"epoch": 1}):
        torch.save(other, tmp_path / "checkpoint.pt")
        with refused("checkpoint.pt", "", "a complete checkpoint; remove it"):
            train_digits(tmp_path)


def test_diverged_training_is_told(tmp_path: Path) -> None:
    """And no model is written."""
    with refused("training", "a loss of ", "a finite loss"):
        train_digits(tmp_path, replace(OPTIONS, learning_rate=1e20))
    assert not (tmp_path / "card.json").exists()


@pytest.mark.parametrize(("rate", "given"), [(1e20, "infinite or no number"), (1e3, "on held-out images")])
def test_training_that_diverges_in_its_last_step(tmp_path: Path, rate: float, given: str) -> None:
    """After which no loss is computed: the weights show it, or what they give."""
    digits = images.bundled_digits(300)
    one_step = replace(OPTIONS, epochs=1, batch=len(digits) - len(digits) // 10, learning_rate=rate)
    with refused("training", given, "try a smaller learning rate"):
        train_digits(tmp_path, one_step, digits=digits)
    assert not (tmp_path / "card.json").exists()


def test_checkpoint_of_other_digits_is_refused(undisturbed: Path, tmp_path: Path) -> None:
    """The card would name data of which the weights have seen a part only."""
    (tmp_path / "checkpoint.pt").write_bytes((undisturbed / "checkpoint.pt").read_bytes())
    with pytest.raises(CodecError, match=r"checkpoint\.pt"):
        train_digits(tmp_path, digits=DIGITS[:215])


def test_returned_card_is_the_written_one(tmp_path: Path) -> None:
    card: ModelCard = train_digits(tmp_path, replace(OPTIONS, epochs=1))
    assert load_card(tmp_path) == card


def test_ramp_and_clip() -> None:
    """The step size rises to the cosine, and the gradient is cut; both are part of what a checkpoint belongs to."""
    torch.manual_seed(1)
    trainer = Trainer(PaperRecipe(MNIST, PaperOptions()), replace(OPTIONS, ramp=0.5, clip=1e-3), steps=8)
    source, sides = torch.rand(16, 392) - 0.5, torch.rand(16, 1, 196) - 0.5
    sizes = []
    for _ in range(8):
        sizes.append(trainer.optimiser.param_groups[0]["lr"])
        trainer.step(source, sides)
        gradients = [p.grad for p in trainer.modules.parameters() if p.grad is not None]
        assert torch.stack([g.square().sum() for g in gradients]).sum().sqrt().item() <= 1.001e-3
    cosine = 2e-3 * 0.5 * (1.0 + np.cos(np.pi * np.arange(8) / 8))
    np.testing.assert_allclose(sizes, cosine * np.minimum(1.0, np.arange(1, 9) / 4.0), rtol=1e-9)
