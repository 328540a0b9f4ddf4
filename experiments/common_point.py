"""A Gaussian source with bins by value and one rule for all decoders: what private races are worth there.

Cells of width w carry the labels 0 … L_max - 1 in turn, as the lattice recipe's do, but a cell holds 16
candidates instead of one. The encoder runs GLS with target N(a, s²) on the candidates; a decoder runs GLS in the
bin and answers with the linear MMSE estimate from its pick, the same rule for each k. So the decoders' answers
differ by their races alone: with K private ones they are a list inside the cell, with one shared race they are
not. The period L_max·w, s and the temperature are chosen for each coupling, on other messages.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from experiments.gaussian import POSTERIOR_VARIANCE, PRIOR_VARIANCE, SIDE_VARIANCE
from experiments.integrated import Answer, Integrated, integrate_answers

Floats = npt.NDArray[np.float64]

CANDIDATES = 16
"""Candidates a cell; more change nothing."""
_PERIODS = (3.0, 4.0, 5.0, 6.0, 7.0, 8.0)
"""Periods that are tried, in standard deviations of the source given the side information."""
_SPREADS = (0.05, 0.1, 0.2)
"""Values of s that are tried, in cell widths."""
_TEMPERATURES = (0.1, 0.5, 1.0)
_RANGE = 7.0
"""Candidates cover this many standard deviations of the source to either side."""
_REACH = 6.0
CHOICE_MESSAGES = 200
_GAIN = PRIOR_VARIANCE / (PRIOR_VARIANCE + SIDE_VARIANCE)


@dataclass(frozen=True)
class Setting:
    """Period in standard deviations given the side information, s in cell widths, temperature of the decoders."""

    period: float
    spread: float
    temperature: float


def common_point(decoders: int, bins: int, shared: bool, messages: int, seed: int) -> Integrated:
    """Distortion with the best setting.

    Args:
        decoders: K.
        bins: L_max.
        shared: one race for all decoders, instead of K private ones.
        messages: sources over which the distortion is integrated.
        seed: of sources and common randomness; the setting is chosen with seed + 1.
    """
    settings = [Setting(*values) for values in itertools.product(_PERIODS, _SPREADS, _TEMPERATURES)]
    best = min(settings, key=lambda s: run_setting(decoders, bins, shared, s, CHOICE_MESSAGES, seed + 1).mse)
    return run_setting(decoders, bins, shared, best, messages, seed)


def run_setting(decoders: int, bins: int, shared: bool, setting: Setting, messages: int, seed: int) -> Integrated:
    """Distortion with one setting; arguments as in :func:`common_point`."""
    generator = np.random.Generator(np.random.Philox(seed))
    width = setting.period * math.sqrt(POSTERIOR_VARIANCE) / bins
    spread = setting.spread * width
    periods = math.ceil(2.0 * _RANGE / (width * bins))
    count = periods * bins * CANDIDATES
    own_bin = bins * CANDIDATES * np.arange(periods)[:, None] + np.arange(CANDIDATES)

    def answers(first: int, sources: Floats) -> Answer:
        rows = len(sources)
        dither = generator.uniform(size=(rows, 1)) * CANDIDATES
        candidates = (np.arange(count) - count // 2 + 0.5 - dither) * (width / CANDIDATES)
        races = np.log(generator.exponential(size=(1 if shared else decoders, rows, count)))
        distance = np.square(candidates - sources[:, None])
        picks = (races.min(axis=0) + distance / (2.0 * spread * spread)).argmin(axis=1)
        # Of the linear estimate's noise: spread of the target, and of candidates within their spacing.
        noise = spread * spread + (width / CANDIDATES) ** 2 / 12.0
        precision = 1.0 / noise + 1.0 / SIDE_VARIANCE + 1.0 / PRIOR_VARIANCE
        label = picks // CANDIDATES % bins
        inside = (CANDIDATES * label[:, None, None] + own_bin).reshape(rows, -1)
        points = np.take_along_axis(candidates, inside, axis=1)
        scores = [setting.temperature * np.take_along_axis(race, inside, axis=1) for race in races]

        def answer(k: int, side: Floats) -> Floats:
            far = np.square(points[:, None, :] - _GAIN * side[:, :, None])
            race = scores[0 if shared else k][:, None, :]
            pick = (race + far / (2.0 * (POSTERIOR_VARIANCE + spread * spread))).argmin(axis=2)
            return np.asarray((np.take_along_axis(points, pick, axis=1) / noise + side / SIDE_VARIANCE) / precision)

        return answer

    return integrate_answers(answers, decoders, SIDE_VARIANCE, messages, generator, _REACH, 2.0 * width)
