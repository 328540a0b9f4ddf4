"""What one would use instead of GLS for a Gaussian source: no common randomness, or no side information.

Each reference returns squared errors of the best of K for ``trials`` sources A ~ N(0, 1) and side
information T_k = A + N(0, σ²), and the rate that it spent.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from decoder import load_decoder_model
from encoder import load_encoder_model
from experiments.coding import code_in_process
from experiments.integrated import Answer, Integrated, integrate_answers
from shared_rng import CodecError, ModelCard, Session
from shared_rng.card import model_digest
from shared_rng.lattice import cell_answer, lattice_for, upper_tail

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Sampled:
    """Outcome of a reference on sampled sources.

    Attributes:
        errors: squared errors of the best of K, a row a block: [blocks, samples a block].
        bits: rate in bits a source sample; measured where the code has a variable length.
        weights: [blocks], of mean 1, where rare blocks are drawn more often than they occur.
        missed_messages: samples at which no decoder took the encoder's cell; None where that is not counted.
    """

    errors: Floats
    bits: float
    weights: Floats
    missed_messages: int | None = None

    @classmethod
    def of(cls, errors: Floats, bits: float, missed_messages: int | None = None) -> Sampled:
        """Of independent samples, errors [trials]."""
        return cls(errors[:, None], bits, np.ones(len(errors)), missed_messages)

    @property
    def terms(self) -> Floats:
        """One term a block, whose mean is the mean squared error: [blocks]."""
        return np.asarray(self.errors.mean(axis=1) * self.weights)

    @property
    def mse(self) -> float:
        """Mean squared error."""
        return float(self.terms.mean())


def _draw(trials: int, decoders: int, side_variance: float, seed: int) -> tuple[Floats, Floats]:
    generator = np.random.Generator(np.random.Philox(seed))
    sources = generator.standard_normal(trials)
    return sources, sources + math.sqrt(side_variance) * generator.standard_normal((decoders, trials))


def _card(noise_variance: float, side_variance: float) -> ModelCard:
    architecture = {"prior_variance": 1.0, "noise_variance": noise_variance, "side_variance": side_variance}
    return ModelCard("gaussian", architecture, {}, None, model_digest("gaussian", architecture, None))


class NestedQuantiser:
    """Scalar quantiser with nested bins and the recipe's cell width, without any race or temperature.

    The encoder sends the index of the nearest point mod L_max, a decoder takes the point of that residue
    nearest to its mean, and answers with its own point in the cell, as the recipe does.
    """

    def __init__(self, decoders: int, bins: int, side_variance: float) -> None:
        """The width follows from K, L_max and σ² of T = A + N(0, σ²), with A ~ N(0, 1)."""
        self.width = lattice_for(decoders, bins, 1.0, side_variance).cell_width
        self._decoders = decoders
        self._bins = bins
        self._gain = 1.0 / (1.0 + side_variance)
        self._posterior_variance = side_variance * self._gain

    def encode(self, sources: Floats) -> Floats:
        """Messages, 0 … L_max - 1, in the shape of ``sources``."""
        return np.asarray(np.rint(sources / self.width) % self._bins)

    def pick(self, messages: Floats, side: Floats) -> Floats:
        """Index of the picked point; ``messages`` broadcast against ``side``, whose shape it has."""
        place = self._gain * side / self.width
        return np.asarray(np.rint((place - messages) / self._bins) * self._bins + messages)

    def answer(self, k: int, picks: Floats, side: Floats) -> Floats:
        """Decoder k's reconstruction, same shape."""
        centre, mean = picks * self.width, self._gain * side
        return cell_answer(centre, mean, self.width, self._posterior_variance, k, self._decoders)


def nested_quantiser(decoders: int, bins: int, side_variance: float, trials: int, seed: int) -> Sampled:
    """The nested quantiser on sampled sources and side information."""
    sources, sides = _draw(trials, decoders, side_variance, seed)
    quantiser = NestedQuantiser(decoders, bins, side_variance)
    messages = quantiser.encode(sources)
    picks = [quantiser.pick(messages, side) for side in sides]
    answers = [quantiser.answer(k, picks[k], side) for k, side in enumerate(sides)]
    errors = np.square(np.stack(answers) - sources).min(axis=0)
    missed = np.all(np.stack(picks) != np.rint(sources / quantiser.width), axis=0)
    return Sampled.of(errors, math.log2(bins), int(missed.sum()))


def nested_integrated(decoders: int, bins: int, side_variance: float, messages: int, seed: int) -> Integrated:
    """The nested quantiser, integrated over the side information of ``messages`` sources."""
    quantiser = NestedQuantiser(decoders, bins, side_variance)

    def answers(first: int, sources: Floats) -> Answer:
        sent = quantiser.encode(sources)[:, None]
        return lambda k, side: quantiser.answer(k, quantiser.pick(sent, side), side)

    generator = np.random.Generator(np.random.Philox(seed))
    return integrate_answers(answers, decoders, side_variance, messages, generator, far=2.0 * quantiser.width)


def minimal_random_coding(bins: int, noise_variance: float, trials: int, seed: int) -> Sampled:
    """Plain importance sampling of L_max candidates (Havasi et al., 2019): no side information, one decoder."""
    sources, _ = _draw(trials, 1, 1.0, seed)
    card = _card(noise_variance, math.inf)
    session = Session(
        seed=seed,
        pool_size=bins,
        bins=bins,
        decoders=1,
        model_digest=card.digest,
        pool_variance=1.0 + noise_variance,
        race_order="arrival",
    )
    encoder, decoder = load_encoder_model(card), load_decoder_model(card)
    outcome = code_in_process(session, encoder, decoder, sources, [np.zeros(trials)], batch_size=10000)
    return Sampled.of(np.square(outcome.reconstructions[0] - sources), float(session.bits))


def entropy_coded_quantiser(step: float, trials: int, seed: int) -> Sampled:
    """Uniform scalar quantiser of the given step with an ideal-model range coder, no side information.

    Its rate is the length of the coded words, so it varies from block to block; needs the optional package
    ``constriction``. The decoder answers with the mean of the source in the cell.

    Raises:
        CodecError: the step is not above 0.
    """
    import constriction

    if not step > 0:
        raise CodecError("step", step, "a number above 0")
    sources, _ = _draw(trials, 1, 1.0, seed)
    reach = math.ceil(8.0 / step)
    symbols = np.clip(np.rint(sources / step), -reach, reach).astype(np.int32)
    model = constriction.stream.model.QuantizedGaussian(-reach, reach, 0.0, 1.0 / step)
    coder = constriction.stream.queue.RangeEncoder()
    coder.encode(symbols, model)
    words = coder.get_compressed()
    decoded = constriction.stream.queue.RangeDecoder(words).decode(model, trials)
    edges: Floats = (np.arange(-reach, reach + 2, dtype=np.float64) - 0.5) * step
    density = np.exp(-0.5 * edges * edges) / math.sqrt(2.0 * math.pi)
    mass = np.maximum(upper_tail(edges[:-1]) - upper_tail(edges[1:]), 1e-300)
    means = np.where(mass > 1e-12, (density[:-1] - density[1:]) / mass, (edges[:-1] + edges[1:]) / 2.0)
    return Sampled.of(np.square(means[decoded + reach] - sources), 32.0 * len(words) / trials)
