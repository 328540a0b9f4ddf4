"""Train the β-VAE and the weight estimator of the image codec (arXiv 2506.05632, appendix D.4).

Loss a batch: sum of squared errors over the source's pixels in [-1, 1], plus β · KL(p_{W|A} ‖ N(0, I)) in
nats, plus the binary cross-entropy by which the estimator tells joint pairs (w, t) from independent ones.
β rises over the first third of the epochs, or the latent collapses. The latent is cut off from the
estimator's loss, which would otherwise make it easy to recognise instead of useful.
"""

from __future__ import annotations

import hashlib
import json
import pickle
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from decoder import vae as decoder_vae
from decoder.vae import DecoderNetwork, network_from_card
from encoder import vae as encoder_vae
from encoder.files import to_unit_range
from encoder.vae import EncoderNetwork
from experiments import images
from experiments.progress import progress
from shared_rng import CodecError, ModelCard
from shared_rng.card import CARD_NAME, model_digest, weights_sha256

ARCHITECTURE = {
    "latent_dimension": 4,
    "source_height": images.SIDE,
    "source_width": images.HALF,
    "side_height": images.CROP,
    "side_width": images.CROP,
    "encoder_hidden": 512,
    "decoder_hidden": 512,
    "side_features": 128,
    "estimator_hidden": 256,
}
WEIGHTS_NAME = "weights.safetensors"
CHECKPOINT_NAME = "checkpoint.pt"
_NEGATIVES = 4


@dataclass(frozen=True)
class TrainingOptions:
    """What determines a training run.

    Attributes:
        beta: weight of the rate (nats) against the sum of squared errors.
        epochs: passes over the training digits.
        batch: digits a step.
        learning_rate: Adam's first step size; it falls to zero along a cosine.
        seed: of the initial weights, the order of digits, the crops and the latents.
    """

    beta: float = 8.0
    epochs: int = 40
    batch: int = 128
    learning_rate: float = 1e-3
    seed: int = 1


@dataclass(frozen=True)
class Losses:
    """Means over a batch or an epoch: rate in nats, mse a pixel of the source in [-1, 1], estimator in nats."""

    loss: float
    rate: float
    mse: float
    estimator: float


