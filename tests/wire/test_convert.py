"""Arrays and sessions to the wire and back, and what is refused there."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from gumbelcast.channels import MESSAGE_LIMIT, rows_per_batch
from gumbelcast.convert import from_session, from_tensor, to_session, to_tensor
from gumbelcast.v1 import session_pb2
from gumbelcast.v1.session_pb2 import Tensor
from shared_rng import Session
from shared_rng.session import seed_digest
from tests.models import SEED, make_session

KINDS = {"uint8": Tensor.TYPE_UINT8, "float32": Tensor.TYPE_FLOAT32, "float64": Tensor.TYPE_FLOAT64}
SHAPES = arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5)


def assert_travels(array: npt.NDArray[Any]) -> None:
    """The array comes out as it went in, NaN and signed zero included, through serialised bytes."""
    tensor = to_tensor(array)
    found = from_tensor(Tensor.FromString(tensor.SerializeToString()))
    native = array.dtype.newbyteorder("=")
    assert (found.dtype, found.shape) == (native, array.shape)
    assert found.tobytes() == np.ascontiguousarray(array, dtype=native).tobytes()
    assert tensor.type == KINDS[native.name]
    assert tuple(tensor.shape) == array.shape


@given(st.sampled_from(sorted(KINDS)).flatmap(lambda name: arrays.arrays(name, SHAPES)))
def test_arrays_travel(array: npt.NDArray[Any]) -> None:
    assert_travels(array)


@given(st.sampled_from(sorted(KINDS)).flatmap(lambda name: arrays.arrays(name, (4, 3, 2))), st.integers(0, 5))
def test_views_travel(array: npt.NDArray[Any], view: int) -> None:
    """Whatever the layout in memory: transposed, reversed, strided, broadcast, Fortran order, read-only."""
    frozen = array.copy()
    frozen.setflags(write=False)
    views = (
        array.T,
        array[::-1, ::-1],
        array[::2, 1:],
        np.broadcast_to(array[:1], (5, 3, 2)),
        np.asfortranarray(array),
        frozen,
    )
    assert_travels(views[view])


@pytest.mark.parametrize("dtype", [">f4", ">f8", "<f4", "<f8"])
def test_byte_order_of_an_array_does_not_matter(dtype: str) -> None:
    assert_travels(np.array([[1.5, -2.25, math.inf], [0.0, -0.0, 3e-39]], dtype=dtype))


def test_bytes_are_little_endian_rows() -> None:
    """Pinned: other languages read this."""
    tensor = to_tensor(np.array([[1.0, 2.0], [-0.5, 0.0]], dtype=np.float32))
    assert tensor.data.hex() == "0000803f00000040000000bf00000000"
    assert (tensor.type, list(tensor.shape)) == (2, [2, 2])
    assert to_tensor(np.float64(1.0).reshape(1)).data.hex() == "000000000000f03f"
    assert to_tensor(np.array([[1, 2], [3, 255]], dtype=np.uint8)).data.hex() == "010203ff"


def test_arrays_from_the_wire_are_read_only() -> None:
    found = from_tensor(to_tensor(np.zeros(3)))
    with pytest.raises(ValueError, match="read-only"):
        found[0] = 1.0


@pytest.mark.parametrize("dtype", ["int64", "float16", "bool", "complex64", "int8", "uint16", "U1", "O"])
def test_other_types_are_refused(dtype: str) -> None:
    with pytest.raises(ValueError, match="expected uint8, float32 or float64") as caught:
        to_tensor(np.zeros(2, dtype=dtype))
    assert f"got dtype {np.dtype(dtype)}" in str(caught.value)


@pytest.mark.parametrize(
    ("tensor", "message"),
    [
        (Tensor(), "tensor type: got 0, expected uint8, float32 or float64"),
        (Tensor(type=4, shape=[1], data=b"1"), "tensor type: got 4, expected"),
        (Tensor(type=Tensor.TYPE_UINT8, shape=[2**63] * 100_000), "tensor shape: got 100000 axes, expected at most 8"),
        (Tensor(type=Tensor.TYPE_FLOAT64), "tensor data: got 0 bytes, expected 8 for float64 of shape ()"),
        (Tensor(type=Tensor.TYPE_UINT8, shape=[2, 3], data=bytes(5)), "got 5 bytes, expected 6 for uint8"),
        (Tensor(type=Tensor.TYPE_FLOAT32, shape=[0, 3], data=bytes(1)), "got 1 bytes, expected 0 for float32"),
        (Tensor(type=Tensor.TYPE_FLOAT32, shape=[2**63, 2], data=bytes(8)), f"got 8 bytes, expected {2**66}"),
    ],
)
def test_tensors_that_do_not_fit(tensor: Tensor, message: str) -> None:
    with pytest.raises(ValueError, match="tensor") as caught:
        from_tensor(tensor)
    assert message in str(caught.value)


@pytest.mark.parametrize("shape", [[2**63, 0], [0] * 65])
def test_shapes_that_no_array_has(shape: list[int]) -> None:
    """Nothing that a peer can send is more than a ValueError, which a service answers with INVALID_ARGUMENT."""
    with pytest.raises(ValueError, match=r"dimension|shape"):
        from_tensor(Tensor(type=Tensor.TYPE_UINT8, shape=shape))


SESSIONS = [
    {},
    {"coupling": "baseline", "decoders": 7, "bins": 64, "pool_size": 2**24},
    {"pool_kind": "discrete", "pool_size": 8},
    {"pool_kind": "discrete", "pool_size": 16, "coupling": "list"},
    {"binning": "region", "latent_dimension": 3},
    {"latent_dimension": 65536, "pool_variance": 1.0 + 2**-52, "pool_size": 2, "bins": 2},
    {"seed": 0, "model_digest": bytes(range(32))},
]


@pytest.mark.parametrize("changes", SESSIONS)
@pytest.mark.parametrize("share_seed", [True, False])
def test_sessions_travel(changes: dict[str, Any], share_seed: bool) -> None:
    """Every field, exactly, and the digest; without the seed where it is pre-shared."""
    session = make_session(**changes)
    wire = to_session(session.wire_fields(share_seed=share_seed))
    wire = session_pb2.Session.FromString(wire.SerializeToString())
    assert wire.seed == (session.seed.to_bytes(16, "little") if share_seed else b"")
    assert (wire.seed_digest, wire.digest) == (seed_digest(session.seed), session.digest)
    found = Session.from_wire_fields(from_session(wire), None if share_seed else session.seed)
    assert found == session
    assert found.digest == session.digest


def test_every_field_of_a_session_is_on_the_wire() -> None:
    """A field that is added to one and not to the other would be assumed, not checked."""
    wire = {field.name for field in session_pb2.Session.DESCRIPTOR.fields}
    assert wire == set(make_session().wire_fields(share_seed=True))
    assert wire - {"seed_digest", "digest"} == set(Session.__dataclass_fields__)


@pytest.mark.parametrize(
    ("field", "names"),
    [
        ("pool_kind", ("gaussian", "discrete", "lattice")),
        ("binning", ("random", "modulo", "region")),
        ("coupling", ("gls", "baseline", "list")),
        ("race_order", ("index", "arrival")),
    ],
)
def test_enumerations(field: str, names: tuple[str, ...]) -> None:
    """Unset and unknown values have a name that no session accepts."""
    found = [
        from_session(session_pb2.Session(**{field: number}))[field] for number in (0, *range(1, len(names) + 2), 99)
    ]
    assert found == ["unspecified", *names, "unspecified", "unspecified"]
    with pytest.raises(ValueError, match="BOTH"):
        to_session(make_session(seed=SEED).wire_fields(share_seed=True) | {field: "both"})


@pytest.mark.parametrize(
    ("row_bytes", "wanted", "expected"),
    [
        (8, 64, 64),
        (3136, 4096, (MESSAGE_LIMIT - 2**16) // 3136),
        (MESSAGE_LIMIT - 2**16, 10, 1),
        (MESSAGE_LIMIT, 10, 1),
        (0, 5, 5),
    ],
)
def test_rows_per_batch(row_bytes: int, wanted: int, expected: int) -> None:
    """As many as wanted and as fit, at least one; a batch stays below the limit if a row does."""
    found = rows_per_batch(row_bytes, wanted)
    assert found == expected
    assert found == 1 or found * row_bytes < MESSAGE_LIMIT
