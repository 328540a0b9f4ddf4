"""Searching encoder for image models: the message with which the best of K decoders errs least.

Wire format and decoders stay as they are. For every message the encoder simulates the decoders that it may have: their
networks are in the model's folder, their races are common randomness, and for the side information, which it does not
see, stand crops of J images whose halves are most similar to the source. A message m costs

    1/J Σ_j min_k |a - â_k(m, t_jk)|²,

where t_jk is decoder k's crop of image j. Looked at are the few messages of greatest probability under p_{W|A}, and
always the one that GLS would send.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import torch

from encoder.model import Floats
from encoder.similar import OPTION, Numbers, SimilarImages
from networks.decoders import DecoderNetwork, load_decoder
from shared_rng import CodecError, ModelCard, Session, bin_labels, encoder_select, require_picks, samples
from shared_rng.pool import Labels, race_log_times

MESSAGES = 4
"""Messages that are looked at, of which one is that of GLS: more cost as much again, and gain next to nothing."""
_ANSWERS = 1024
"""Reconstructions at a time."""
_WEIGHTS = 2**11
"""Weights of candidates at a time."""


class Weighing(Protocol):
    """The part of an encoder's model that a search needs."""

    def log_weights(self, sources: Floats, samples: Floats) -> Floats:
        """See :meth:`encoder.model.EncoderModel.log_weights`."""
        ...


@dataclass(frozen=True)
class SimulatedDecoders:
    """What a search knows beside the session.

    Attributes:
        network: of every decoder.
        similar: images whose crops stand for side information.
    """

    network: DecoderNetwork
    similar: SimilarImages

    @classmethod
    def of(cls, card: ModelCard, similar: SimilarImages) -> SimulatedDecoders:
        """The decoders of a model.

        Raises:
            CodecError: the decoder's half of the weights is missing, or does not fit the card.
        """
        return cls(load_decoder(card), similar)


@dataclass(frozen=True)
class _Candidates:
    """Messages that are looked at, and the pool's candidates in their bins.

    Attributes:
        labels: [B, C], ascending.
        possible: [B, C], whether the bin holds a candidate that the encoder might pick.
        indices: [B, C, M], ascending; M is the number in the fullest bin.
        held: [B, C, M], whether there is such a candidate.
    """

    labels: Numbers
    possible: npt.NDArray[np.bool_]
    indices: Numbers
    held: npt.NDArray[np.bool_]