class Trainer:
    """Both halves of the model with one optimiser; its state can be saved and restored."""

    def __init__(self, options: TrainingOptions, steps_per_epoch: int) -> None:
        self.options = options
        torch.manual_seed(options.seed)
        card = ModelCard("vae", dict(ARCHITECTURE), {}, None, b"")
        latent = ARCHITECTURE["latent_dimension"]
        self.encoder = EncoderNetwork(images.SIDE * images.HALF, ARCHITECTURE["encoder_hidden"], latent)
        self.decoder: DecoderNetwork = network_from_card(card)
        parameters = [*self.encoder.parameters(), *self.decoder.parameters()]
        self.optimiser = torch.optim.Adam(parameters, lr=options.learning_rate, betas=(0.9, 0.99))
        total = options.epochs * steps_per_epoch
        self.schedule = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimiser, T_max=total)
        self.warm_up_steps = max(1, total // 3)
        self.steps = 0

    def losses(self, source: Tensor, side: Tensor, beta: float) -> tuple[Tensor, Losses]:
        """Total loss of a batch to minimise, and its parts."""
        mean, log_variance = self.encoder(source)
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        features = self.decoder.features(side)
        error = (self.decoder.reconstruct(latent, features) - source).square().sum(dim=1).mean()
        rate = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(dim=1).mean()
        estimator = self._estimator_loss(latent.detach(), features)
        total = error + beta * rate + estimator
        parts = Losses(total.item(), rate.item(), error.item() / source.shape[1], estimator.item())
        return total, parts

    def _estimator_loss(self, latent: Tensor, features: Tensor) -> Tensor:
        rows = torch.arange(len(latent))
        joint = self.decoder.log_ratio(latent, features, rows)
        others = torch.cat([rows.roll(shift + 1) for shift in range(_NEGATIVES)])
        independent = self.decoder.log_ratio(latent.repeat(_NEGATIVES, 1), features, others)
        return nn.functional.softplus(-joint).mean() + nn.functional.softplus(independent).mean()

    def step(self, source: Tensor, side: Tensor) -> Losses:
        """One optimiser step."""
        beta = self.options.beta * min(1.0, self.steps / self.warm_up_steps)
        total, parts = self.losses(source, side, beta)
        self.optimiser.zero_grad()
        total.backward()
        self.optimiser.step()
        self.schedule.step()
        self.steps += 1
        return parts

    def state(self, epoch: int, crops: np.random.Generator, digits: str) -> dict[str, object]:
        """All that resuming after ``epoch`` epochs needs."""
        return {
            "options": asdict(self.options),
            "digits": digits,
            "epoch": epoch,
            "steps": self.steps,
            "encoder": self.encoder.state_dict(),
            "decoder": self.decoder.state_dict(),
            "optimiser": self.optimiser.state_dict(),
            "schedule": self.schedule.state_dict(),
            "torch_rng": torch.get_rng_state(),
            "crops_rng": json.dumps(crops.bit_generator.state),
        }

    def restore(self, path: Path, crops: np.random.Generator, digits: str) -> int:
        """Take up a checkpoint; returns the number of epochs done.

        Raises:
            CodecError: it is damaged, or belongs to a run with other options or digits.
        """
        try:
            state = torch.load(path, weights_only=True)
        except (RuntimeError, EOFError, pickle.UnpicklingError) as error:
            reason = str(error).splitlines()[0]
            raise CodecError(str(path), reason, "a complete checkpoint; remove it to start again") from error
        if state["digits"] != digits:
            raise CodecError(str(path), f"digits {digits[:16]}", f"digits {state['digits'][:16]}, or another --out")
        for name, value in asdict(self.options).items():
            if state["options"].get(name) != value:
                given = f"{name} {value}"
                raise CodecError(str(path), given, f"{name} {state['options'].get(name)}, or another --out")
        self.encoder.load_state_dict(state["encoder"])
        self.decoder.load_state_dict(state["decoder"])
        self.optimiser.load_state_dict(state["optimiser"])
        self.schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["torch_rng"])
        crops.bit_generator.state = json.loads(state["crops_rng"])
        self.steps = state["steps"]
        return int(state["epoch"])


def _tensors(digits: images.Images, offsets: np.ndarray) -> tuple[Tensor, Tensor]:
    source = torch.from_numpy(images.sources(digits)).float().flatten(1)
    side = torch.from_numpy(to_unit_range(images.crop(digits, offsets))).float().flatten(1)
    return source, side


def _batches(count: int, size: int, order: Tensor) -> Iterator[np.ndarray]:
    for start in range(0, count - size + 1, size):
        yield order[start : start + size].numpy()


