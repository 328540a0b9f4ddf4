"""Words, normals and permutations, compiled, one at a time: what ``philox``, ``variates`` and ``arrivals`` define.

Those three are the readable definitions over whole arrays; these functions are for loops that want a few numbers
of a message and not all N. Arguments that are words or indices are unsigned 64-bit integers.
"""

# mypy: disable-error-code="no-untyped-def"
from __future__ import annotations

import math
from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types, vectorize
from numba.core import cgutils
from numba.extending import intrinsic

from shared_rng import arrivals, variates

U = np.uint64
_CELLS = 1024
EDGES = np.full(_CELLS + 1, np.inf)
"""Standard normals of words with upper bits j lie between ``EDGES[j]`` and ``EDGES[j + 1]``, rounding aside."""
EDGES[0] = -np.inf
EDGES[1:-1] = variates.inverse_normal_cdf(np.arange(1, _CELLS) / _CELLS)
EDGES_SHIFT = U(64 - 10)
"""What a word is shifted right by to give j."""

_MULTIPLIER_0, _MULTIPLIER_1 = U(0xD2E7470EE14C6C93), U(0xCA5A826395121157)
_WEYL_0, _WEYL_1 = U(0x9E3779B97F4A7C15), U(0xBB67AE8584CAA73B)
_CENTRE_TOP, _CENTRE_BOTTOM = (tuple(c) for c in variates.CENTRE)
_MIDDLE_TOP, _MIDDLE_BOTTOM = (tuple(c) for c in variates.MIDDLE)
_TAIL_TOP, _TAIL_BOTTOM = (tuple(c) for c in variates.TAIL)

compiled = njit(nogil=True, cache=True, error_model="numpy")
"""Functions release the interpreter lock; a division by zero gives what IEEE 754 says."""


@vectorize(cache=True)
def erfc(x):
    """Complementary error function, elementwise."""
    return math.erfc(x)


def _multiply_code(typing_context: Any, a: Any, b: Any) -> Any:
    """Upper and lower 64 bits of the product of two unsigned 64-bit words, by one instruction."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        wide, narrow = ir.IntType(128), ir.IntType(64)
        product = builder.mul(builder.zext(arguments[0], wide), builder.zext(arguments[1], wide))
        high = builder.trunc(builder.lshr(product, ir.Constant(wide, 64)), narrow)
        return cgutils.pack_array(builder, [high, builder.trunc(product, narrow)])

    return types.UniTuple(types.uint64, 2)(types.uint64, types.uint64), generate


_multiply: Any = intrinsic(_multiply_code)


@compiled
def block(key_0, key_1, number, message, domain):
    """The four words ``4 * number`` … of one message in one domain; see ``philox``."""
    c0, c1, c2, c3 = number, message, domain, U(0)
    for _ in range(10):
        high_0, low_0 = _multiply(_MULTIPLIER_0, c0)
        high_1, low_1 = _multiply(_MULTIPLIER_1, c2)
        c0, c1, c2, c3 = high_1 ^ c1 ^ key_0, low_1, high_0 ^ c3 ^ key_1, low_0
        key_0 += _WEYL_0
        key_1 += _WEYL_1
    return c0, c1, c2, c3


@compiled
def word(key_0, key_1, index, message, domain):
    """Word ``index`` of one message in one domain."""
    words = block(key_0, key_1, index >> U(2), message, domain)
    lane = index & U(3)
    if lane == U(0):
        return words[0]
    if lane == U(1):
        return words[1]
    if lane == U(2):
        return words[2]
    return words[3]


@compiled
def uniform(value):
    """Uniform on [0, 1); see ``variates.uniforms``."""
    return np.float64(value >> U(11)) * 2.0**-53


@compiled
def uniform_above_zero(value):
    """Uniform on (0, 1], whose negative logarithm is an exponential."""
    return (np.float64(value >> U(11)) + 1.0) * 2.0**-53


@compiled
def _ratio(top, bottom, x):
    numerator, denominator = top[0], bottom[0]
    for power in range(1, 8):
        numerator = numerator * x + top[power]
        denominator = denominator * x + bottom[power]
    return numerator / denominator


@compiled
def normal(value, scale):
    """Normal of standard deviation ``scale``; see ``variates.normals``."""
    probability = (np.float64(value >> U(12)) + 0.5) * 2.0**-52
    offset = probability - 0.5
    if abs(offset) <= 0.425:
        quantile = offset * _ratio(_CENTRE_TOP, _CENTRE_BOTTOM, 0.180625 - offset * offset)
    else:
        r = math.sqrt(-math.log(min(probability, 1.0 - probability)))
        if r <= 5.0:
            quantile = _ratio(_MIDDLE_TOP, _MIDDLE_BOTTOM, r - 1.6)
        else:
            quantile = _ratio(_TAIL_TOP, _TAIL_BOTTOM, r - 5.0)
        quantile = math.copysign(quantile, offset)
    return np.rint(quantile * scale * 65536.0) * 2.0**-16


@compiled
def _hash(value):
    value = (value ^ (value >> U(30))) * U(0xBF58476D1CE4E5B9)
    value = (value ^ (value >> U(27))) * U(0x94D049BB133111EB)
    return value ^ (value >> U(31))


@compiled
def _feistel_round(changed, by, key, shift):
    return (
        changed[0] ^ (_hash(by[0] ^ key) >> shift),
        changed[1] ^ (_hash(by[1] ^ key) >> shift),
        changed[2] ^ (_hash(by[2] ^ key) >> shift),
        changed[3] ^ (_hash(by[3] ^ key) >> shift),
    )


@compiled
def _feistel_four(values, keys, low_bits, high_bits):
    """Map four values, all in one step of each round, so that the processor overlaps them."""
    mask = (U(1) << low_bits) - U(1)
    low = values[0] & mask, values[1] & mask, values[2] & mask, values[3] & mask
    high = values[0] >> low_bits, values[1] >> low_bits, values[2] >> low_bits, values[3] >> low_bits
    for number in range(0, arrivals.ROUNDS, 2):
        high = _feistel_round(high, low, keys[number], U(64) - high_bits)
        low = _feistel_round(low, high, keys[number + 1], U(64) - low_bits)
    return (
        high[0] << low_bits | low[0],
        high[1] << low_bits | low[1],
        high[2] << low_bits | low[2],
        high[3] << low_bits | low[3],
    )


@compiled
def feistel(first, keys, size, bits):
    """Candidates of the arrivals ``first`` … ``first + 3`` of a pool of ``size``, of which ``bits`` is ceil(log2).

    There are none after the last arrival: those values mean nothing. See ``arrivals.arrival_order``.
    """
    low_bits = bits >> U(1)
    last = size - U(1)
    start = min(first, last), min(first + U(1), last), min(first + U(2), last), min(first + U(3), last)
    values = _feistel_four(start, keys, low_bits, bits - low_bits)
    while max(values) >= size:
        again = _feistel_four(values, keys, low_bits, bits - low_bits)
        values = (
            again[0] if values[0] >= size else values[0],
            again[1] if values[1] >= size else values[1],
            again[2] if values[2] >= size else values[2],
            again[3] if values[3] >= size else values[3],
        )
    return values
