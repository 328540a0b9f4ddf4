"""Expected distortion of a Gaussian session, integrated over the side information instead of sampled.

Once a source, a message number and the message are fixed, decoder k's answer is a function of its side
information t_k alone, and the t_k are independent given the source. So the distribution of each decoder's
squared error is found on a grid of t, and the mean of the best of K is

    E[min_k e_k²] = ∫ Π_k P(e_k² > x) dx.

A failure that happens once in ten million messages then counts with its probability. Sources are stratified.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from decoder import DecoderModel
from decoder.codec import Decoder
from encoder import Encoder, EncoderModel
from encoder.search import expected_minimum
from experiments.distortion import standard_error
from shared_rng import Session
from shared_rng.variates import inverse_normal_cdf

Floats = npt.NDArray[np.float64]

SPACING = 0.1
"""Distance of neighbouring values of t, in standard deviations given the source."""
REACH = 8.0
"""The grid covers this many standard deviations of t given the source."""
_CHUNK = 1000


@dataclass(frozen=True)
class Integrated:
    """Mean squared error of the best of K and its standard error over sources and common randomness."""

    mse: float
    sem: float

    @property
    def mse_db(self) -> float:
        """10·log10 of the mean squared error."""
        return float(10.0 * np.log10(self.mse))

    @property
    def sem_db(self) -> float:
        """Standard error in dB, to first order."""
        return float(10.0 / np.log(10.0) * self.sem / self.mse)


def stratified_sources(count: int, generator: np.random.Generator) -> Floats:
    """N(0, 1) sources, one from each of ``count`` equally likely strata, in random order: [count]."""
    quantiles = (generator.permutation(count) + generator.uniform(size=count)) / count
    return inverse_normal_cdf(np.clip(quantiles, 1e-12, 1.0 - 1e-12))


def integrate(
    session: Session,
    encoder_model: EncoderModel,
    decoder_model: DecoderModel,
    side_variance: float,
    messages: int,
    seed: int,
    search: int = 0,
    reach: float = REACH,
) -> Integrated:
    """Integrate over the side information of ``messages`` messages of a source N(0, 1).

    Args:
        session: of a Gaussian model whose prior variance is 1.
        encoder_model: the encoder's half.
        decoder_model: the decoder's half.
        side_variance: σ² of T = A + N(0, σ²).
        messages: number of sources, each with common randomness of its own.
        seed: of sources and of the grid's shifts.
        search: nodes of a searching encoder, or 0.
        reach: how far the grid of t goes, in standard deviations given the source.
    """
    generator = np.random.Generator(np.random.Philox(seed))
    sources = stratified_sources(messages, generator)
    encoder = Encoder(session, encoder_model, search)
    decoders = [Decoder(session, k, decoder_model) for k in range(session.decoders)]
    nodes = round(2.0 * reach / SPACING)
    means = []
    for first in range(0, messages, _CHUNK):
        part = sources[first : first + _CHUNK]
        labels = encoder.encode(part, first).labels
        numbers = np.repeat(np.arange(first, first + len(part)), nodes).tolist()
        errors, weights = [], []
        for decoder in decoders:
            z = (np.arange(nodes) + generator.uniform(size=(len(part), 1))) * (2.0 * reach / nodes) - reach
            density = np.exp(-0.5 * z * z)
            side = part[:, None] + np.sqrt(side_variance) * z
            answers = decoder.decode_labels(np.repeat(labels, nodes), side.ravel(), numbers).reconstructions
            errors.append(np.square(answers.reshape(z.shape) - part[:, None]))
            weights.append(density / density.sum(axis=1, keepdims=True))
        means.append(expected_minimum(np.stack(errors), np.stack(weights)))
    values = np.concatenate(means)
    return Integrated(float(values.mean()), standard_error(values))
