"""Fixtures of the tests that start processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.services import Fleet


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Services that end with the test."""
    with Fleet(tmp_path) as services:
        yield services
