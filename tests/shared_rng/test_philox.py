"""Words: the published generator, read at any place, each a pure function of where it stands."""

from __future__ import annotations

import itertools
import random
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared_rng.philox import BIN_DOMAIN, POOL_DOMAIN, RACE_DOMAIN, blocks, word_table, words
from tests.models import SEED, refused

LAST = 2**64 - 1


def integer(*parts: int) -> int:
    """An integer from 64-bit words, the lowest first."""
    return sum(part << 64 * place for place, part in enumerate(parts))


# Random123, tests/kat_vectors, philox4x64-10: counter, key and block, words from the lowest on.
KNOWN_ANSWERS = [
    (0, 0, [0x16554D9ECA36314C, 0xDB20FE9D672D0FDC, 0xD7E772CEE186176B, 0x7E68B68AEC7BA23B]),
    (2**256 - 1, 2**128 - 1, [0x87B092C3013FE90B, 0x438C3C67BE8D0224, 0x9CC7D7C69CD777B6, 0xA09CAEBF594F0BA0]),
    (
        integer(0x243F6A8885A308D3, 0x13198A2E03707344, 0xA4093822299F31D0, 0x082EFA98EC4E6C89),
        integer(0x452821E638D01377, 0xBE5466CF34E90C6C),
        [0xA528F45403E61D95, 0x38C72DBD566E9788, 0xA5A1610E72FD18B5, 0x57BD43B5E52B7FE6],
    ),
]


@pytest.mark.parametrize(("counter", "key", "block"), KNOWN_ANSWERS, ids=["zeros", "ones", "pi"])
def test_known_answers(counter: int, key: int, block: list[int]) -> None:
    assert blocks(key, counter, 1).tolist() == block


@pytest.mark.parametrize("counter", [0, 5, LAST, 2**128 - 1, 2**192 - 2, 2**256 - 2])
def test_blocks_are_consecutive_counters(counter: int) -> None:
    """Also where the counter carries into its next 64-bit word, and where it wraps."""
    alone = [blocks(SEED, (counter + n) % 2**256, 1) for n in range(4)]
    assert np.array_equal(blocks(SEED, counter, 4), np.concatenate(alone))


@pytest.mark.parametrize("start", [0, 3, 4, 4 * 1000 + 1, 2**63 + 2, LAST])
def test_words_stand_where_the_format_says(start: int) -> None:
    seed, domain, message = 2**127 + 3, RACE_DOMAIN + 5, 2**63 + 9
    block = blocks(seed, integer(start // 4, message, domain, 0), 1)
    assert words(seed, domain, message, start, 1).tolist() == [int(block[start % 4])]


messages = st.one_of(st.sampled_from([0, 1, LAST]), st.integers(0, LAST))
# Word indices near 0, around a carry of the block number's lower half, and up to the very last.
starts = st.one_of(st.integers(0, 50), st.integers(2**34 - 50, 2**34 + 50), st.integers(LAST - 50, LAST))


@given(seed=st.integers(0, 2**128 - 1), domain=messages, message=messages, start=starts, data=st.data())
def test_random_access(seed: int, domain: int, message: int, start: int, data: st.DataObject) -> None:
    """A part of a message's words is the slice of a longer run."""
    before = data.draw(st.integers(0, min(start, 40)))
    count = data.draw(st.integers(0, min(2**64 - start, 40)))
    after = data.draw(st.integers(0, min(2**64 - start - count, 40)))
    run = words(seed, domain, message, start - before, before + count + after)
    part = words(seed, domain, message, start, count)
    assert part.dtype == np.uint64
    assert part.shape == (count,)
    assert np.array_equal(part, run[before : before + count])


def test_last_word_does_not_run_into_the_next_message() -> None:
    """A message holds 2^64 words in 2^62 blocks, so its block number never carries into the message number."""
    end = words(SEED, 0, 7, LAST - 2, 3)
    assert end.tolist() == blocks(SEED, integer(2**62 - 1, 7), 1)[1:].tolist()


def test_domains_messages_and_seeds_do_not_collide() -> None:
    """200,000 different 64-bit words have two equal ones with probability 1e-9 if none is used twice."""
    domains = [POOL_DOMAIN, BIN_DOMAIN, 2, *range(RACE_DOMAIN, RACE_DOMAIN + 12), LAST]
    numbers = [0, 1, 2, 16, 17, 255, 256, 2**32, 2**63, LAST]
    seeds = [0, 1, 2**64, 2**128 - 1]
    runs = [words(*place, 0, 256) for place in itertools.product(seeds, domains, numbers)]
    together = np.concatenate(runs)
    assert len(np.unique(together)) == together.size == 4 * 16 * 10 * 256


@pytest.mark.parametrize(
    ("operand", "place"),
    [
        ("seed", (-1, 0, 0, 0, 1)),
        ("seed", (2**128, 0, 0, 0, 1)),
        ("domain", (0, -1, 0, 0, 1)),
        ("domain", (0, 2**64, 0, 0, 1)),
        ("message", (0, 0, -1, 0, 1)),
        ("message", (0, 0, 2**64, 0, 1)),
        ("word range", (0, 0, 0, -1, 1)),
        ("word range", (0, 0, 0, 0, -1)),
        ("word range", (0, 0, 0, LAST, 2)),
        ("word range", (0, 0, 0, 2**64, 1)),
    ],
)
def test_out_of_range(operand: str, place: tuple[int, int, int, int, int]) -> None:
    values = dict(zip(("seed", "domain", "message"), place, strict=False))
    with refused(operand, str(values.get(operand, place[3:]))):
        words(*place)


def test_word_table_is_one_row_a_message() -> None:
    numbers = [5, 0, LAST, 5]
    table = word_table(SEED, BIN_DOMAIN, numbers, 9)
    assert table.shape == (4, 9)
    assert np.array_equal(table, [words(SEED, BIN_DOMAIN, m, 0, 9) for m in numbers])
    assert word_table(SEED, BIN_DOMAIN, [], 9).shape == (0, 9)


def test_pure_under_threads() -> None:
    """Every thread keeps a generator: no call may see another's counter, in whatever order they come."""
    places = [(SEED + s, d, m, i, 33) for s in range(2) for d in (0, 1, 16) for m in range(25) for i in (0, 6)]
    expected = {place: words(*place).tobytes() for place in places}
    calls = [place for place in places for _ in range(6)]
    random.Random(4).shuffle(calls)
    patience = sys.getswitchinterval()
    try:
        sys.setswitchinterval(1e-6)  # or threads would hardly meet between two steps of a call
        with ThreadPoolExecutor(max_workers=8) as workers:
            found = list(workers.map(lambda place: words(*place).tobytes(), calls))
    finally:
        sys.setswitchinterval(patience)
    assert found == [expected[place] for place in calls]
