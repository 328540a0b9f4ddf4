"""The recipe ``region``: a continuous latent trained end to end through the coupling, for bins that are regions.

A message names the region of the prior in which the encoder's sample w lies; decoder k then samples from
p_{W|T}(·|t_k) within that region, coupled to the encoder by its race. The loss a source is the expected squared error
of the best of K decoders, with the two cases that matter for each decoder k: it picks w itself, with a probability
that follows from densities, or it picks another sample x_k of the region. Since p_{W|T} is a mixture in closed form,
that probability has a gradient for both ends, and no weight β of the rate is left to tune: a sample that tells more
is matched less often.

That decoder k matches is given the probability e_k / (1 + Σ_j e_j), with e_k = p_k(w) / q(w) and p_k the proposal of
decoder k within the region: where all p_k are equal, the K of them match with the relaxed bound (1 + q / (K p))^-1 of
theorem 1 (arXiv 2506.05632, equation 4). The exact race probability, estimated by samples, trained no better.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from encoder.image_task import ImageTask
from experiments.region_samples import RegionSamples
from experiments.trainer import draw, require_sizes
from networks import mixture, vae
from networks.mixture import LOG_TWO_PI, Mixture, MixtureNetwork, log_normal
from networks.vae import EncoderNetwork
from networks.weights import End, half_of
from shared_rng import CodecError, ModelCard, find_model, load_card
from shared_rng.session import MAX_POOL, require_bins, require_decoders

LATENT_DIMENSION = 4
_SMALL = {
    "weights_head": "mixture",
    "encoder_hidden": 512,
    "decoder_hidden": 512,
    "side_features": 128,
    "fusion_hidden": 128,
    "mixture_components": 8,
    "mixture_hidden": 256,
}
_CANDIDATES = 32
"""Samples of a region that stand for a bin."""
_SOFTNESS, _STARTED_SOFTNESS, _LAST_SOFTNESS = 10.0, 3.0, 1.0
"""Temperature of the soft minimum over decoders, in units of the sum of squared errors: first, and first for a model
that starts from another, and last."""
_WARM_UP = 0.15
"""Share of the steps over which the error of matched decoders counts extra, or the latent collapses."""
_POOL_PENALTY = 5.0 / 392.0
"""Of a nat of rate that the pool cannot serve, in squared errors for each of the source's values."""
_LOG_VARIANCE = -2.0
"""Where the encoder's log-variances start."""
_MAX_LOG_ODDS = 15.0
_LEAST = 1e-12
_SPREAD, _COMPONENT_LOG_VARIANCE = 0.7, -0.5
"""Of the mixture's components at the start."""
_CHUNK = 250


@dataclass(frozen=True)
class RegionOptions:
    """Options of the recipe.

    Attributes:
        decoders: K.
        bins: L_max; a model is for one pair of the two.
        pool_size: N of the sessions it is for: a target much narrower than 1 / N of the prior misses the pool.
        start: name or folder of a model of this recipe, of any K and L_max, that training starts from, or None.
    """

    decoders: int = 4
    bins: int = 16
    pool_size: int = 1024
    start: str | None = None


@dataclass(frozen=True)
class _Bins:
    """The bin of each source's sample w as each decoder sees it.

    Attributes:
        labels: [B].
        samples: [B, S, D], of N(0, I) within the region.
        log_ratios: [B, K, S], log p_{W|T}(u|t_k) - log p_W(u) of these.
        log_shares: [B, K], log of the probability of the region under p_{W|T}(·|t_k).
    """

    labels: Tensor
    samples: Tensor
    log_ratios: Tensor
    log_shares: Tensor


