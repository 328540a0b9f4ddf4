"""Bins that group neighbours: regions of the prior N(0, I_D), the label being the nearest of L_max centroids.

A decoder that picks another candidate of such a bin is wrong by little. Centroids are those of k-means (Lloyd's
algorithm) over standard normals from Philox. Everything is an integer number of 2^-16, and so small that float64
holds every sum exactly: both ends find the same centroids and labels, in whatever order they add.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from shared_rng import philox, variates
from shared_rng.errors import CodecError
from shared_rng.variates import Floats

MAX_REGIONS = 256
MAX_DIMENSION = 64

_SEED = 0x726567696F6E73
_SAMPLES = 2**13
_ITERATIONS = 30


def require_sizes(bins: int, dimension: int) -> None:
    """Check that there are centroids for L_max bins of a D-dimensional pool.

    Raises:
        CodecError: there are more than 256 bins, or more than 64 dimensions.
    """
    for name, value, limit in (("bins", bins, MAX_REGIONS), ("latent_dimension", dimension, MAX_DIMENSION)):
        if value > limit:
            raise CodecError(name, f"{value} with binning region", f"at most {limit} with binning region")


@lru_cache(maxsize=32)
def centroids(bins: int, dimension: int) -> npt.NDArray[np.int64]:
    """Centroids of N(0, I_D) in multiples of 2^-16: int64 [L_max, D], read-only.

    Lloyd's algorithm, 30 rounds over 8,192 normals; the first L_max of them, a quarter longer as centroids of an
    optimal quantiser are spread wider than its source, are where it starts. Means are rounded down.
    """
    words = philox.words(_SEED, philox.POOL_DOMAIN, 0, 0, _SAMPLES * dimension)
    points = _units(variates.normals(words, 1.0)).reshape(_SAMPLES, dimension)
    centres = points[:bins] * 5 // 4
    for _ in range(_ITERATIONS):
        nearest = _nearest(points, centres)
        sums = np.zeros_like(centres)
        np.add.at(sums, nearest, points)
        counts = np.bincount(nearest, minlength=bins)[:, None]
        centres = np.where(counts > 0, sums // np.maximum(counts, 1), centres)
    centres.setflags(write=False)
    return centres


def labels(samples: Floats, bins: int) -> npt.NDArray[np.uint32]:
    """Label of the nearest centroid, the lowest of equals, of samples [n, D] on the grid of 2^-16: uint32 [n]."""
    return _nearest(_units(samples), centroids(bins, samples.shape[1])).astype(np.uint32)


def _units(samples: Floats) -> npt.NDArray[np.int64]:
    return np.rint(samples / variates.GRID).astype(np.int64)


def _nearest(points: npt.NDArray[np.int64], centres: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Index of the nearest centre of each point, by |c|² - 2 x·c, whose every partial sum is exact in float64."""
    x, c = points.astype(np.float64), centres.astype(np.float64)
    distance = np.square(c).sum(axis=1) - 2.0 * (x @ c.T)
    return np.asarray(np.argmin(distance, axis=1))
