"""Expected distortion of a Gaussian session, integrated over the side information instead of sampled.

Once a source, a message number and the message are fixed, decoder k's answer is a function of its side
information t_k alone, and the t_k are independent given the source. So the distribution of each decoder's
squared error is found on a grid of t, and the mean of the best of K is

    E[min_k e_k²] = ∫ Π_k P(e_k² > x) dx.

A failure that happens once in ten million messages then counts with its probability. Sources are stratified,
and drawn more often where they fail.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from decoder import DecoderModel
from decoder.codec import Decoder
from encoder import Encoder, EncoderModel
from encoder.search import expected_minimum
from shared_rng import Session
from shared_rng.variates import inverse_normal_cdf

Floats = npt.NDArray[np.float64]
Answer = Callable[[int, Floats], Floats]

SPACING = 0.1
"""Distance of neighbouring values of t, in standard deviations given the source."""
REACH = 8.0
"""The grid covers this many standard deviations of t given the source."""
SOURCE_SPREAD = 2.0
"""Variance of the sources that are drawn, against 1 of those that are meant."""
_CHUNK = 1000


@dataclass(frozen=True)
class Integrated:
    """Mean squared error of the best of K, its standard error over sources and common randomness, and failures.

    Attributes:
        mse: the mean.
        sem: its standard error.
        far_share: probability that the best error is beyond ``far``, None where none was named.
    """

    mse: float
    sem: float
    far_share: float | None

    @property
    def mse_db(self) -> float:
        """10·log10 of the mean squared error."""
        return float(10.0 * np.log10(self.mse))

    @property
    def sem_db(self) -> float:
        """Standard error in dB, to first order."""
        return float(10.0 / np.log(10.0) * self.sem / self.mse)


def weighted_sources(count: int, generator: np.random.Generator) -> tuple[Floats, Floats]:
    """Sources for a mean over N(0, 1), one from each of ``count`` strata in ascending order, and their weights.

    They are drawn from N(0, 2), since sources far from 0, whose side information points elsewhere, fail most and
    carry much of the mean; a source's weight is the ratio of the two densities over ``count``, so that a mean is
    the sum of weighted values.

    Returns:
        sources [count] and weights [count].
    """
    quantiles = (np.arange(count) + generator.uniform(size=count)) / count
    standard = inverse_normal_cdf(np.clip(quantiles, 1e-12, 1.0 - 1e-12))
    weights = np.sqrt(SOURCE_SPREAD) * np.exp(-0.5 * (SOURCE_SPREAD - 1.0) * standard * standard) / count
    return np.sqrt(SOURCE_SPREAD) * standard, weights


def stratified_error(terms: Floats) -> float:
    """Standard error of the sum of one term a stratum, [B] in the order of strata.

    Neighbouring strata differ little, so the squared difference of a pair estimates the sum of their variances,
    if anything too large (collapsed strata; Cochran, Sampling Techniques, section 5A.12).
    """
    even = terms[: len(terms) // 2 * 2]
    return float(np.sqrt(np.square(even[1::2] - even[::2]).sum() * len(terms) / len(even)))


def integrate_answers(
    answers: Callable[[int, Floats], Answer],
    decoders: int,
    side_variance: float,
    messages: int,
    generator: np.random.Generator,
    reach: float = REACH,
    far: float | None = None,
) -> Integrated:
    """Integrate over the side information T_k = A + N(0, σ²) of ``messages`` messages of a source N(0, 1).

    Args:
        answers: encodes sources [B] of which the first has the given number; returns the function that answers for
            decoder k to side information [B, J], a row a source, with reconstructions [B, J].
        decoders: K.
        side_variance: σ².
        messages: number of sources.
        generator: of sources and of the grids' shifts.
        reach: how far the grid of t goes, in standard deviations given the source.
        far: error beyond which a message counts as a failure, or None.
    """
    sources, source_weights = weighted_sources(messages, generator)
    nodes = round(2.0 * reach / SPACING)
    means, failures = [], []
    for first in range(0, messages, _CHUNK):
        part = sources[first : first + _CHUNK]
        answer = answers(first, part)
        errors, weights = [], []
        for k in range(decoders):
            z = (np.arange(nodes) + generator.uniform(size=(len(part), 1))) * (2.0 * reach / nodes) - reach
            density = np.exp(-0.5 * z * z)
            side = part[:, None] + np.sqrt(side_variance) * z
            errors.append(np.square(answer(k, side) - part[:, None]))
            weights.append(density / density.sum(axis=1, keepdims=True))
        means.append(expected_minimum(np.stack(errors), np.stack(weights)))
        if far is not None:
            beyond = [(w * (e > far * far)).sum(axis=1) for e, w in zip(errors, weights, strict=True)]
            failures.append(np.prod(beyond, axis=0))
    terms = source_weights * np.concatenate(means)
    far_share = float(source_weights @ np.concatenate(failures)) if failures else None
    return Integrated(float(terms.sum()), stratified_error(terms), far_share)


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
    """Integrate a session, each message with common randomness of its own; see :func:`integrate_answers`.

    Args:
        session: of a Gaussian model whose prior variance is 1; on a lattice an error beyond two cells is far.
        encoder_model: the encoder's half.
        decoder_model: the decoder's half.
        side_variance: σ² of T = A + N(0, σ²).
        messages: number of sources.
        seed: of sources and of the grid's shifts.
        search: nodes of a searching encoder, or 0.
        reach: how far the grid of t goes, in standard deviations given the source.
    """
    encoder = Encoder(session, encoder_model, search)
    decoders = [Decoder(session, k, decoder_model) for k in range(session.decoders)]

    def answers(first: int, sources: Floats) -> Answer:
        labels = encoder.encode(sources, first).labels

        def answer(k: int, side: Floats) -> Floats:
            nodes = side.shape[1]
            numbers = np.repeat(np.arange(first, first + len(labels)), nodes).tolist()
            decoded = decoders[k].decode_labels(np.repeat(labels, nodes), side.ravel(), numbers)
            return decoded.reconstructions.reshape(side.shape)

        return answer

    far = 2.0 * session.cell_width if session.pool_kind == "lattice" else None
    generator = np.random.Generator(np.random.Philox(seed))
    return integrate_answers(answers, session.decoders, side_variance, messages, generator, reach, far)
