"""The checksum that a batch of packed messages carries from the journal to the decoder."""

from __future__ import annotations

import struct
import zlib


def batch_checksum(session_digest: bytes, first_message: int, count: int, payload: bytes) -> int:
    """CRC-32 of a batch and of where it belongs, so that one of another session or number does not pass either.

    Args:
        session_digest: of the batch's session.
        first_message: number of its first message, below 2^64.
        count: number of its messages, below 2^32.
        payload: the packed messages.
    """
    return zlib.crc32(payload, zlib.crc32(session_digest + struct.pack("<QI", first_message, count)))
