"""Rows in blocks behave as a dictionary from message to row, whatever comes in which order."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from decoder.rows import Rows

NUMBERS = st.integers(0, 30)
STEPS = st.lists(st.tuples(st.sampled_from(["put", "drop"]), NUMBERS, st.integers(1, 8)), max_size=25)


@given(STEPS)
def test_rows_are_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    rows, held = Rows(), dict[int, float]()
    for number, (step, first, count) in enumerate(steps):
        if step == "put":
            rows.put(first, 100.0 * number + np.arange(float(count)))
            held |= {first + place: 100.0 * number + place for place in range(count)}
        else:
            rows.drop(first, first + count)
            held = {message: row for message, row in held.items() if not first <= message < first + count}
        assert len(rows) == len(held)
        assert str(rows) == (f"{min(held)} … {max(held)}" if held else "none yet")
        for begin in (0, first, first + count):
            for end in (begin + 1, begin + 5, 45):
                absent = next((message for message in range(begin, end) if message not in held), None)
                assert rows.missing(begin, end) == absent
                out = np.full(end - begin, -1.0)
                rows.copy_into(out, begin)
                assert out.tolist() == [held.get(message, -1.0) for message in range(begin, end)]
                if absent is None:
                    assert rows.read(begin, end - begin).tolist() == out.tolist()


def test_rows_keep_shape_and_type() -> None:
    rows = Rows()
    rows.put(2**63, np.ones((3, 2, 4), dtype=np.float32))
    rows.put(2**63 + 3, np.zeros((1, 2, 4), dtype=np.float32))
    found = rows.read(2**63 + 1, 3)
    assert (found.shape, found.dtype) == ((3, 2, 4), np.float32)
    assert found[:, 0, 0].tolist() == [1.0, 1.0, 0.0]
