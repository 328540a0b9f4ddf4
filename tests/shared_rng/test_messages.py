"""Message bits: R bits a label, big-endian, nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_rng import pack, packed_size, unpack
from shared_rng.pool import Labels
from tests.models import refused

EXAMPLES = [
    (1, [], ""),
    (1, [1], "80"),
    (1, [1, 0, 1, 1, 0, 0, 0, 1, 1], "b180"),
    (3, [5], "a0"),
    (3, [1, 2, 3], "2980"),
    (4, [1, 2, 15], "12f0"),
    (8, [0, 255, 16], "00ff10"),
    (12, [0xABC, 0xDEF], "abcdef"),
    (13, [0x1234], "91a0"),
    (16, [0x1234, 0xABCD], "1234abcd"),
]


def labels(values: list[int]) -> Labels:
    return np.array(values, dtype=np.uint32)


@pytest.mark.parametrize(("bits", "values", "payload"), EXAMPLES)
def test_examples(bits: int, values: list[int], payload: str) -> None:
    assert pack(labels(values), bits).hex() == payload
    assert unpack(bytes.fromhex(payload), len(values), bits).tolist() == values


@pytest.mark.parametrize("bits", range(1, 17))
@given(data=st.data())
def test_round_trip(bits: int, data: st.DataObject) -> None:
    values = data.draw(st.lists(st.integers(0, 2**bits - 1), max_size=100))
    payload = pack(labels(values), bits)
    assert len(payload) == packed_size(len(values), bits)
    # The same bits by integer arithmetic: the labels one after another, then zeros up to a whole byte.
    number = 0
    for value in values:
        number = number << bits | value
    padding = 8 * len(payload) - len(values) * bits
    assert 0 <= padding < 8
    assert int.from_bytes(payload, "big") == number << padding
    back = unpack(payload, len(values), bits)
    assert back.dtype == np.uint32
    assert back.tolist() == values


@pytest.mark.parametrize("bits", range(1, 17))
def test_size_is_rounded_up(bits: int) -> None:
    for count in range(101):
        assert packed_size(count, bits) == -(-count * bits // 8)
        assert len(pack(labels([0] * count), bits)) == packed_size(count, bits)


@pytest.mark.parametrize("bits", [1, 3, 8, 15, 16])
def test_extreme_labels_of_every_rate(bits: int) -> None:
    values = [0, 2**bits - 1, 0, 2**bits - 1]
    assert unpack(pack(labels(values), bits), 4, bits).tolist() == values


@pytest.mark.parametrize(
    ("values", "bits", "given_", "expected"),
    [
        ([2], 1, "2 … 2", "0 … 1"),
        ([0, 8, 1], 3, "0 … 8", "0 … 7"),
        ([2**16], 16, "65536", "0 … 65535"),
        ([3, -1], 4, "-1 … 3", "0 … 15"),
    ],
)
def test_label_that_does_not_fit(values: list[int], bits: int, given_: str, expected: str) -> None:
    with refused("label", given_, expected):
        pack(np.array(values), bits)


@pytest.mark.parametrize(
    ("payload", "count", "bits", "expected"),
    [
        ("", 1, 1, "1 bytes for 1 of 1 bits"),
        ("00", 0, 1, "0 bytes for 0 of 1 bits"),
        ("00", 3, 5, "2 bytes for 3 of 5 bits"),
        ("000000", 3, 5, "2 bytes for 3 of 5 bits"),
        ("0000", 3, 8, "3 bytes for 3 of 8 bits"),
    ],
)
def test_wrong_length(payload: str, count: int, bits: int, expected: str) -> None:
    data = bytes.fromhex(payload)
    with refused("packed messages", f"{len(data)} bytes", expected):
        unpack(data, count, bits)


@pytest.mark.parametrize(
    ("payload", "count", "bits"), [("01", 7, 1), ("40", 1, 1), ("2981", 3, 3), ("12f8", 3, 4), ("91a1", 1, 13)]
)
def test_padding_that_is_not_zero(payload: str, count: int, bits: int) -> None:
    """One message list has one payload: bits after the last label are no place to hide anything."""
    with refused("packed messages", "padding", "zero padding"):
        unpack(bytes.fromhex(payload), count, bits)
