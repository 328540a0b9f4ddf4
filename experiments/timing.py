"""Both ends of a Gaussian session, timed: compiled, and by NumPy scans over all N candidates.

Times are processor time of one thread, so that other work on the machine counts little.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import resources
from typing import Any

import numpy as np
import numpy.typing as npt

from decoder import DecodedBatch, Decoder
from decoder.gaussian import GaussianDecoderModel
from encoder import Encoder
from encoder.gaussian import GaussianEncoderModel
from experiments.gaussian import draw
from shared_rng import (
    ModelCard,
    Session,
    bin_candidates,
    decoder_select,
    encoder_select,
    find_model,
    load_card,
    samples,
    selected_labels,
)
from shared_rng.lattice import lattice_for
from shared_rng.pool import Labels
from shared_rng.session import RaceOrder

BINS = (2, 4, 8, 16, 32, 64)
"""Values of L_max in the paper's tables."""
MESSAGES = 2000
PRIOR_VARIANCE, SIDE_VARIANCE = 1.0, 0.5

_SEED = 1

Floats = npt.NDArray[np.float64]
Picks = npt.NDArray[np.int64]
Times = tuple[float, float]
"""Of the encoder and of all K decoders together, microseconds a message."""


@dataclass(frozen=True)
class Ends:
    """Both ends of one session, and sources [B] with side information, K arrays [B]."""

    session: Session
    encoder: Encoder
    decoders: list[Decoder]
    sources: Floats
    sides: list[Floats]

    def first(self, count: int) -> Ends:
        """The same ends with the first ``count`` messages only."""
        return replace(self, sources=self.sources[:count], sides=[side[:count] for side in self.sides])


def paper_card(decoders: int, bins: int) -> ModelCard:
    """The paper's source with its best s² of a cell."""
    tables = json.loads(resources.files("experiments").joinpath("data", "paper_tables.json").read_text("utf-8"))
    best = tables["gaussian"]["gls_best_variance"][str(decoders)][BINS.index(bins)]
    return load_card(find_model("gaussian")).with_variances(
        prior_variance=PRIOR_VARIANCE, noise_variance=best, side_variance=SIDE_VARIANCE
    )


def open_iid(decoders: int, bins: int, pool_size: int, order: RaceOrder = "arrival") -> Ends:
    """The paper's i.i.d. pool of N candidates."""
    card = paper_card(decoders, bins)
    variance = PRIOR_VARIANCE + card.number("noise_variance")
    return _open(card, decoders, bins, pool_size=pool_size, pool_variance=variance, race_order=order)


def open_lattice(decoders: int, bins: int) -> Ends:
    """The recipe's lattice for the same source."""
    lattice = lattice_for(decoders, bins, PRIOR_VARIANCE, SIDE_VARIANCE)
    card = paper_card(decoders, bins)
    return _open(card, decoders, bins, pool_kind="lattice", pool_size=lattice.pool_size, cell_width=lattice.cell_width)


def _open(card: ModelCard, decoders: int, bins: int, **fields: Any) -> Ends:
    session = Session(seed=_SEED, bins=bins, decoders=decoders, model_digest=card.digest, **fields)
    sources, sides = draw(_SEED, MESSAGES, decoders)
    model = GaussianDecoderModel.from_card(card)
    return Ends(
        session,
        Encoder(session, GaussianEncoderModel.from_card(card)),
        [Decoder(session, k, model) for k in range(decoders)],
        sources.astype(np.float64),
        [side.astype(np.float64) for side in sides],
    )


def _timed(work: Callable[[], Any], messages: int) -> tuple[float, Any]:
    """Microseconds of processor time a message, and what came of the work."""
    started = time.thread_time()
    result = work()
    return (time.thread_time() - started) / messages * 1e6, result


def code(ends: Ends) -> tuple[Times, Picks]:
    """Encode and decode all messages, from sources to reconstructions; times, and all picks [1 + K, B]."""
    count = len(ends.sources)
    encoding, batch = _timed(lambda: ends.encoder.encode(ends.sources), count)

    def decode() -> list[DecodedBatch]:
        return [d.decode(batch.payload, side) for d, side in zip(ends.decoders, ends.sides, strict=True)]

    decoding, decoded = _timed(decode, count)
    return (encoding, decoding), np.stack([batch.picks, *(d.picks for d in decoded)])


def scan(ends: Ends, rows: slice) -> tuple[Times, Picks]:
    """The picks of a few messages by the definition, all candidates weighed; the decoders share the bin's."""
    session, encoder_model = ends.session, ends.encoder.model
    messages = range(rows.start, rows.stop)
    sources, sides = ends.sources[rows], [side[rows] for side in ends.sides]

    def encode() -> tuple[Picks, Labels]:
        log_weights = encoder_model.log_weights(sources, samples(session, messages))
        selection = encoder_select(session, messages, log_weights)
        return selection.picks, selected_labels(session, messages, selection)

    encoding, (picks, labels) = _timed(encode, len(messages))

    def decode() -> list[Picks]:
        candidates = bin_candidates(session, messages, labels)
        picked = []
        for decoder, side in zip(ends.decoders, sides, strict=True):
            log_weights = decoder.model.log_weights(side, candidates.samples, candidates.rows)
            picked.append(decoder_select(session, decoder.index, candidates, log_weights).picks)
        return picked

    decoding, decoded = _timed(decode, len(messages))
    return (encoding, decoding), np.stack([picks, *decoded])
