"""From the trials of an image cell to its record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from experiments.catalogue import Model
from experiments.distortion import standard_error
from experiments.image_cells import CellTrials
from experiments.results import Record
from shared_rng import Session

Errors = npt.NDArray[np.float64]


def image_figures(best: Sequence[Errors]) -> dict[str, float | list[float]]:
    """Both MSE conventions and PSNR, from best errors [B] a source pixel in [-1, 1], one array a coding seed.

    The paper averages over an image whose other half is blank, which halves the error; on [0, 1] pixels a squared
    error is a quarter of that on [-1, 1]. Standard errors are over images, each averaged over the seeds first.
    """
    images = np.mean(best, axis=0)
    mse = float(images.mean()) / 4.0
    return {
        "mse_paper": float(images.mean()) / 2.0,
        "mse_paper_sem": standard_error(images) / 2.0,
        "mse_paper_seeds": [float(errors.mean()) / 2.0 for errors in best],
        "mse": mse,
        "psnr_db": float(-10.0 * np.log10(mse)),
    }


def cell_record(source: str, session: Session, trials: Sequence[CellTrials], model: Model, seed: int | None) -> Record:
    """The record of a cell.

    Args:
        source: name of the data set.
        session: the cell's, with the first seed.
        trials: one a coding seed, of the same images.
        model: the model.
        seed: with which it was trained, if it is known.
    """
    hits = np.stack([t.decoder_picks == t.encoder_picks for t in trials])
    matched = hits.any(axis=1).mean(axis=0)
    return Record(
        source=source,
        coupling=session.coupling,
        decoders=session.decoders,
        bins=session.bins,
        bits=session.bits,
        messages=len(matched),
        pool_size=session.pool_size,
        recipe=model.recipe,
        model=model.folder.name,
        model_digest=model.card.digest.hex(),
        training_seed=seed,
        coding_seeds=len(trials),
        match_probability=float(matched.mean()),
        match_probability_sem=standard_error(matched),
        match_decoders=[float(share) for share in hits.mean(axis=(0, 2))],
        mse_paper_decoders=[float(e) / 2.0 for e in np.mean([t.errors.mean(axis=1) for t in trials], axis=0)],
        mse_paper_no_mismatch=float(np.mean([t.matched_errors.min(axis=0).mean() for t in trials])) / 2.0,
        failed_messages=sum(int((t.decoder_picks < 0).any(axis=0).sum()) for t in trials),
        payload_bytes=trials[0].payload_bytes,
        **image_figures([t.errors.min(axis=0) for t in trials]),  # type: ignore[arg-type]
    )


def with_gains(records: Sequence[Record], errors: Sequence[Errors]) -> list[Record]:
    """GLS records with the paired difference to the baseline's, where that is there.

    Args:
        records: of any cells.
        errors: best errors [B] of each, averaged over seeds.
    """
    baselines = {
        (r.recipe, r.decoders, r.bins): e for r, e in zip(records, errors, strict=True) if r.coupling == "baseline"
    }
    found = []
    for record, own in zip(records, errors, strict=True):
        other = baselines.get((record.recipe, record.decoders, record.bins))
        if record.coupling == "gls" and other is not None:
            difference = (other - own) / 2.0
            gain = {
                "baseline_minus_gls": float(difference.mean()),
                "baseline_minus_gls_sem": standard_error(difference),
            }
            record = replace(record, **gain)  # type: ignore[arg-type]
        found.append(record)
    return found
