"""The recipe ``discrete``: a codebook for GLS at both ends, trained through simulated races of all K decoders.

Training begins with the annealing of :mod:`experiments.codebook_recipe`, for which a bin's words are a list, unless it
starts from another model. Then each step draws S_i^(k) ~ Exp(1) for all words, as a session would, and picks Y and
X^(k) of section 3 of arXiv 2506.05632. The encoder moves its weight to messages whose best decoder errs less, with
straight-through gradients: forward the winner, backward the softmax of the scores at a temperature that falls. To
decoder k a word is worth what the best of K errs if it picks that word, and its classifier moves to the better ones;
small rewards of its entropy and of the likelihood of the encoder's pick keep its choice open where words are equal, so
that private races tell decoders apart.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor, nn

from encoder.image_task import ImageTask
from experiments.codebook_recipe import CodebookOptions, CodebookRecipe, drawn_error, drawn_messages, word_errors
from experiments.trainer import draw
from networks.codebook import DecoderNetwork

_LIST_SHARE = 0.5
"""Share of the steps that train a list, where training starts from nothing."""
_SOFTNESS = (0.7, 0.4)
"""Temperature of the picks' gradients, at first and in the end."""
_BEST_TEMPERATURE = 0.3
"""Of the soft minimum over decoders, in units of the sum of squared errors: low keeps the words of a bin apart."""
_LIKELIHOOD = 0.1
"""Weight of a nat of -log p_{W|T} of the encoder's pick, a decoder, against squared errors."""
_RANDOMNESS = 1.0
"""Reward of a nat of the entropy of p_{W|T} within the bin, a decoder."""
_OTHERS = 1
"""Messages that are scored beside the one that is sent."""