class ImageSearch:
    """Expected distortion of some messages of an image session."""

    def __init__(self, session: Session, model: Weighing, decoders: SimulatedDecoders | None, images: int) -> None:
        """Prepare a search with ``images`` similar images a source, J.

        Raises:
            CodecError: there are no images, or fewer than J.
        """
        if decoders is None:
            raise CodecError(
                "encoder search", "an image model without images", f"{OPTION} with images like the sources"
            )
        if not 1 <= images <= len(decoders.similar):
            raise CodecError("search images", images, f"1 … {len(decoders.similar)}, those of {OPTION}")
        self._session, self._model, self._decoders, self._images = session, model, decoders, images
        self._messages = min(MESSAGES, session.bins)
        answers = session.decoders * self._messages
        self._images_at_once = max(1, min(images, _ANSWERS // answers))
        self._sources_at_once = max(1, _ANSWERS // (answers * self._images_at_once))

    def labels(self, sources: Floats, first_message: int) -> Labels:
        """The best message of each source [B, *source_shape], numbered from ``first_message`` on: uint32 [B]."""
        similar = self._decoders.similar.nearest(sources, self._images)
        parts = []
        for start in range(0, len(sources), self._sources_at_once):
            rows = slice(start, start + self._sources_at_once)
            messages = range(first_message, first_message + len(sources))[rows]
            parts.append(self._best(sources[rows], messages, similar[rows]))
        return np.concatenate(parts)

    def _best(self, sources: Floats, messages: Sequence[int], similar: Numbers) -> Labels:
        pools = samples(self._session, messages)
        log_weights = self._model.log_weights(sources, pools)
        selection = encoder_select(self._session, messages, log_weights)
        require_picks(selection)
        candidates = _candidates(
            bin_labels(self._session, messages), log_weights, selection.picks, self._session.bins, self._messages
        )
        log_times = self._log_times(messages, candidates.indices)
        costs = np.zeros(candidates.labels.shape)
        for start in range(0, self._images, self._images_at_once):
            part = similar[:, start : start + self._images_at_once]
            costs += self._errors(sources, pools, candidates, log_times, part).min(axis=2).sum(axis=1)
        best = np.where(candidates.possible, costs, np.inf).argmin(axis=1)
        labels: Labels = candidates.labels[np.arange(len(best)), best].astype(np.uint32)
        return labels

    def _log_times(self, messages: Sequence[int], indices: Numbers) -> Floats:
        """log S_i of the candidates in the race of each decoder: [B, K, C, M]; nothing for a list."""
        if self._session.coupling == "list":
            return np.empty(0)
        races = [
            [race_log_times(self._session, race, message, own) for race in range(self._session.races)]
            for message, own in zip(messages, indices, strict=True)
        ]
        times = np.array(races)
        return np.broadcast_to(times, (len(times), self._session.decoders, *times.shape[2:]))

    @torch.inference_mode()
    def _errors(
        self, sources: Floats, pools: Floats, candidates: _Candidates, log_times: Floats, similar: Numbers
    ) -> Floats:
        """Squared errors of simulated decoders: [B, J, K, C]; infinite where one has no pick."""
        count, images = similar.shape
        decoders, network = self._session.decoders, self._decoders.network
        crops = self._decoders.similar.crops(similar, decoders).reshape(count * images * decoders, -1)
        features = network.features(torch.from_numpy(crops)).unflatten(0, (count, images * decoders))
        picks, failed = self._picks(pools, candidates, log_times, features)
        latents = pools[np.arange(count)[:, None, None], picks.reshape(count, images * decoders, -1)]
        answers = network.answers(torch.from_numpy(latents), features)
        flat = torch.from_numpy(sources).flatten(1)
        errors = (answers - flat[:, None, None]).square().sum(dim=3).numpy().reshape(picks.shape)
        return np.where(failed, np.inf, errors)

    def _picks(
        self, pools: Floats, candidates: _Candidates, log_times: Floats, features: torch.Tensor
    ) -> tuple[Numbers, npt.NDArray[np.bool_]]:
        """X^(k) of simulated decoders with features [B, J · K, F], and whether they have none: [B, J, K, C]."""
        count, messages = candidates.labels.shape
        decoders = self._session.decoders
        shape = (count, features.shape[1] // decoders, decoders, messages)
        if self._session.coupling == "list":
            words = candidates.labels[:, None, None] + self._session.bins * np.arange(decoders)[:, None]
            return np.broadcast_to(words, shape), np.zeros(shape, dtype=bool)
        rows = torch.from_numpy(pools[np.arange(count)[:, None], candidates.indices.reshape(count, -1)])
        size = max(1, _WEIGHTS // (count * features.shape[1]))
        weights = torch.cat([self._decoders.network.weigh(part, features) for part in rows.split(size, dim=1)], dim=2)
        log_weights = weights.numpy().reshape(*shape, -1)
        log_weights = np.where(candidates.held[:, None, None], log_weights, -np.inf)
        places = (log_times[:, None] - log_weights).argmin(axis=4)
        indices = np.broadcast_to(candidates.indices[:, None, None], log_weights.shape)
        picks = np.take_along_axis(indices, places[..., None], axis=4)[..., 0]
        return picks, ~np.isfinite(log_weights.max(axis=4))


def _candidates(labels: Labels, log_weights: Floats, picks: Numbers, bins: int, messages: int) -> _Candidates:
    """Messages of greatest probability, and always those of GLS.

    Args:
        labels: [B, N], bin labels of the pool.
        log_weights: [B, N], of the target.
        picks: [B], Y of GLS.
        bins: L_max.
        messages: C.
    """
    count, size = labels.shape
    every = np.arange(count)[:, None]
    numbers = (labels + every * bins).ravel()
    weights = np.exp(log_weights - log_weights.max(axis=1, keepdims=True)).ravel()
    mass = np.bincount(numbers, weights=weights, minlength=count * bins).reshape(count, bins)
    held = np.bincount(numbers, minlength=count * bins).reshape(count, bins)
    mass[every[:, 0], labels[every[:, 0], picks]] = np.inf
    chosen = np.sort(np.argsort(-mass, axis=1, kind="stable")[:, :messages], axis=1)
    order = np.argsort(labels, axis=1, kind="stable")
    places = np.arange(held[every, chosen].max())
    first = (np.cumsum(held, axis=1) - held)[every, chosen]
    indices = order[every[:, :, None], np.minimum(first[:, :, None] + places, size - 1)]
    return _Candidates(chosen, mass[every, chosen] > 0.0, indices, places < held[every, chosen][:, :, None])
