"""The recipes ``list`` and ``quantiser``: words and messages of a codebook, trained for the best of K decoders.

A source's loss is Σ_m π_m F_m with the encoder's distribution π over messages and the soft minimum over decoders
F_m = -t log Σ_k exp(-D_mk / t) of the squared errors D_mk of decoder k's word of bin m. In a list, decoder k has a word
of its own in each bin; in a quantiser a bin is one word, for all. As in deterministic annealing, the temperature t and
a reward of π's entropy fall while training goes on: all words begin as one, and part as it becomes worth it.

A few messages drawn from π are scored, without a gradient; the encoder's gradient follows from their errors exactly,
and the networks of the decoder are trained on one word, drawn by its share π_m exp(-D_mk / t) of the loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from encoder.image_task import ImageTask
from experiments.trainer import draw, is_large, require_sizes
from networks import codebook
from networks.weights import End, half_of
from shared_rng import Codebook, CodecError, ModelCard, find_model, load_card
from shared_rng.session import require_bins, require_decoders

_SMALL = {"encoder_hidden": 384, "decoder_hidden": 384, "decoder_width": 512}
_SMALL_FOR_LARGE = {"encoder_hidden": 256, "decoder_hidden": 256, "decoder_width": 512}
"""Of images of more than :data:`experiments.trainer.LARGE` values: most weights are in their first and last layers."""
_TEMPERATURE = (10.0, 0.3)
"""Of the soft minimum, in units of the sum of squared errors: at first, and from a share of the steps on."""
_STARTED_TEMPERATURE = 4.0
"""The same at first for a model that starts from another."""
_ENTROPY = 0.4
"""Reward of a nat of the encoder's entropy, in temperatures."""
_ANNEALED = 0.6
_CANDIDATES = 2
"""Messages that are scored."""
_SHARPNESS = 8.0
"""How much sharper a quantiser's exported distribution is than the trained one: nearly its greatest weight alone."""
_NOISE = 0.1
"""Noise on copied words, in standard deviations of all."""
_BY_WORD = ("layers.4.", "scale", "shift", "classifier.")
"""Parameters with a row a word, or a bin."""
_ROWS = 2048
"""Words that go through the network at a time, which keeps them in the processor's cache."""


@dataclass(frozen=True)
class CodebookOptions:
    """Options of the recipe.

    Attributes:
        decoders: K.
        bins: L_max; a model is for one pair of the two.
        start: name or folder of a codebook model whose networks and words training starts from, or None.
    """

    decoders: int = 4
    bins: int = 16
    start: str | None = None