class DiscreteRecipe(CodebookRecipe):
    """K words a bin; every decoder weighs all of them."""

    name: ClassVar[str] = "discrete"

    def __init__(self, task: ImageTask, options: CodebookOptions) -> None:
        super().__init__(task, options, options.decoders, "gls")

    def _by_bin(self, words: Tensor) -> Tensor:
        """Values [..., N] of words as [..., L_max, R]."""
        grouped: Tensor = words.unflatten(-1, (self.words_a_bin, self.options.bins))
        return grouped.transpose(-1, -2)

    def step(self, source: Tensor, sides: Tensor, share_done: float) -> tuple[Tensor, dict[str, float]]:
        """See :meth:`experiments.trainer.Recipe.step`."""
        list_share = _LIST_SHARE if self.options.start is None else 0.0
        logits = self.encoder(source)
        if share_done < list_share:
            messages = torch.logsumexp(self._by_bin(logits), dim=-1)
            return self.annealed_step(source, sides, messages, self.temperature(share_done / list_share))
        share = (share_done - list_share) / (1.0 - list_share)
        softness = _SOFTNESS[0] * (_SOFTNESS[1] / _SOFTNESS[0]) ** share
        return self._coupled_step(source, sides, logits, softness)

    def _coupled_step(
        self, source: Tensor, sides: Tensor, logits: Tensor, softness: float
    ) -> tuple[Tensor, dict[str, float]]:
        """Loss of a batch through one draw of its races, and its parts."""
        features = self.decoder.features(sides)
        with torch.no_grad():
            fused = self.decoder.fusion(features)
        times = log_times(logits, self.sides)
        encoder_scores = self._by_bin(logits - times.amin(dim=1))  # [B, L_max, R]
        scores = self._by_bin(all_log_weights(self.decoder, features) - times)  # [B, K, L_max, R]
        pick = encoder_scores.flatten(1).argmax(dim=1)
        sent, word = pick // self.words_a_bin, pick % self.words_a_bin
        rows = torch.arange(len(source), device=source.device)

        own = scores[rows, :, sent]  # [B, K, R]
        numbers = torch.arange(self.words_a_bin, device=source.device)
        bin_words = (sent[:, None] + self.options.bins * numbers)[:, :, None].expand(-1, -1, self.sides)
        bin_errors = word_errors(self.decoder, source, fused, bin_words).transpose(1, 2)  # [B, K, R]
        soft = torch.softmax(own / softness, dim=2)
        hard = nn.functional.one_hot(own.argmax(dim=2), self.words_a_bin)
        picked = ((hard + soft - soft.detach()) * bin_errors).sum(dim=2)
        decoder_loss = marginal_loss(soft, bin_errors, picked.detach(), _BEST_TEMPERATURE)

        others = self._others(sent, logits.detach())
        words = self._picked(scores.detach(), others)
        other_errors = word_errors(self.decoder, source, fused, words).amin(dim=2)
        errors = torch.cat((picked.detach().amin(dim=1, keepdim=True), other_errors), dim=1)
        messages = torch.cat((sent[:, None], others), dim=1)
        chosen = encoder_scores.gather(1, messages.unsqueeze(-1).expand(-1, -1, self.words_a_bin))
        share = torch.softmax(chosen.flatten(1) / softness, dim=1).unflatten(1, chosen.shape[1:]).sum(dim=2)
        encoder_loss = (share * (errors - errors.mean(dim=1, keepdim=True))).sum(dim=1).mean()

        weights = self._by_bin(all_log_weights(self.decoder, features))[rows, :, sent]
        log_proposal = torch.log_softmax(weights, dim=2)
        likelihood = log_proposal[rows, :, word].sum(dim=1).mean()
        entropy = -(log_proposal.exp() * log_proposal).sum(dim=(1, 2)).mean()

        best = draw(torch.softmax(-picked.detach() / _BEST_TEMPERATURE, dim=1))
        drawn = hard[rows, best].argmax(dim=1) * self.sides + best
        error = drawn_error(self.decoder, source, sides, bin_words, drawn)
        matched = (hard.argmax(dim=2) == word[:, None]).any(dim=1).float().mean()
        parts = {
            "mse": picked.detach().amin(dim=1).mean().item() / source.shape[1],
            "matched": matched.item(),
            "entropy nats": entropy.item() / self.sides,
        }
        return error + encoder_loss + decoder_loss - _LIKELIHOOD * likelihood - _RANDOMNESS * entropy, parts

    def _others(self, sent: Tensor, logits: Tensor) -> Tensor:
        """A few messages that are likely, beside those sent [B]: [B, C]."""
        others = torch.logsumexp(self._by_bin(logits), dim=-1).scatter(1, sent[:, None], -torch.inf)
        return drawn_messages(others, min(_OTHERS, self.options.bins - 1))

    def _picked(self, scores: Tensor, messages: Tensor) -> Tensor:
        """X^(k) in each of the bins ``messages`` [B, C], from scores [B, K, L_max, R]: words [B, C, K]."""
        winners = scores.argmax(dim=3).transpose(1, 2)  # [B, L_max, K]
        chosen = winners.gather(1, messages.unsqueeze(-1).expand(-1, -1, self.sides))
        return messages.unsqueeze(-1) + self.options.bins * chosen

    def held_out(self, source: Tensor, sides: Tensor) -> dict[str, float]:
        """Errors by one draw of races, with private ones (GLS) and with one shared race, and how often one matches."""
        features = self.decoder.features(sides)
        fused, logits = self.decoder.fusion(features), self.encoder(source)
        weights = all_log_weights(self.decoder, features)
        found = {}
        for coupling, races in (("", self.sides), ("_baseline", 1)):
            times = log_times(logits, races)
            pick = (logits - times.amin(dim=1)).argmax(dim=1)
            sent = pick % self.options.bins
            words = self._picked(self._by_bin(weights - times), sent[:, None])
            errors = word_errors(self.decoder, source, fused, words)[:, 0] / source.shape[1]
            found[f"mse_paper{coupling}"] = errors.amin(dim=1).mean().item() / 2.0
            found[f"mse_paper_one_decoder{coupling}"] = errors.mean().item() / 2.0
            found[f"matched{coupling}"] = (words[:, 0] == pick[:, None]).any(dim=1).float().mean().item()
        return found


def marginal_loss(soft: Tensor, errors: Tensor, picked: Tensor, temperature: float) -> Tensor:
    """What the shares of words, soft [B, K, R], are worth to the best of K decoders; errors [B, K, R].

    To decoder k a word is worth the soft minimum of its error and those of the others' picks [B, K].
    """
    scaled = -picked / temperature
    decoders = picked.shape[1]
    own = torch.eye(decoders, dtype=torch.bool, device=picked.device)
    others = torch.logsumexp(scaled[:, None, :].expand(-1, decoders, -1).masked_fill(own, -torch.inf), dim=2)
    worth = -temperature * torch.logaddexp(-errors / temperature, others[:, :, None])
    return (soft * worth).sum(dim=(1, 2)).mean()


def log_times(like: Tensor, races: int) -> Tensor:
    """log S_i of K races, S_i ~ Exp(1), for the words of ``like`` [B, N]: [B, K, N]."""
    uniform = torch.rand(len(like), races, like.shape[1], device=like.device).clamp_min(1e-12)
    return torch.log(-torch.log(uniform).clamp_max(-1e-12))


def all_log_weights(decoder: DecoderNetwork, features: Tensor) -> Tensor:
    """log p_{W|T} of all words up to a constant, from features [..., H]: [..., N]."""
    assert decoder.classifier is not None
    weights: Tensor = decoder.classifier(features)
    return weights
