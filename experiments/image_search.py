"""What encoder search gains and costs: the same test images, coded with search and without it, by one model.

Both see the same common randomness and the same crops; neighbours are the data set's training images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from decoder import DecoderModel, load_decoder_model
from encoder import EncoderModel, load_encoder_model
from encoder.similar import SimilarImages
from experiments.catalogue import Model
from experiments.coding import code_in_process
from experiments.datasets import load_images, task_of
from experiments.distortion import standard_error
from experiments.image_cells import CellTrials, trials_of
from experiments.image_records import cell_record
from experiments.image_work import Cell, Setting
from experiments.recipes import recipe_kind
from experiments.results import Record
from shared_rng import CodecError, Session

Floats = npt.NDArray[np.floating]

COLUMNS = (
    "model", "recipe", "coupling", "K", "bits", "search", "MSE (paper)", "± s.e.", "gain ± s.e.", "gain", "one decoder",
    "match", "encoder, CPU ms",
)  # fmt: skip


@dataclass(frozen=True)
class ImageSearchOptions:
    """What is compared.

    Attributes:
        dataset: ``mnist`` or ``cifar10``.
        search: similar images a source, J.
        messages: test images, the first ones.
        seed: of the common randomness.
        decoders: K, or None for the model's.
        bins: L_max, or None for the model's.
        pool_size: N, or None for the smallest of 256 or more that the model's sessions may have.

    Raises:
        CodecError: a value is out of range.
    """

    dataset: str
    search: int = 16
    messages: int = 2000
    seed: int = 1
    decoders: int | None = None
    bins: int | None = None
    pool_size: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("search", 1), ("messages", 2), ("decoders", 1), ("bins", 1), ("pool_size", 1)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise CodecError(name, value, f"at least {least}")


def compare(options: ImageSearchOptions, models: Sequence[Model], folder: Path | None) -> list[Record]:
    """Records of each model and coupling, without search and with it.

    Args:
        options: what is compared.
        models: trained on this data set.
        folder: where the data set is, or None for torchvision's download.

    Raises:
        CodecError: a model does not serve the cell, or images are missing.
    """
    task = task_of(options.dataset)
    cells = [(model, cell, setting) for model in models for cell, setting in _cells(options, model)]
    images = load_images(options.dataset, folder, train=False)[: options.messages]
    similar = SimilarImages(task, load_images(options.dataset, folder, train=True))
    sources = task.sources(images)
    sides = [task.side_information(images, k) for k in range(max(cell.decoders for _, cell, _ in cells))]
    records: list[Record] = []
    for model, cell, setting in cells:
        session = setting.session(cell, options.seed)
        ends = load_encoder_model(model.card, similar), load_decoder_model(model.card)
        records += _pair(options, model, session, ends, sources, sides)
    return records


def _cells(options: ImageSearchOptions, model: Model) -> list[tuple[Cell, Setting]]:
    """A model's cell in each coupling of its recipe, and what it is coded with.

    Raises:
        CodecError: the model does not serve the cell.
    """
    kind = recipe_kind(model.recipe)
    decoders, bins = (_size(options, model, name) for name in ("decoders", "bins"))
    if not kind.couplings or not model.serves(decoders, bins):
        raise CodecError(f"model {model.folder.name}", f"K = {decoders}, {bins} bins", "a cell that it serves")
    pools = {pool["pool_size"]: pool for pool in kind.pools(model.card, decoders, bins)}
    size = options.pool_size or kind.usual_pool_size(model.card, decoders, bins)
    if size not in pools:
        raise CodecError("--pool-size", size, f"one of: {', '.join(map(str, pools))}")
    setting = Setting.of(model, pools[size])
    return [(Cell(model.recipe, coupling, decoders, bins), setting) for coupling in kind.couplings]


def _size(options: ImageSearchOptions, model: Model, name: str) -> int:
    """K or L_max, as asked for or else the model's own."""
    size = getattr(options, name) or model.options.get(name)
    if size is None:
        raise CodecError(f"--{name}", "nothing", f"a number, since model {model.folder.name} serves any")
    return int(size)


def _pair(
    options: ImageSearchOptions,
    model: Model,
    session: Session,
    ends: tuple[EncoderModel, DecoderModel],
    sources: Floats,
    sides: Sequence[Floats],
) -> list[Record]:
    plain, searched = (_code(session, ends, search, sources, sides) for search in (0, options.search))
    seed = model.options.get("seed")
    without, with_search = (
        replace(cell_record(options.dataset, session, [trials], model, seed), encoder_ms=milliseconds)
        for trials, milliseconds in (plain, searched)
    )
    difference = (plain[0].errors.min(axis=0) - searched[0].errors.min(axis=0)) / 2.0
    gain: dict[str, Any] = {
        "search": options.search,
        "search_gain": float(difference.mean()),
        "search_gain_sem": standard_error(difference),
    }
    return [without, replace(with_search, **gain)]


def _code(
    session: Session,
    ends: tuple[EncoderModel, DecoderModel],
    search: int,
    sources: Floats,
    sides: Sequence[Floats],
) -> tuple[CellTrials, float]:
    """What came of all messages, and the encoder's processor time a message in milliseconds."""
    outcome = code_in_process(session, *ends, sources, sides, search=search)
    trials = trials_of(outcome, session, ends[1], sources, sides)
    return trials, 1000.0 * outcome.encoder_seconds / len(sources)


def row(record: Record) -> list[str]:
    """One line of the table."""
    gain = share = ""
    if record.search_gain is not None and record.mse_paper is not None:
        gain = f"{record.search_gain:+.4f} ± {record.search_gain_sem:.4f}"
        share = f"{record.search_gain / (record.mse_paper + record.search_gain):+.1%}"
    decoders = record.mse_paper_decoders or []
    return [
        record.model or "",
        record.recipe or "",
        record.coupling,
        str(record.decoders),
        str(record.bits),
        str(record.search or "–"),
        f"{record.mse_paper:.4f}",
        f"{record.mse_paper_sem:.4f}",
        gain,
        share,
        f"{sum(decoders) / len(decoders):.4f}",
        f"{record.match_probability:.3f}",
        f"{record.encoder_ms:.2f}",
    ]
