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
from shared_rng import CodecError, ModelCard, Session
from shared_rng.card import model_digest
from shared_rng.lattice import cell_answer, lattice_for, upper_tail

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Reference:
    """Outcome of a reference.

    Attributes:
        errors: squared errors of the best of K: [trials].
        bits: rate in bits a source sample; measured where the code has a variable length.
    """

    errors: Floats
    bits: float


def _draw(trials: int, decoders: int, side_variance: float, seed: int) -> tuple[Floats, Floats]:
    generator = np.random.Generator(np.random.Philox(seed))
    sources = generator.standard_normal(trials)
    return sources, sources + math.sqrt(side_variance) * generator.standard_normal((decoders, trials))


def _card(noise_variance: float, side_variance: float) -> ModelCard:
    architecture = {"prior_variance": 1.0, "noise_variance": noise_variance, "side_variance": side_variance}
    return ModelCard("gaussian", architecture, {}, None, model_digest("gaussian", architecture, None))


def nested_quantiser(decoders: int, bins: int, side_variance: float, trials: int, seed: int) -> Reference:
    """Scalar quantiser with nested bins and the recipe's cell width, without any race or temperature.

    The encoder sends the index of the nearest point mod L_max, a decoder takes the point of that residue
    nearest to its mean, and answers with its own point in the cell, as the recipe does.
    """
    sources, sides = _draw(trials, decoders, side_variance, seed)
    width = lattice_for(decoders, bins, 1.0, side_variance).cell_width
    gain = 1.0 / (1.0 + side_variance)
    residue = np.rint(sources / width) % bins
    errors = np.full(trials, np.inf)
    for k in range(decoders):
        mean = gain * sides[k]
        picked = (np.rint((mean / width - residue) / bins) * bins + residue) * width
        answer = cell_answer(picked, mean, width, side_variance * gain, k, decoders)
        errors = np.minimum(errors, np.square(answer - sources))
    return Reference(errors, math.log2(bins))


def minimal_random_coding(bins: int, noise_variance: float, trials: int, seed: int) -> Reference:
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
    return Reference(np.square(outcome.reconstructions[0] - sources), float(session.bits))


def entropy_coded_quantiser(step: float, trials: int, seed: int) -> Reference:
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
    return Reference(np.square(means[decoded + reach] - sources), 32.0 * len(words) / trials)