class CodebookRecipe:
    """Both halves of a codebook model, and what its recipes share.

    ``words_a_bin`` and ``coupling`` are those of the card; word r of bin m is m + L_max · r.
    """

    def __init__(self, task: ImageTask, options: CodebookOptions, words_a_bin: int, coupling: str) -> None:
        require_decoders(options.decoders)
        require_bins(options.bins)
        self.options = options
        self.sides = options.decoders
        self.words_a_bin = words_a_bin
        self._architecture: dict[str, Any] = {
            "words": options.bins * words_a_bin,
            "bins": options.bins,
            "coupling": coupling,
            **task.architecture(),
            **(_SMALL_FOR_LARGE if is_large(task) else _SMALL),
        }
        card = ModelCard("codebook", self._architecture, {}, None, b"")
        self.encoder = codebook.encoder_from_card(card)
        self.decoder = codebook.decoder_from_card(card)
        if options.start is not None:
            start_from(load_card(find_model(options.start)), card, self.encoder, self.decoder)

    def modules(self) -> nn.ModuleDict:
        """See :meth:`experiments.trainer.Recipe.modules`."""
        return nn.ModuleDict({"encoder": self.encoder, "decoder": self.decoder})

    def card(self) -> tuple[str, dict[str, Any]]:
        """See :meth:`experiments.trainer.Recipe.card`."""
        return "codebook", self._architecture

    def words(self, messages: Tensor) -> Tensor:
        """What each decoder answers messages [B, C] with: words [B, C, K]."""
        numbers = torch.arange(self.sides, device=messages.device) % self.words_a_bin
        return messages.unsqueeze(-1) + self.options.bins * numbers

    def temperature(self, share_done: float) -> float:
        """t of the soft minimum."""
        first = _TEMPERATURE[0] if self.options.start is None else _STARTED_TEMPERATURE
        return float(first * (_TEMPERATURE[1] / first) ** min(1.0, share_done / _ANNEALED))

    def annealed_step(
        self, source: Tensor, sides: Tensor, logits: Tensor, temperature: float
    ) -> tuple[Tensor, dict[str, float]]:
        """Loss of a batch whose encoder gives ``logits`` [B, L_max] of messages, and its parts."""
        fused = fused_features(self.decoder, sides)
        messages = drawn_messages(logits.detach(), min(_CANDIDATES, self.options.bins))
        words = self.words(messages)
        errors = word_errors(self.decoder, source, fused, words)
        log_share = torch.log_softmax(logits.gather(1, messages), dim=1)
        share = log_share.exp()
        soft = -temperature * torch.logsumexp(-errors / temperature, dim=2)
        entropy = -(share * log_share).sum(dim=1).mean()
        encoder_loss = (share * (soft - soft.mean(dim=1, keepdim=True))).sum(dim=1).mean()
        weights = share.detach().unsqueeze(-1) * torch.softmax(-errors / temperature, dim=2)
        drawn = draw(weights.flatten(1))
        error = drawn_error(self.decoder, source, sides, words, drawn)
        parts = {"mse": error.item() / source.shape[1], "entropy nats": entropy.item()}
        return error + encoder_loss - _ENTROPY * temperature * entropy, parts

    def best_of_k(self, source: Tensor, sides: Tensor, messages: Tensor) -> dict[str, float]:
        """Errors when every source is sent as ``messages`` [B]: of the best of K decoders, and of decoder 0."""
        fused = self.decoder.fusion(self.decoder.features(sides))
        errors = word_errors(self.decoder, source, fused, self.words(messages[:, None]))[:, 0] / source.shape[1]
        return {
            "mse_paper": errors.amin(dim=1).mean().item() / 2.0,
            "mse_paper_one_decoder": errors.mean().item() / 2.0,
        }


class ListRecipe(CodebookRecipe):
    """Decoder k answers with word k of the bin: K words a bin."""

    name: ClassVar[str] = "list"

    def __init__(self, task: ImageTask, options: CodebookOptions) -> None:
        super().__init__(task, options, options.decoders, "list")

    def step(self, source: Tensor, sides: Tensor, share_done: float) -> tuple[Tensor, dict[str, float]]:
        """See :meth:`experiments.trainer.Recipe.step`."""
        return self.annealed_step(source, sides, self.encoder(source), self.temperature(share_done))

    def held_out(self, source: Tensor, sides: Tensor) -> dict[str, float]:
        """See :meth:`CodebookRecipe.best_of_k`."""
        return self.best_of_k(source, sides, self.encoder(source).argmax(dim=1))


class QuantiserRecipe(CodebookRecipe):
    """N = L_max: a bin is one word, with which all decoders answer. The learned quantiser that others compare with."""

    name: ClassVar[str] = "quantiser"

    def __init__(self, task: ImageTask, options: CodebookOptions) -> None:
        super().__init__(task, options, 1, "gls")

    def step(self, source: Tensor, sides: Tensor, share_done: float) -> tuple[Tensor, dict[str, float]]:
        """See :meth:`experiments.trainer.Recipe.step`."""
        logits = self.encoder(source) / _SHARPNESS
        return self.annealed_step(source, sides, logits, self.temperature(share_done))

    def held_out(self, source: Tensor, sides: Tensor) -> dict[str, float]:
        """See :meth:`CodebookRecipe.best_of_k`."""
        return self.best_of_k(source, sides, self.encoder(source).argmax(dim=1))


