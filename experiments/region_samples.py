"""Samples of the prior N(0, I_D) by region, for training with bins that are regions."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from shared_rng import regions, variates

_DRAWN = 2**18
_KEPT = 2**11
"""At most so many samples a region are kept."""


class RegionSamples(nn.Module):
    """Labels of latents, and samples of N(0, I_D) within a region.

    Attributes:
        bins: L_max.
        log_shares: [L_max], log of the prior probability of each region.
    """

    log_shares: Tensor
    _centroids: Tensor
    _samples: Tensor

    def __init__(self, bins: int, dimension: int) -> None:
        """Draw samples from torch's global generator.

        Raises:
            CodecError: there are too many bins or dimensions for region bins.
        """
        super().__init__()
        regions.require_sizes(bins, dimension)
        self.bins = bins
        centroids = torch.from_numpy(regions.centroids(bins, dimension) * variates.GRID).float()
        drawn = torch.randn(_DRAWN, dimension)
        labels = _nearest(drawn, centroids)
        counts = labels.bincount(minlength=bins)
        kept = min(_KEPT, int(counts.min()))
        samples = torch.stack([drawn[labels == label][:kept] for label in range(bins)])
        # They follow from the seed, so a checkpoint need not hold them.
        self.register_buffer("_centroids", centroids, persistent=False)
        self.register_buffer("_samples", samples, persistent=False)
        self.register_buffer("log_shares", (counts / _DRAWN).log(), persistent=False)

    def labels(self, latents: Tensor) -> Tensor:
        """Region of each latent [..., D]: int64 [...]."""
        return _nearest(latents, self._centroids)

    def draw(self, labels: Tensor, count: int) -> Tensor:
        """``count`` samples of N(0, I_D) within each of the regions [B]: [B, count, D]."""
        places = torch.randint(self._samples.shape[1], (len(labels), count), device=labels.device)
        return self._samples[labels[:, None], places]


def _nearest(latents: Tensor, centroids: Tensor) -> Tensor:
    return (centroids.square().sum(dim=1) - 2.0 * latents @ centroids.T).argmin(dim=-1)
