"""How many sessions a decoder opens, in all and of one client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from decoder.service import MAX_CLIENT_SESSIONS, MAX_SESSIONS, DecoderService
from encoder.service import MAX_SESSIONS as SESSIONS_OF_AN_ENCODER
from gumbelcast.security import TooMany
from shared_rng import Session
from tests.models import gaussian_card, gaussian_models


def sessions() -> Iterator[Session]:
    """One after another, all different."""
    card = gaussian_card()
    for seed in range(MAX_SESSIONS + 2):
        yield gaussian_models(card, seed=seed)[0]


def test_room_for_sessions() -> None:
    """One client cannot take all places but has those of an encoder; a known session opens again in a full house."""
    _, _, model = gaussian_models(gaussian_card())
    service, fresh = DecoderService(model), sessions()
    first = next(fresh)
    service._open(first, 0, 0, "encoder")
    for _ in range(SESSIONS_OF_AN_ENCODER - 1):
        service._open(next(fresh), 0, 0, "encoder")
    late = next(fresh)
    with pytest.raises(
        TooMany, match=f"open sessions of encoder: got one more, expected at most {MAX_CLIENT_SESSIONS}"
    ):
        service._open(late, 0, 0, "encoder")
    for number in range(MAX_SESSIONS - MAX_CLIENT_SESSIONS):
        service._open(next(fresh), 0, 0, f"encoder {number % 10}")
    with pytest.raises(TooMany, match=f"at most {MAX_SESSIONS}: close one first"):
        service._open(late, 0, 0, "somebody")
    assert service._open(first, 0, 0, "somebody") is service._sessions[first.digest]
