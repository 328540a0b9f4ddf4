"""The folder of reconstructions and the position beside it: no message is lost or twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from decoder.codec import DecodedBatch
from decoder.output import Output, OutputFailed, PositionDamaged
from shared_rng import SessionMismatch
from tests.models import make_session, refused

SESSION = make_session()


def a_batch(first: int, count: int) -> DecodedBatch:
    return DecodedBatch(first, np.arange(count), np.zeros((count, 1)), np.arange(count, dtype=np.float64))


def an_output(folder: Path, index: int = 1) -> Output:
    return Output(folder, SESSION, index)


def test_position(tmp_path: Path) -> None:
    """Behind the last batch, for this and every later process."""
    output = an_output(tmp_path)
    assert output.position() is None
    output.keep_position(7)
    assert an_output(tmp_path).position() == 7
    output.keep(a_batch(7, 3))
    assert an_output(tmp_path).position() == 10
    # Files may be moved away.
    (output.folder / "000000000007.npz").unlink()
    assert an_output(tmp_path).position() == 10
    assert sorted(path.name for path in output.folder.iterdir()) == ["position.json"]


def test_end_between_batch_and_position(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch is complete and not counted yet: it counts. A broken one does not."""
    output = an_output(tmp_path)
    output.keep(a_batch(0, 4))
    with monkeypatch.context() as patch:
        patch.setattr(Output, "keep_position", lambda *_: None)
        output.keep(a_batch(4, 2))
    assert json.loads((output.folder / "position.json").read_text())["next_message"] == 4
    assert an_output(tmp_path).position() == 6
    path = output.folder / "000000000004.npz"
    whole = path.read_bytes()
    for broken in (whole[:-1], whole[: len(whole) // 2], b"", b"x" * 100):
        path.write_bytes(broken)
        assert an_output(tmp_path).position() == 4


def test_the_folder_of_another(tmp_path: Path) -> None:
    an_output(tmp_path).keep_position(3)
    with refused("position.json", "'index': 1", "'index': 0", SessionMismatch):
        an_output(tmp_path, 0).position()


@pytest.mark.parametrize(
    "content", ["", "{", "[]", "{}", '"x"', {"next_message": -1}, {"next_message": 1.5}, {"next_message": None}]
)
def test_damaged_position(tmp_path: Path, content: Any) -> None:
    """Refused and left as it is: a guess could decode messages twice or skip some."""
    output = an_output(tmp_path)
    output.keep_position(3)
    path = output.folder / "position.json"
    text = content if isinstance(content, str) else json.dumps(json.loads(path.read_text()) | content)
    path.write_text(text)
    with refused("position.json", kind=PositionDamaged):
        output.position()
    assert path.read_text() == text


def test_position_that_cannot_be_read_or_written(tmp_path: Path) -> None:
    output = an_output(tmp_path)
    (output.folder / "position.json").mkdir(parents=True)
    with refused("position.json", "Is a directory", "can be read", OutputFailed):
        output.position()
    with refused("position.json", "Is a directory", "a disk that takes it", OutputFailed):
        output.keep_position(1)


def test_full_disk(tmp_path: Path) -> None:
    """A clear refusal, so that the batch stays due; nothing is counted."""
    output = an_output(tmp_path)
    output.keep_position(0)
    partial = output.folder / "000000000000.partial"
    partial.symlink_to("/dev/full")
    with refused("000000000000.npz", "No space left", "a disk that takes it", OutputFailed):
        output.keep(a_batch(0, 4))
    assert an_output(tmp_path).position() == 0
    partial.unlink(missing_ok=True)
    output.keep(a_batch(0, 4))
    assert an_output(tmp_path).position() == 4
