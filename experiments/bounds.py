"""What theory says of the Gaussian source: limits of distortion, and lower bounds of the match probability.

Distortion limits may stand only beside ``mse_db``. ``mean_db`` has no such limit.
"""

from __future__ import annotations

import numpy as np

from decoder import Decoder, DecoderModel
from encoder import EncoderModel
from experiments.gaussian import POSTERIOR_VARIANCE, Floats
from shared_rng import Session, bin_labels, samples
from shared_rng.pool import Indices

_NODES = 96
_BATCH_CANDIDATES = 2**17
"""Candidates of as many messages as fit are weighed at once."""
_LARGEST_EXPONENT = 700.0
"""exp of more overflows; a term of exp(700) is as good as infinite."""


def wyner_ziv_db(bits: float, decoders: int = 1) -> float:
    """10·log10 of D = Var[A|T] · 2^(-2 (R + log2 K)), R bits a message.

    With K = 1 no code of rate R does better (Wyner and Ziv, 1976). With K > 1 it is the distortion of one
    decoder at rate R + log2 K: a reference, not a bound. With R = 0 and K = 1 it is the distortion of E[A|t].
    """
    rate = bits + np.log2(decoders)
    return float(10.0 * np.log10(POSTERIOR_VARIANCE * 2.0 ** (-2.0 * rate)))


def proposition_4(decoders: int, bins: int, noise: float) -> float:
    """Lower bound E[(1 + 2^i(W;A|T) / (K L_max))^-1] of the match probability, 2^i = p(W|A) / p(W|T).

    It is for a large i.i.d. pool, private races (or K = 1) and uniform labels. With W = A + s z₁ and
    W - E[W|T] = √v y, v = Var[A|T] + s², the pair (z₁, y) is standard normal with correlation s / √v, and
    2^i = √v / s · exp((y² - z₁²) / 2); the mean is a Gauss–Hermite sum over z₁ and the rest of y.

    Args:
        decoders: K.
        bins: L_max.
        noise: s² of p_{W|A} = N(a, s²).
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
    weights = weights / weights.sum()
    spread = POSTERIOR_VARIANCE + noise
    correlation = np.sqrt(noise / spread)
    z = nodes[:, None]
    y = correlation * z + np.sqrt(1.0 - correlation**2) * nodes[None, :]
    ratio = np.sqrt(spread / noise) * np.exp(0.5 * (np.square(y) - np.square(z)))
    return float(weights @ (1.0 / (1.0 + ratio / (decoders * bins))) @ weights)


def lemma_terms(
    session: Session,
    encoder_model: EncoderModel,
    decoder_model: DecoderModel,
    sources: Floats,
    sides: list[Floats],
    picks: Indices,
) -> Floats:
    """Terms whose mean is the list matching lemma's lower bound of the match probability (equation 3): [B].

    Given the pool, the labels, a and every t_k, the probability of a match given Y = j is at least
    Σ_k 1 / (K + c_j^(k)) with c_j = Σ_i (q_j p_i / p_j - q_i)_+, where q is the encoder's normalised weights
    and p decoder k's in the bin of j. Y follows q, so the encoder's own picks sample the sum over j. For
    K = 1 the bound is the probability itself; with one race shared by K > 1 decoders it does not hold.

    Args:
        session: the session.
        encoder_model: the encoder's half.
        decoder_model: the decoder's half.
        sources: [B], those of messages 0 … B - 1.
        sides: K arrays [B].
        picks: int64 [B], Y of each message.
    """
    encoder_half = encoder_model.for_session(session)
    halves = [Decoder(session, k, decoder_model).model for k in range(session.decoders)]
    wide = np.asarray(sources, dtype=np.float64)
    size = max(1, _BATCH_CANDIDATES // session.pool_size)
    terms = []
    for first in range(0, len(picks), size):
        part = slice(first, first + size)
        messages = range(len(picks))[part]
        pool = samples(session, messages)
        log_q = encoder_half.log_weights(wide[part], pool)
        log_q -= np.logaddexp.reduce(log_q, axis=1, keepdims=True)
        labels = bin_labels(session, messages)
        rows, indices = np.nonzero(labels == labels[np.arange(len(messages)), picks[part]][:, None])
        picked = np.flatnonzero(indices == picks[part][rows])
        own_log_q = log_q[rows, indices]
        total = np.zeros(len(messages))
        for half, side in zip(halves, sides, strict=True):
            log_p = half.log_weights(np.asarray(side[part]), pool[rows, indices], rows)
            log_scaled = log_p + (own_log_q - log_p)[picked][rows]
            excess = np.maximum(np.exp(np.minimum(log_scaled, _LARGEST_EXPONENT)) - np.exp(own_log_q), 0.0)
            total += 1.0 / (session.decoders + np.bincount(rows, weights=excess, minlength=len(messages)))
        terms.append(total)
    return np.concatenate(terms)


def list_matching_bound(q: Floats, p: Floats, decoders: int) -> float:
    """Equation 3 for letters: Σ_j q_j K / (K + c_j) with c_j = Σ_i (q_j p_i / p_j - q_i)_+.

    Args:
        q: [N], the encoder's distribution.
        p: [N], that of every decoder, positive.
        decoders: K.
    """
    excess = np.maximum(np.outer(q / p, p) - q, 0.0).sum(axis=1)
    return float((q * decoders / (decoders + excess)).sum())
