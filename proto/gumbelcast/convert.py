"""NumPy arrays and session fields to wire messages and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from gumbelcast.v1.session_pb2 import Binning, Coupling, PoolKind, RaceOrder, Session, Tensor

_TYPES: dict[int, np.dtype[Any]] = {
    Tensor.TYPE_UINT8: np.dtype("u1"),
    Tensor.TYPE_FLOAT32: np.dtype("<f4"),
    Tensor.TYPE_FLOAT64: np.dtype("<f8"),
}
MAX_AXES = 8
"""Axes of a tensor on the wire."""

_ENUMS = {
    "pool_kind": (PoolKind, "POOL_KIND_"),
    "binning": (Binning, "BINNING_"),
    "coupling": (Coupling, "COUPLING_"),
    "race_order": (RaceOrder, "RACE_ORDER_"),
}


def to_tensor(array: npt.NDArray[Any]) -> Tensor:
    """An array of uint8, float32 or float64, any shape.

    Raises:
        ValueError: another dtype.
    """
    for kind, dtype in _TYPES.items():
        if array.dtype.newbyteorder("<") == dtype:
            data = np.ascontiguousarray(array, dtype=dtype).tobytes()
            return Tensor(type=Tensor.Type.Name(kind), shape=array.shape, data=data)
    raise ValueError(f"tensor: got dtype {array.dtype}, expected uint8, float32 or float64")


def from_tensor(tensor: Tensor) -> npt.NDArray[Any]:
    """The array of a tensor, read-only.

    Raises:
        ValueError: the type is not one of ours, there are too many axes, or the data's length does not belong to
            the shape.
    """
    dtype = _TYPES.get(tensor.type)
    if dtype is None:
        raise ValueError(f"tensor type: got {tensor.type}, expected uint8, float32 or float64 (1 … 3)")
    # Before the product, which would take hours for the longest shape that fits into a message.
    if len(tensor.shape) > MAX_AXES:
        raise ValueError(f"tensor shape: got {len(tensor.shape)} axes, expected at most {MAX_AXES}")
    shape = tuple(tensor.shape)
    size = math.prod(shape) * dtype.itemsize
    if len(tensor.data) != size:
        raise ValueError(f"tensor data: got {len(tensor.data)} bytes, expected {size} for {dtype} of shape {shape}")
    array: npt.NDArray[Any] = np.frombuffer(tensor.data, dtype=dtype).reshape(shape)
    return array


def to_session(fields: Mapping[str, Any]) -> Session:
    """A wire session from plain values; enumerations are given by their lower-case names."""
    values = dict(fields)
    for name, (enum, prefix) in _ENUMS.items():
        values[name] = enum.Value(prefix + values[name].upper())
    return Session(**values)


def from_session(session: Session) -> dict[str, Any]:
    """Plain values of a wire session; enumerations by lower-case name, unknown ones as ``unspecified``."""
    values = {field.name: getattr(session, field.name) for field in session.DESCRIPTOR.fields}
    for name, (enum, prefix) in _ENUMS.items():
        known = values[name] in enum.values()
        values[name] = enum.Name(values[name]).removeprefix(prefix).lower() if known else "unspecified"
    return values
