"""Regions: exact centroids and labels, near each other and about as good as a quantiser of the prior can be."""

from __future__ import annotations

import numpy as np
import pytest

from shared_rng import bin_labels, philox, regions, samples, variates
from tests.models import make_session


def normals(count: int, dimension: int) -> variates.Floats:
    words = philox.words(7, philox.POOL_DOMAIN, 0, 0, count * dimension)
    return variates.normals(words, 1.0).reshape(count, dimension)


def test_two_regions_of_a_line() -> None:
    """The optimal quantiser of N(0, 1) with two levels: ±√(2/π). 8,192 samples: standard error .008 of each."""
    centres = np.sort(regions.centroids(2, 1)[:, 0] * variates.GRID)
    assert centres == pytest.approx([-np.sqrt(2 / np.pi), np.sqrt(2 / np.pi)], abs=0.03)


@pytest.mark.parametrize(("bins", "dimension", "limit"), [(4, 1, 0.12), (4, 4, 0.66), (16, 4, 0.36), (64, 4, 0.2)])
def test_regions_are_small(bins: int, dimension: int, limit: float) -> None:
    """Mean squared distance a coordinate: optimal is .1175 for 4 levels of a line, and 1 for one region."""
    points = normals(4000, dimension)
    centres = regions.centroids(bins, dimension) * variates.GRID
    own = centres[regions.labels(points, bins)]
    assert np.square(points - own).mean() < limit
    distances = np.square(points[:, None] - centres).sum(axis=2)
    assert np.square(points - own).sum(axis=1) == pytest.approx(distances.min(axis=1))


def test_every_region_is_used() -> None:
    counts = np.bincount(regions.labels(normals(8000, 4), 64), minlength=64)
    assert counts.min() > 8000 / 64 / 4


def test_labels_are_integers_of_any_order() -> None:
    """Points alone, in a batch, or with their coordinates elsewhere in memory get the same labels."""
    points = normals(300, 4)
    together = regions.labels(points, 16)
    assert [int(regions.labels(point[None], 16)[0]) for point in points] == together.tolist()
    assert np.array_equal(regions.labels(np.asfortranarray(points), 16), together)


def test_equal_distances_go_to_the_lowest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regions, "centroids", lambda bins, dimension: np.array([[65536], [-65536], [-65536]]))
    assert regions.labels(np.array([[0.0], [-0.5], [0.5]]), 3).tolist() == [0, 1, 0]


def test_centroids_do_not_change() -> None:
    with pytest.raises(ValueError, match="read-only"):
        regions.centroids(4, 2)[0, 0] = 1


def test_a_bin_holds_neighbours() -> None:
    """Candidates of one region are nearer to each other than those of one random bin."""
    spread = {}
    for binning in ("random", "region"):
        session = make_session(pool_size=512, bins=16, latent_dimension=4, binning=binning)
        pool, labels = samples(session, [3])[0], bin_labels(session, [3])[0]
        spread[binning] = np.mean([pool[labels == label].var(axis=0).mean() for label in range(16)])
    assert spread["region"] < 0.5 < 0.8 < spread["random"]
