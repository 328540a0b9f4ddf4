"""Faults: what can go wrong at which place, how it begins and how it ends, and which happen together."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Fault:
    """Something that goes wrong at one place, how it begins and how it ends."""

    kind: str
    place: str
    begin: Callable[[], None]
    end: Callable[[], None]


def draw_faults(chance: random.Random, faults: Sequence[Fault]) -> list[Fault]:
    """Faults for one round: at one to three places, every place as likely as any other, one at each."""
    names = sorted({fault.place for fault in faults})
    places = chance.sample(names, min(len(names), chance.choice((1, 1, 2, 3))))
    return [chance.choice([fault for fault in faults if fault.place == place]) for place in places]
