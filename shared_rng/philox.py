"""Random-access 64-bit words from Philox4x64-10 (Salmon et al., SC 2011).

Every word is a pure function of (seed, domain, message, index): word ``index`` is lane ``index % 4`` of
the block whose 256-bit counter is, in 64-bit words, ``(index // 4, message, domain, 0)`` and whose key is
the 128-bit seed, low word first. Nothing is consumed, so a message can be decoded alone, late or first.
"""

from __future__ import annotations

import operator
import threading
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from shared_rng.errors import CodecError

Words = npt.NDArray[np.uint64]

POOL_DOMAIN = 0
BIN_DOMAIN = 1
RACE_DOMAIN = 16
"""Race k has domain RACE_DOMAIN + k."""

_MASK = 2**64 - 1
_local = threading.local()


def blocks(key: int, counter: int, count: int) -> Words:
    """``count`` consecutive Philox4x64-10 blocks as ``4 * count`` words, from a 256-bit counter on.

    Args:
        key: 128 bits.
        counter: 256 bits; the counter of the first block.
        count: number of blocks.
    """
    # NumPy guarantees raw Philox words; it increments the counter before it makes a block, so it is
    # set one back. Setting the state of a kept generator is several times cheaper than a new one, and
    # one generator a thread keeps the function pure under concurrency.
    generator: np.random.Philox | None = getattr(_local, "generator", None)
    if generator is None:
        generator = _local.generator = np.random.Philox(key=0)
    before = (counter - 1) % 2**256
    generator.state = {
        "bit_generator": "Philox",
        "state": {
            "counter": np.array([before >> shift & _MASK for shift in (0, 64, 128, 192)], dtype=np.uint64),
            "key": np.array([key & _MASK, key >> 64], dtype=np.uint64),
        },
        "buffer": np.zeros(4, dtype=np.uint64),
        "buffer_pos": 4,
        "has_uint32": 0,
        "uinteger": 0,
    }
    return generator.random_raw(4 * count)


def words(seed: int, domain: int, message: int, start: int, count: int) -> Words:
    """Words ``start … start + count - 1`` of one message in one domain.

    Args:
        seed: 0 … 2^128 - 1.
        domain: 0 … 2^64 - 1.
        message: message number, 0 … 2^64 - 1.
        start: index of the first word, with ``start + count <= 2^64``.
        count: number of words.

    Returns:
        uint64 [count].

    Raises:
        CodecError: an argument is out of range.
    """
    # Plain integers: a numpy integer would overflow, or wrap without a word, in the shifts below.
    seed, domain, message = operator.index(seed), operator.index(domain), operator.index(message)
    for name, value, bits in (("seed", seed, 128), ("domain", domain, 64), ("message", message, 64)):
        if not 0 <= value < 2**bits:
            raise CodecError(name, value, f"an integer in 0 … 2^{bits} - 1")
    if start < 0 or count < 0 or start + count > 2**64:
        raise CodecError("word range", (start, count), "start >= 0, count >= 0 and start + count <= 2^64")
    first, skip = divmod(start, 4)
    counter = domain << 128 | message << 64 | first
    return blocks(seed, counter, (skip + count + 3) // 4)[skip : skip + count]


def word_table(seed: int, domain: int, messages: Sequence[int], count: int) -> Words:
    """The first ``count`` words of each message: uint64 [len(messages), count]."""
    table = np.empty((len(messages), count), dtype=np.uint64)
    for row, message in zip(table, messages, strict=True):
        row[:] = words(seed, domain, message, 0, count)
    return table
