"""Message bits: B labels of R bits each, packed big-endian into ceil(B·R / 8) bytes, and back."""

from __future__ import annotations

import numpy as np

from shared_rng.errors import CodecError
from shared_rng.pool import Labels


def packed_size(count: int, bits: int) -> int:
    """Bytes of ``count`` messages of ``bits`` bits: ceil(count · bits / 8)."""
    return (count * bits + 7) // 8


def pack(labels: Labels, bits: int) -> bytes:
    """Pack labels, the first in the highest bits of the first byte; the last byte is padded with zeros.

    Args:
        labels: [B], each below 2^bits.
        bits: R, 1 … 16.

    Raises:
        CodecError: a label does not fit into R bits.
    """
    labels = np.asarray(labels)
    if labels.size and not 0 <= int(labels.min()) <= int(labels.max()) < 2**bits:
        raise CodecError("label", f"{labels.min()} … {labels.max()}", f"0 … {2**bits - 1}")
    shifts = np.arange(bits - 1, -1, -1, dtype=np.uint32)
    stream = (labels.astype(np.uint32)[:, None] >> shifts) & np.uint32(1)
    return np.packbits(stream.astype(np.uint8).reshape(-1)).tobytes()


def unpack(payload: bytes, count: int, bits: int) -> Labels:
    """The ``count`` labels of a packed payload: uint32 [count].

    Raises:
        CodecError: the payload's length does not belong to the count, or its padding is not zero.
    """
    expected = packed_size(count, bits)
    if len(payload) != expected:
        raise CodecError("packed messages", f"{len(payload)} bytes", f"{expected} bytes for {count} of {bits} bits")
    stream = np.unpackbits(np.frombuffer(payload, dtype=np.uint8))
    if stream[count * bits :].any():
        raise CodecError("packed messages", "padding bits that are set", "zero padding after the last message")
    places = np.uint32(1) << np.arange(bits - 1, -1, -1, dtype=np.uint32)
    table = stream[: count * bits].reshape(count, bits).astype(np.uint32)
    return np.asarray((table * places).sum(axis=1, dtype=np.uint32))
