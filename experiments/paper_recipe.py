"""The recipe ``paper``: a β-VAE and an estimator of importance weights (arXiv 2506.05632, appendix D.4).

Loss a batch: sum of squared errors over the source's pixels in [-1, 1], plus β · KL(p_{W|A} ‖ N(0, I)) in
nats, plus the binary cross-entropy by which the estimator tells joint pairs (w, t) from independent ones.
β rises over the first third of the steps, or the latent collapses. The latent is cut off from the
estimator's loss, which would otherwise make it easy to recognise instead of useful.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from encoder.image_task import ImageTask
from experiments.trainer import is_large
from networks import vae
from shared_rng import CodecError, ModelCard

LATENT_DIMENSION = 4
ARCHITECTURES: dict[str, dict[str, Any]] = {
    "small": {"encoder_hidden": 512, "decoder_hidden": 512, "side_features": 128, "estimator_hidden": 256},
    "paper": {
        "network": "convolutional",
        "encoder_hidden": 512,
        "decoder_hidden": 512,
        "side_features": 128,
        "estimator_hidden": 512,
    },
}
"""Networks by name. ``small``: fully connected, for a CPU, and half as wide for large images. ``paper``:
convolutional as in appendix D.4, for a GPU.

Of the paper's networks this is known: a convolutional encoder and decoder, four latent dimensions, 128 features of
the side information by a network of its own, joined with the sample before the decoder and before the estimator,
about eight million parameters. Assumed are the numbers of channels and layers (``networks/layers.py``), and an
estimator of fully connected layers.
"""
_NEGATIVES = 4
_WARM_UP = 1.0 / 3.0


@dataclass(frozen=True)
class PaperOptions:
    """Options of the recipe.

    Attributes:
        beta: weight of the rate (nats) against the sum of squared errors.
        architecture: ``small`` or ``paper``, a key of :data:`ARCHITECTURES`.

    Raises:
        CodecError: there is no such architecture.
    """

    beta: float = 7.0
    architecture: str = "small"

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise CodecError("architecture", repr(self.architecture), f"one of: {', '.join(ARCHITECTURES)}")


BETAS = (4.0, 5.0, 6.5, 8.0, 10.0, 13.0, 17.0)
"""Values of β to choose from in a sweep. The paper's .15 … .95 belong to another scaling of its loss."""
BETAS_LARGE = (6.3, 10.0, 16.0, 25.0, 40.0, 63.0, 100.0)
"""The same for large images, whose sum of squared errors has more terms."""
POOL_SIZES = (128, 256, 512, 1024, 2048, 4096)
"""Values of N to choose from in a sweep: the paper's."""


def paper_grid(task: ImageTask, decoders: int, bins: int) -> list[PaperOptions]:
    """One model a β serves every cell."""
    return [PaperOptions(beta=beta) for beta in (BETAS_LARGE if is_large(task) else BETAS)]


def paper_pools(card: ModelCard, decoders: int, bins: int) -> list[dict[str, Any]]:
    """Every N."""
    return [{"pool_size": size, "latent_dimension": card.size("latent_dimension")} for size in POOL_SIZES]


class PaperRecipe:
    """Both halves of the model, and their loss."""

    name: ClassVar[str] = "paper"
    sides = 1

    def __init__(self, task: ImageTask, options: PaperOptions) -> None:
        self.options = options
        own = dict(ARCHITECTURES[options.architecture])
        if options.architecture == "small" and is_large(task):
            own |= {name: own[name] // 2 for name in ("encoder_hidden", "decoder_hidden")}
        self._architecture: dict[str, Any] = {"latent_dimension": LATENT_DIMENSION, **task.architecture(), **own}
        card = ModelCard("vae", self._architecture, {}, None, b"")
        self.encoder = vae.encoder_from_card(card)
        self.decoder = vae.decoder_from_card(card)

    def modules(self) -> nn.ModuleDict:
        """See :meth:`experiments.trainer.Recipe.modules`."""
        return nn.ModuleDict({"encoder": self.encoder, "decoder": self.decoder})

    def card(self) -> tuple[str, dict[str, Any]]:
        """See :meth:`experiments.trainer.Recipe.card`."""
        return "vae", self._architecture

    def step(self, source: Tensor, sides: Tensor, share_done: float) -> tuple[Tensor, dict[str, float]]:
        """See :meth:`experiments.trainer.Recipe.step`."""
        return self._losses(source, sides[:, 0], self.options.beta * min(1.0, share_done / _WARM_UP))

    def held_out(self, source: Tensor, sides: Tensor) -> dict[str, float]:
        """Rate, error a pixel in [-1, 1] when the decoder has the encoder's sample, and the estimator's loss."""
        _, parts = self._losses(source, sides[:, 0], self.options.beta)
        names = {"rate nats": "rate_nats", "mse": "mse_encoder_sample", "estimator nats": "estimator_nats"}
        return {names[name]: value for name, value in parts.items()}

    def _losses(self, source: Tensor, side: Tensor, beta: float) -> tuple[Tensor, dict[str, float]]:
        mean, log_variance = self.encoder(source)
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        features = self.decoder.features(side)
        error = (self.decoder.reconstruct(latent, features) - source).square().sum(dim=1).mean()
        rate = 0.5 * (mean.square() + log_variance.exp() - 1.0 - log_variance).sum(dim=1).mean()
        estimator = self._estimator_loss(latent.detach(), features)
        parts = {"rate nats": rate.item(), "mse": error.item() / source.shape[1], "estimator nats": estimator.item()}
        return error + beta * rate + estimator, parts

    def _estimator_loss(self, latent: Tensor, features: Tensor) -> Tensor:
        rows = torch.arange(len(latent), device=latent.device)
        joint = self.decoder.log_ratio(latent, features, rows)
        others = torch.cat([rows.roll(shift + 1) for shift in range(_NEGATIVES)])
        independent = self.decoder.log_ratio(latent.repeat(_NEGATIVES, 1), features, others)
        return nn.functional.softplus(-joint).mean() + nn.functional.softplus(independent).mean()
