"""How many sessions an encoder opens, in all and of one client."""

from __future__ import annotations

import pytest

from encoder.journal import Journal, Retention
from encoder.service import MAX_CLIENT_SESSIONS, MAX_SESSIONS, EncoderService
from gumbelcast.security import TooMany
from tests.models import gaussian_card, gaussian_models


def test_room_for_sessions() -> None:
    """One client cannot take all places, and what it closes is free again."""
    _, model, _ = gaussian_models(gaussian_card())
    service = EncoderService(model, ["127.0.0.1:9"], Journal(None, Retention()), patience=1.0)
    digests = [number.to_bytes(32, "big") for number in range(MAX_SESSIONS)]

    def take(digest: bytes, owner: str) -> None:
        service._require_room(owner)
        service._sessions[digest] = None  # type: ignore[assignment]
        service._owners[digest] = owner

    for digest in digests[:MAX_CLIENT_SESSIONS]:
        take(digest, "camera")
    with pytest.raises(TooMany, match="open sessions of camera"):
        take(digests[-1], "camera")
    for number, digest in enumerate(digests[MAX_CLIENT_SESSIONS:]):
        take(digest, f"client {number % 10}")
    with pytest.raises(TooMany, match=f"at most {MAX_SESSIONS}"):
        take(b"one more", "somebody")
    del service._sessions[digests[0]]
    take(b"one more", "camera")
