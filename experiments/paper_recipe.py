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

from decoder.vae import DecoderNetwork, network_from_card
from encoder.vae import EncoderNetwork
from experiments.image_task import ImageTask
from shared_rng import ModelCard

LATENT_DIMENSION = 4
_SMALL = {
    "encoder_hidden": 512,
    "decoder_hidden": 512,
    "side_features": 128,
    "estimator_hidden": 256,
}
_NEGATIVES = 4
_WARM_UP = 1.0 / 3.0


@dataclass(frozen=True)
class PaperOptions:
    """Options of the recipe.

    Attributes:
        beta: weight of the rate (nats) against the sum of squared errors.
    """

    beta: float = 7.0


class PaperRecipe:
    """Both halves of the model, and their loss."""

    name: ClassVar[str] = "paper"
    sides = 1

    def __init__(self, task: ImageTask, options: PaperOptions) -> None:
        self.options = options
        self._architecture: dict[str, Any] = {"latent_dimension": LATENT_DIMENSION, **task.architecture(), **_SMALL}
        size = 1
        for length in task.source_shape:
            size *= length
        self.encoder = EncoderNetwork(size, self._architecture["encoder_hidden"], LATENT_DIMENSION)
        self.decoder: DecoderNetwork = network_from_card(ModelCard("vae", self._architecture, {}, None, b""))

    def modules(self) -> nn.ModuleDict:
        """See :meth:`experiments.training.Recipe.modules`."""
        return nn.ModuleDict({"encoder": self.encoder, "decoder": self.decoder})

    def card(self) -> tuple[str, dict[str, Any]]:
        """See :meth:`experiments.training.Recipe.card`."""
        return "vae", self._architecture

    def step(self, source: Tensor, sides: Tensor, share_done: float) -> tuple[Tensor, dict[str, float]]:
        """See :meth:`experiments.training.Recipe.step`."""
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
