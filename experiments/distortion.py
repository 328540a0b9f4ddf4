"""From what came of a cell's messages to its record: distortion is the best of K."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

from experiments.coding import Outcome
from experiments.results import Record
from shared_rng import Session

Floats = npt.NDArray[np.floating]

_RESAMPLES = 1000
_BLOCK = 100
"""Resamples at a time, which bounds memory."""
_GROUPS = 10_000


def best_squared_errors(sources: Floats, reconstructions: Floats) -> Floats:
    """Squared error of the best of K reconstructions, averaged over a source's coordinates: [B].

    Args:
        sources: [B, *source_shape].
        reconstructions: [K, B, *source_shape]; a failed message is NaN and counts as zero, the prior mean
            of a Gaussian source and mid-grey in an image.
    """
    errors = np.square(np.nan_to_num(reconstructions, nan=0.0) - sources)
    return np.asarray(errors.reshape(*errors.shape[:2], -1).mean(axis=2).min(axis=0), dtype=np.float64)


def standard_error(values: Floats) -> float:
    """Standard error of the mean of [B] values, of which there must be two or more."""
    return float(values.std(ddof=1) / np.sqrt(len(values)))


def mean_interval(values: Floats, seed: int) -> tuple[float, float]:
    """95 % bootstrap interval (percentiles of 1,000 resampled means) of the mean of [B] independent values.

    Beyond 10,000 values, as many groups of them are resampled in their place: a group's sum is as independent
    and identically distributed as a value, and the cost no longer grows with B.
    """
    groups = np.arange(len(values)) % min(len(values), _GROUPS)
    sums, counts = np.bincount(groups, weights=values), np.bincount(groups)
    generator = np.random.Generator(np.random.Philox(seed))
    means = []
    for _ in range(_RESAMPLES // _BLOCK):
        drawn = generator.integers(0, len(sums), size=(_BLOCK, len(sums)))
        means.append(sums[drawn].sum(axis=1) / counts[drawn].sum(axis=1))
    low, high = np.quantile(np.concatenate(means), (0.025, 0.975))
    return float(low), float(high)


def base_record(source: str, session: Session, outcome: Outcome, seconds: float) -> Record:
    """The fields that every source has."""
    return Record(
        source=source,
        coupling=session.coupling,
        decoders=session.decoders,
        bins=session.bins,
        bits=session.bits,
        messages=len(outcome.encoder_picks),
        pool_size=session.pool_size,
        match_probability=float(outcome.matched.mean()),
        failed_messages=int((outcome.decoder_picks < 0).any(axis=0).sum()),
        payload_bytes=outcome.payload_bytes,
        seconds=round(seconds, 3),
    )


def image_record(source: str, session: Session, outcome: Outcome, errors: Floats, seconds: float) -> Record:
    """A record in both image conventions, from best errors [B] a source pixel in [-1, 1].

    The paper averages over an image whose other half is blank, which halves the error; on [0, 1] pixels
    a squared error is a quarter of that on [-1, 1].
    """
    mse = float(errors.mean()) / 4.0
    return dataclasses.replace(
        base_record(source, session, outcome, seconds),
        mse_paper=float(errors.mean()) / 2.0,
        mse_paper_sem=standard_error(errors) / 2.0,
        mse=mse,
        psnr_db=float(-10.0 * np.log10(mse)),
    )


def compare_with_baseline(gls: Record, gls_errors: Floats, baseline_errors: Floats) -> Record:
    """Add the paired difference to a GLS record; errors [B] of the same messages."""
    difference = (baseline_errors - gls_errors) / 2.0
    return dataclasses.replace(
        gls,
        baseline_minus_gls=float(difference.mean()),
        baseline_minus_gls_sem=standard_error(difference),
    )
