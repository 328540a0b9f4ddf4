"""The reference ``zero-bits``: what K decoders reach from their side information alone, without a message.

Decoder k has a rule of its own, so that the best of K answers counts as a list: the K rules share a network, to
which k is told. Loss a source: a soft minimum over the K squared errors, which hardens over the run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from encoder.image_task import ImageTask
from shared_rng.session import require_decoders

_HIDDEN = 512
_SOFTNESS = (10.0, 0.5)
"""Temperature of the soft minimum in units of the sum of squared errors, at the start and at the end."""


@dataclass(frozen=True)
class ZeroBitsOptions:
    """Options of the reference.

    Attributes:
        decoders: K.
    """

    decoders: int = 1


class ZeroBitsNetwork(nn.Module):
    """Side information [B, T] in [-1, 1] → the answer of decoder k, [B, A] in [-1, 1]."""

    def __init__(self, side_size: int, source_size: int, decoders: int) -> None:
        super().__init__()
        self.first = nn.Linear(side_size, _HIDDEN)
        self.second = nn.Linear(_HIDDEN, _HIDDEN)
        self.last = nn.Linear(_HIDDEN, source_size)
        self.shift = nn.Embedding(decoders, _HIDDEN)

    def forward(self, side: Tensor, k: int) -> Tensor:
        """The answer."""
        hidden = torch.relu(self.second(torch.relu(self.first(side))) + self.shift.weight[k])
        return torch.tanh(self.last(hidden))


class ZeroBitsRecipe:
    """The network and its loss."""

    name: ClassVar[str] = "zero-bits"

    def __init__(self, task: ImageTask, options: ZeroBitsOptions) -> None:
        require_decoders(options.decoders)
        self.options = options
        self.sides = options.decoders
        self._task = task
        self.decoder = ZeroBitsNetwork(math.prod(task.side_shape), math.prod(task.source_shape), options.decoders)

    def modules(self) -> nn.ModuleDict:
        """See :meth:`experiments.trainer.Recipe.modules`."""
        return nn.ModuleDict({"decoder": self.decoder})

    def card(self) -> tuple[str, dict[str, Any]]:
        """See :meth:`experiments.trainer.Recipe.card`."""
        return "zero-bits", {**self._task.architecture(), "decoders": self.options.decoders}

    def step(self, source: Tensor, sides: Tensor, share_done: float) -> tuple[Tensor, dict[str, float]]:
        """See :meth:`experiments.trainer.Recipe.step`."""
        errors = self.errors(source, sides) * source.shape[1]
        first, last = _SOFTNESS
        softness = first * (last / first) ** share_done
        loss = -softness * torch.logsumexp(-errors / softness, dim=1).mean()
        return loss, {"mse best": errors.min(dim=1).values.mean().item() / source.shape[1]}

    def held_out(self, source: Tensor, sides: Tensor) -> dict[str, float]:
        """Error a pixel in [-1, 1] of the best of K."""
        return {"mse_best": self.errors(source, sides).min(dim=1).values.mean().item()}

    def errors(self, source: Tensor, sides: Tensor) -> Tensor:
        """Mean squared error a pixel of each decoder: [B, K]."""
        answers = [self.decoder(sides[:, k], k) for k in range(self.options.decoders)]
        return torch.stack([(answer - source).square().mean(dim=1) for answer in answers], dim=1)