class RegionRecipe:
    """Both halves of the model, and their loss."""

    name: ClassVar[str] = "region"

    def __init__(self, task: ImageTask, options: RegionOptions) -> None:
        require_decoders(options.decoders)
        require_bins(options.bins)
        if not options.bins <= options.pool_size <= MAX_POOL:
            raise CodecError("pool_size", options.pool_size, f"{options.bins} … {MAX_POOL}")
        self.options = options
        self.sides = options.decoders
        self._architecture: dict[str, Any] = {"latent_dimension": LATENT_DIMENSION, **task.architecture(), **_SMALL}
        card = ModelCard("vae", self._architecture, {}, None, b"")
        self.encoder = vae.encoder_from_card(card)
        self.decoder = mixture.decoder_from_card(card)
        self.regions = RegionSamples(options.bins, LATENT_DIMENSION)
        if options.start is None:
            _set_biases(self.encoder, self.decoder)
        else:
            _take_weights(load_card(find_model(options.start)), card, self.encoder, self.decoder)

    def modules(self) -> nn.ModuleDict:
        """See :meth:`experiments.trainer.Recipe.modules`."""
        return nn.ModuleDict({"encoder": self.encoder, "decoder": self.decoder, "regions": self.regions})

    def card(self) -> tuple[str, dict[str, Any]]:
        """See :meth:`experiments.trainer.Recipe.card`."""
        return "vae", self._architecture

    def step(self, source: Tensor, sides: Tensor, share_done: float) -> tuple[Tensor, dict[str, float]]:
        """See :meth:`experiments.trainer.Recipe.step`."""
        started = self.options.start is not None
        first, last = _STARTED_SOFTNESS if started else _SOFTNESS, _LAST_SOFTNESS
        softness = first * (last / first) ** share_done
        mean, log_variance = self.encoder(source)
        noise = torch.randn_like(mean)
        latent = mean + noise * (0.5 * log_variance).exp()
        log_target = -0.5 * (noise.square() + log_variance + LOG_TWO_PI).sum(dim=1)
        features = self.decoder.features(sides)
        density = self.decoder.density(features)
        log_proposal = density.log_density(latent[:, None, None]).squeeze(2)
        bins = self._bins(latent, density)
        match = match_probabilities(log_target[:, None] - log_proposal + bins.log_shares)
        lone = draw(match.detach() + _LEAST)
        matched, missed = self._errors(source, latent, features, bins, lone)
        error = expected_error(match.sum(dim=1), lone, matched, missed, softness)
        rate = log_target - log_normal(latent)
        too_rare = nn.functional.softplus(rate - math.log(self.options.pool_size) + 1.0).mean()
        penalty = _POOL_PENALTY * source.shape[1] * too_rare
        likelihood = density.log_density(latent.detach()[:, None, None]).mean()
        warm_up = 0.0 if started else max(0.0, 1.0 - share_done / _WARM_UP)
        loss = error.mean() + warm_up * matched.mean() + penalty - likelihood
        parts = {
            "mse": error.mean().item() / source.shape[1],
            "mse matched": matched.mean().item() / source.shape[1],
            "match": match.sum(dim=1).mean().item(),
            "rate nats": rate.mean().item(),
        }
        return loss, parts

    def _bins(self, latent: Tensor, density: Mixture) -> _Bins:
        labels = self.regions.labels(latent.detach())
        samples = self.regions.draw(labels, _CANDIDATES)
        log_ratios = density.log_density(samples[:, None]) - log_normal(samples)[:, None]
        log_shares = log_ratios.logsumexp(dim=2) - math.log(_CANDIDATES) + self.regions.log_shares[labels][:, None]
        return _Bins(labels, samples, log_ratios, log_shares.clamp(max=0.0))

    def _errors(
        self, source: Tensor, latent: Tensor, features: Tensor, bins: _Bins, lone: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Sums of squared errors: of decoder ``lone`` with the encoder's sample [B], of all with their own [B, K]."""
        gumbel = -torch.log(-torch.log(torch.rand_like(bins.log_ratios).clamp(1e-12, 1.0 - 1e-7)))
        picks = (bins.log_ratios.detach() + gumbel).argmax(dim=2)
        rows = torch.arange(len(picks), device=picks.device)
        latents = torch.cat((latent[:, None], bins.samples[rows[:, None], picks]), dim=1)
        knowledge = torch.cat((features[rows, lone][:, None], features), dim=1)
        errors = (self.decoder.reconstruct(latents, knowledge) - source[:, None]).square().sum(dim=2)
        return errors[:, 0], errors[:, 1:]

    @torch.no_grad()
    def held_out(self, source: Tensor, sides: Tensor) -> dict[str, float]:
        """Best error a pixel in [-1, 1], and match probability: the codec, played with one pool a chunk."""
        errors, matches = [], []
        for start in range(0, len(source), _CHUNK):
            rows = slice(start, start + _CHUNK)
            error, match = self._play(source[rows], sides[rows])
            errors.append(error)
            matches.append(match)
        return {"mse": torch.cat(errors).mean().item(), "match_probability": torch.cat(matches).float().mean().item()}

    def _play(self, source: Tensor, sides: Tensor) -> tuple[Tensor, Tensor]:
        """Best error a pixel and whether a decoder matched, each [B]."""
        size = self.options.pool_size
        mean, log_variance = self.encoder(source)
        pool = torch.randn(size, LATENT_DIMENSION, device=source.device)
        log_prior, labels = log_normal(pool), self.regions.labels(pool)
        times = torch.empty(len(source), self.sides, size, device=source.device).exponential_().log()
        precision = (-log_variance).exp()
        target = -0.5 * ((pool - mean[:, None]).square() * precision[:, None]).sum(dim=2) - log_prior
        picks = (times.amin(dim=1) - target).argmin(dim=1)
        features = self.decoder.features(sides)
        proposal = self.decoder.density(features).log_density(pool) - log_prior
        other = labels != labels[picks][:, None]
        own = (times - proposal).masked_fill(other[:, None], math.inf).argmin(dim=2)
        errors = (self.decoder.reconstruct(pool[own], features) - source[:, None]).square().mean(dim=2)
        return errors.amin(dim=1), (own == picks[:, None]).any(dim=1)


def match_probabilities(log_ratios: Tensor) -> Tensor:
    """e_k / (1 + Σ_j e_j) of each decoder, [B, K], from log q(w) - log p_k(w) = -log e_k, [B, K]."""
    odds = (-log_ratios).clamp(max=_MAX_LOG_ODDS).exp()
    return odds / (1.0 + odds.sum(dim=1, keepdim=True))


def _soft_minimum(errors: Tensor, softness: float) -> Tensor:
    """Over the last axis; the minimum itself as ``softness`` goes to 0."""
    return -softness * ((-errors / softness).logsumexp(dim=-1) - math.log(errors.shape[-1]))


def expected_error(match: Tensor, lone: Tensor, matched: Tensor, missed: Tensor, softness: float) -> Tensor:
    """Expected error of the best decoder: with probability ``match`` decoder ``lone`` has the encoder's sample: [B].

    Args:
        match: [B], probability that a decoder matches.
        lone: [B], which one, drawn by its share of that probability.
        matched: [B], its error then.
        missed: [B, K], errors of decoders with samples of their own.
        softness: temperature of the soft minimum over decoders.
    """
    none = _soft_minimum(missed, softness)
    one = _soft_minimum(missed.scatter(1, lone[:, None], matched[:, None]), softness)
    return none + match * (one - none)


@torch.no_grad()
def _set_biases(encoder: EncoderNetwork, decoder: MixtureNetwork) -> None:
    """Biases from which training starts: targets narrower than the prior, and components spread over it."""
    targets, components = encoder.layers[-1].get_parameter("bias"), decoder.mixture[-1].get_parameter("bias")
    targets[LATENT_DIMENSION:] = _LOG_VARIANCE
    weights, means, log_variances = components.view(decoder.components, 1 + 2 * LATENT_DIMENSION).split(
        (1, LATENT_DIMENSION, LATENT_DIMENSION), dim=1
    )
    weights.zero_()
    means.normal_(std=_SPREAD)
    log_variances.fill_(_COMPONENT_LOG_VARIANCE)


def _take_weights(card: ModelCard, own_card: ModelCard, encoder: EncoderNetwork, decoder: MixtureNetwork) -> None:
    """Take the networks of another model of this recipe.

    Raises:
        CodecError: it is no such model, or of other sizes.
    """
    if card.weights is None or card.architecture.get("weights_head") != "mixture":
        raise CodecError("--start", f"a model of source {card.source}", "a model of recipe region")
    require_sizes(card, own_card.architecture)
    tensors = {name: tensor.float() for name, tensor in load_file(card.weights).items()}
    ends: dict[End, nn.Module] = {"encoder": encoder, "decoder": decoder}
    for end, module in ends.items():
        module.load_state_dict(half_of(tensors, end))