def train_mnist(digits: images.Images, out: Path, options: TrainingOptions) -> ModelCard:
    """Train on all digits but the last 5,000, which give the card's metrics, and write weights and card.

    Args:
        digits: uint8 [B, 28, 28], the training split.
        out: folder of the checkpoint (one an epoch; a run with the same options resumes), weights and card.
        options: what determines the run.

    Returns:
        The card, as written.
    """
    training, held_out = digits[: -images.HELD_OUT], digits[-images.HELD_OUT :]
    steps = len(training) // options.batch
    if steps == 0:
        raise CodecError("training digits", len(training), f"at least one batch, {options.batch}")
    out.mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(digits.tobytes()).hexdigest()
    trainer = Trainer(options, steps)
    crops = np.random.default_rng(options.seed)
    checkpoint = out / CHECKPOINT_NAME
    done = trainer.restore(checkpoint, crops, digest) if checkpoint.is_file() else 0
    started = time.process_time()
    with progress() as bar:
        task = bar.add_task("training", total=options.epochs * steps, completed=done * steps)
        for epoch in range(done, options.epochs):
            sums = np.zeros(4)
            for rows in _batches(len(training), options.batch, torch.randperm(len(training))):
                offsets = crops.integers(0, images.SIDE - images.CROP + 1, len(rows))
                parts = trainer.step(*_tensors(training[rows], offsets))
                sums += (parts.loss, parts.rate, parts.mse, parts.estimator)
                bar.update(task, advance=1, description=_describe(epoch, options.epochs, parts))
            bar.console.print(_describe(epoch, options.epochs, Losses(*(sums / steps))))
            partial = checkpoint.with_suffix(".partial")
            torch.save(trainer.state(epoch + 1, crops, digest), partial)
            partial.replace(checkpoint)
    seconds = time.process_time() - started
    _export(trainer, out)
    metrics = _held_out_metrics(trainer, out, held_out)
    if done < options.epochs:
        metrics["training_cpu_seconds"] = round(seconds, 1)
    return _write_card(out, options, len(digits), digest, metrics)


def _describe(epoch: int, epochs: int, parts: Losses) -> str:
    return (
        f"epoch {epoch + 1:>{len(str(epochs))}}/{epochs}  loss {parts.loss:7.3f}  rate {parts.rate:5.2f} nats  "
        f"mse {parts.mse:.4f}  estimator {parts.estimator:.3f} nats"
    )


def _export(trainer: Trainer, out: Path) -> None:
    """Weights as float16: half the size, and both ends widen the same numbers."""
    tensors = {encoder_vae.PREFIX + name: t for name, t in trainer.encoder.state_dict().items()}
    tensors |= {decoder_vae.PREFIX + name: t for name, t in trainer.decoder.state_dict().items()}
    save_file({name: t.half().contiguous() for name, t in tensors.items()}, out / WEIGHTS_NAME)


@torch.no_grad()
def _held_out_metrics(trainer: Trainer, out: Path, digits: images.Images) -> dict[str, float]:
    """Rate, error and estimator loss of the exported weights on held-out digits."""
    tensors = {name: t.float() for name, t in load_file(out / WEIGHTS_NAME).items()}
    for module, prefix in ((trainer.encoder, encoder_vae.PREFIX), (trainer.decoder, decoder_vae.PREFIX)):
        own = {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}
        module.load_state_dict(own)
    torch.manual_seed(trainer.options.seed)
    _, parts = trainer.losses(*_tensors(digits, images.crop_offsets(len(digits), 0)), trainer.options.beta)
    return {
        "held_out_digits": len(digits),
        "rate_nats": round(parts.rate, 4),
        "mse_encoder_sample": round(parts.mse, 5),
        "estimator_nats": round(parts.estimator, 4),
    }


def _write_card(out: Path, options: TrainingOptions, count: int, digest: str, metrics: dict[str, float]) -> ModelCard:
    weights = out / WEIGHTS_NAME
    sha256 = weights_sha256(weights)
    training = {
        "command": "python -m experiments train mnist --data DIR --out DIR"
        + "".join(f" --{name.replace('_', '-')} {value}" for name, value in asdict(options).items()),
        "data": {
            "name": "MNIST training digits, right half from a random 14x14 crop of the left half",
            "digits": count,
            "held_out": images.HELD_OUT,
            "sha256": digest,
        },
        "options": asdict(options),
        "metrics": metrics,
        "torch": torch.__version__,
    }
    card = {
        "source": "vae",
        "architecture": ARCHITECTURE,
        "weights": {"file": weights.name, "sha256": sha256},
        "training": training,
    }
    (out / CARD_NAME).write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    return ModelCard("vae", dict(ARCHITECTURE), training, weights, model_digest("vae", ARCHITECTURE, sha256))