def drawn_messages(logits: Tensor, count: int) -> Tensor:
    """``count`` different messages a source, drawn one after another from softmax(logits): [B, count]."""
    noise = -torch.log(-torch.log(torch.rand_like(logits).clamp_min(1e-12)))
    return (logits + noise).topk(count, dim=1).indices


@torch.no_grad()
def word_errors(decoder: codebook.DecoderNetwork, source: Tensor, fused: Tensor, words: Tensor) -> Tensor:
    """Sum of squared errors of decoder k with word ``words`` [B, C, K], from fused features [B, K, F]: [B, C, K]."""
    size = max(1, _ROWS // (words.shape[1] * words.shape[2]))
    found = []
    for start in range(0, len(source), size):
        rows = slice(start, start + size)
        chosen = words[rows]
        reconstruction = decoder.reconstruct(fused[rows].unsqueeze(1).expand(-1, chosen.shape[1], -1, -1), chosen)
        found.append((reconstruction - source[rows, None, None]).square_().sum(dim=3))
    return torch.cat(found)


@torch.no_grad()
def fused_features(decoder: codebook.DecoderNetwork, sides: Tensor) -> Tensor:
    """What words are fused with at each decoder, from crops [B, K, T]: [B, K, F]."""
    fused: Tensor = decoder.fusion(decoder.features(sides))
    return fused


def drawn_error(
    decoder: codebook.DecoderNetwork, source: Tensor, sides: Tensor, words: Tensor, drawn: Tensor
) -> Tensor:
    """Mean sum of squared errors, with its gradient, of one entry ``drawn`` [B] of words [B, C, K] (flat) a source."""
    rows = torch.arange(len(source), device=source.device)
    fused = decoder.fusion(decoder.features(sides[rows, drawn % words.shape[2]]))
    reconstruction = decoder.reconstruct(fused, words.flatten(1)[rows, drawn])
    return (reconstruction - source).square().sum(dim=1).mean()


def start_from(card: ModelCard, own_card: ModelCard, encoder: nn.Module, decoder: nn.Module) -> None:
    """Take the networks of another codebook model, and its words, bin by bin and word by word of a bin.

    Bins or words of a bin beyond those of the other are copies with noise; fewer are the first ones.

    Raises:
        CodecError: the model is no codebook, or its networks have other sizes.
    """
    if card.weights is None or card.source != "codebook":
        raise CodecError("--start", f"a model of source {card.source}", "a model of source codebook")
    require_sizes(card, own_card.architecture, ("words", "bins", "coupling"))
    other, book = Codebook.from_card(card), Codebook.from_card(own_card)
    tensors = {name: tensor.float() for name, tensor in load_file(card.weights).items()}
    ends: dict[End, nn.Module] = {"encoder": encoder, "decoder": decoder}
    for end, module in ends.items():
        state, half = module.state_dict(), half_of(tensors, end)
        for name, own in state.items():
            found = half.get(name)
            if found is not None:
                state[name] = _regrouped(found, own, other, book) if name.startswith(_BY_WORD) else found
        module.load_state_dict(state)


def _regrouped(found: Tensor, own: Tensor, other: Codebook, book: Codebook) -> Tensor:
    """Rows of one codebook's bins or words for another's."""
    numbers = torch.arange(len(own))
    rows = numbers % book.bins % other.bins
    if len(found) == other.words:
        rows = rows + other.bins * (numbers // book.bins % (other.words // other.bins))
    first = torch.zeros(len(found), dtype=torch.long).scatter_reduce(0, rows, numbers, "amin", include_self=False)
    copies = first[rows] != numbers
    noise = _NOISE * found.std() * torch.randn(own.shape) * copies.reshape(-1, *[1] * (own.dim() - 1))
    return found[rows] + noise
