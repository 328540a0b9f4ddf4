"""Fixtures of the tests that start processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.services import WAIT_SECONDS, Fleet


@pytest.fixture(scope="session", autouse=True)
def bounded_calls() -> Iterator[None]:
    """Clients wait a minute or two where they would wait for an hour."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("encoder.client.STREAM_SECONDS", 2 * WAIT_SECONDS)
        patch.setattr("encoder.client.OPEN_SECONDS", 2 * WAIT_SECONDS)
        yield


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Services that end with the test."""
    with Fleet(tmp_path) as services:
        yield services
