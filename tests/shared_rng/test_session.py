"""The session: every field checked, every difference seen before the first message."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from shared_rng import CodecError, Session, SessionMismatch, regions
from shared_rng.session import PROTOCOL_VERSION, seed_digest
from tests.models import SEED, make_session, refused

BAD_FIELDS: list[Any] = [
    ("seed", -1, "0 … 2^128 - 1"),
    ("seed", 2**128, "0 … 2^128 - 1"),
    ("seed", 1.0, "an integer"),
    ("seed", "1", "an integer"),
    ("seed", True, "an integer"),
    ("pool_size", 1, "2 … 2^24"),
    ("pool_size", 2**24 + 1, "2 … 2^24"),
    ("pool_size", 64.0, "an integer"),
    ("pool_size", None, "an integer"),
    ("bins", 0, "a power of two in 2 … 65536"),
    ("bins", 1, "a power of two in 2 … 65536"),
    ("bins", 12, "a power of two in 2 … 65536"),
    ("bins", 128, "at most pool_size, 64"),
    ("bins", 2**17, "a power of two in 2 … 65536"),
    ("bins", -8, "a power of two in 2 … 65536"),
    ("bins", "8", "a power of two in 2 … 65536"),
    ("decoders", 0, "1 … 65536"),
    ("decoders", 2**16 + 1, "1 … 65536"),
    ("decoders", 2.0, "an integer"),
    ("latent_dimension", 0, "1 … 65536"),
    ("latent_dimension", 2**16 + 1, "1 … 65536"),
    ("pool_kind", "uniform", "gaussian, discrete or lattice"),
    ("pool_kind", ["gaussian"], "gaussian, discrete or lattice"),
    ("coupling", "GLS", "gls, baseline or list"),
    ("coupling", None, "gls, baseline or list"),
    ("coupling", "list", "a discrete pool of bins · decoders, 16"),
    ("binning", "regions", "random, modulo or region"),
    ("binning", "", "random, modulo or region"),
    ("pool_variance", 0.0, "a finite number above 0"),
    ("pool_variance", -1.0, "a finite number above 0"),
    ("pool_variance", float("inf"), "a finite number above 0"),
    ("pool_variance", float("nan"), "a finite number above 0"),
    ("cell_width", 0.5, "0 for a gaussian pool"),
    ("race_order", "arrivals", "index or arrival"),
    ("pool_variance", "1", "a finite number above 0"),
    ("pool_variance", True, "a finite number above 0"),
    ("pool_variance", 1e300, "at most 1e+18"),
    ("model_digest", b"", "32 bytes"),
    ("model_digest", bytes(31), "32 bytes"),
    ("model_digest", "0" * 32, "32 bytes"),
]


@pytest.mark.parametrize(("field", "value", "expected"), BAD_FIELDS)
def test_bad_field(field: str, value: Any, expected: str) -> None:
    # A bad seed is one that somebody mistyped: its value is not said.
    seed_given = "a number out of range" if type(value) is int else f"a {type(value).__name__}"
    with refused(field, seed_given if field == "seed" else str(value), expected):
        make_session(**{field: value})


def test_a_seed_is_not_shown() -> None:
    assert str(SEED) not in repr(make_session())
    with pytest.raises(CodecError) as caught:
        make_session(seed=SEED << 1 | 2**128)
    assert str(SEED << 1) not in str(caught.value)


@pytest.mark.parametrize("change", [{"latent_dimension": 2}, {"pool_variance": 2.0}])
def test_discrete_pool_has_letters_only(change: dict[str, Any]) -> None:
    with refused("discrete pool", next(iter(change)), "latent_dimension 1 and pool_variance 1"):
        make_session(pool_kind="discrete", **change)


@pytest.mark.parametrize(
    ("change", "operand", "given", "expected"),
    [
        ({"pool_kind": "discrete", "binning": "random"}, "binning", "random with a discrete pool", "modulo"),
        ({"pool_kind": "lattice", "cell_width": 1.0, "binning": "region"}, "binning", "with a lattice pool", "modulo"),
        ({"binning": "region", "pool_variance": 1.5}, "binning", "pool_variance 1.5", "pool_variance 1"),
        ({"binning": "region", "race_order": "arrival"}, "binning", "race_order arrival", "race_order index"),
        ({"binning": "region", "pool_size": 512, "bins": 512}, "bins", "512", "at most 256 with binning region"),
        ({"binning": "region", "latent_dimension": 65}, "latent_dimension", "65", "at most 64"),
        ({"coupling": "list", "pool_size": 16}, "coupling", "a gaussian pool of 16", "a discrete pool of"),
        ({"coupling": "list", "pool_kind": "discrete"}, "coupling", "pool of 64", "bins · decoders, 16"),
    ],
)
def test_binning_and_list_have_their_pools(change: dict[str, Any], operand: str, given: str, expected: str) -> None:
    with refused(operand, given, expected):
        make_session(**change)


@pytest.mark.parametrize(
    ("change", "binning"),
    [
        ({}, "random"),
        ({"pool_size": 8}, "modulo"),
        ({"pool_kind": "discrete"}, "modulo"),
        ({"pool_kind": "lattice", "cell_width": 0.5}, "modulo"),
    ],
)
def test_binning_follows_from_the_pool(change: dict[str, Any], binning: str) -> None:
    session = make_session(**change)
    assert session.binning == binning
    assert session == make_session(**change, binning=binning)


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 0},
        {"seed": 2**128 - 1},
        {"pool_size": 2, "bins": 2},
        {"pool_size": 2**24, "bins": 2**16},
        {"pool_size": 9, "bins": 8},
        {"decoders": 2**16},
        {"latent_dimension": 2**16},
        {"pool_variance": 2},
    ],
)
def test_extreme_but_good_fields(change: dict[str, Any]) -> None:
    session = make_session(**change)
    assert {name: getattr(session, name) for name in change} == change


@pytest.mark.parametrize("version", [0, 1, 2, 4, -1])
def test_another_protocol_version(version: int) -> None:
    with refused("protocol_version", str(version), str(PROTOCOL_VERSION), SessionMismatch):
        make_session(protocol_version=version)


@pytest.mark.parametrize(("bins", "bits"), [(2**r, r) for r in range(1, 17)])
def test_bits(bins: int, bits: int) -> None:
    assert make_session(bins=bins, pool_size=2**16).bits == bits


@pytest.mark.parametrize(("coupling", "races", "race_of"), [("gls", 3, [0, 1, 2]), ("baseline", 1, [0, 0, 0])])
def test_races(coupling: str, races: int, race_of: list[int]) -> None:
    """A private race for every decoder, or one for all."""
    session = make_session(decoders=3, coupling=coupling)
    assert session.races == races
    assert [session.race_of(k) for k in range(3)] == race_of
    for decoder in (-1, 3, 1.0, True):
        with refused("decoder", str(decoder), "0 … 2"):
            session.race_of(decoder)  # type: ignore[arg-type]


def test_a_list_has_no_races() -> None:
    session = make_session(pool_kind="discrete", pool_size=16, coupling="list")
    assert session.races == 0
    with refused("coupling", "list, which has no races", "gls or baseline"):
        session.race_of(1)


# One change of every field, so that a new field without a place in the digest fails here.
CHANGES: dict[str, dict[str, Any]] = {
    "seed": {"seed": SEED + 1},
    "pool_size": {"pool_size": 65},
    "bins": {"bins": 4},
    "decoders": {"decoders": 3},
    "model_digest": {"model_digest": b"\1" + bytes(31)},
    "latent_dimension": {"latent_dimension": 2},
    "pool_kind": {"pool_kind": "discrete"},
    "pool_variance": {"pool_variance": 1.0000000000000002},
    "coupling": {"coupling": "baseline"},
    "cell_width": {"pool_kind": "lattice", "cell_width": 0.25},
    "race_order": {"race_order": "arrival"},
    "binning": {"binning": "modulo"},
}


def test_digest_covers_every_field() -> None:
    fields = set(Session.__dataclass_fields__)
    assert set(CHANGES) == fields - {"protocol_version"}
    digests = {make_session().digest} | {make_session(**change).digest for change in CHANGES.values()}
    assert len(digests) == 1 + len(CHANGES)
    assert all(len(digest) == 32 for digest in digests)
    assert make_session().digest == make_session(pool_variance=1).digest


def test_digest_covers_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ends whose libraries make other pools disagree, though each of their fields is the same."""
    ours = make_session(pool_size=1000).digest
    real = Session.candidates

    for index in (0, 255, 999 - 255, 999):

        def other(self: Session, message: int, first: int, count: int, moved: int = index) -> Any:
            block = real(self, message, first, count)
            if first <= moved < first + count:
                block[moved - first] += 2.0**-16
            return block

        monkeypatch.setattr(Session, "candidates", other)
        assert make_session(pool_size=1000).digest != ours


def test_digest_covers_the_centroids(monkeypatch: pytest.MonkeyPatch) -> None:
    session = make_session(binning="region")
    digests = {session.digest, make_session().digest, make_session(binning="modulo").digest}
    real = regions.centroids
    monkeypatch.setattr(regions, "centroids", lambda bins, dimension: real(bins, dimension) + 1)
    assert len(digests | {make_session(binning="region").digest}) == 4


LISTED = {"pool_kind": "discrete", "pool_size": 16, "coupling": "list"}


@pytest.mark.parametrize("change", [{}, *CHANGES.values(), {"binning": "region"}, LISTED])
@pytest.mark.parametrize("share_seed", [True, False])
def test_wire_round_trip(change: dict[str, Any], share_seed: bool) -> None:
    session = make_session(**change)
    fields = session.wire_fields(share_seed=share_seed)
    assert fields["seed"] == (session.seed.to_bytes(16, "little") if share_seed else b"")
    back = Session.from_wire_fields(fields, None if share_seed else session.seed)
    assert back == session
    assert back.digest == session.digest


def test_pre_shared_seed_does_not_travel() -> None:
    fields = make_session().wire_fields(share_seed=False)
    assert SEED.to_bytes(16, "little") not in [v for v in fields.values() if isinstance(v, bytes)]
    assert fields["seed_digest"] == hashlib.sha256(SEED.to_bytes(16, "little")).digest() == seed_digest(SEED)


@pytest.mark.parametrize(
    ("field", "value", "pre_shared", "operand", "kind"),
    [
        ("seed", b"", None, "seed", SessionMismatch),
        ("seed", b"", SEED + 1, "seed_digest", SessionMismatch),
        ("seed", (SEED + 1).to_bytes(16, "little"), None, "seed_digest", SessionMismatch),
        ("seed", bytes(15), None, "seed", CodecError),
        ("seed", bytes(17), SEED, "seed", CodecError),
        ("seed_digest", bytes(32), None, "seed_digest", SessionMismatch),
        ("seed_digest", b"", None, "seed_digest", SessionMismatch),
        ("digest", bytes(32), None, "session digest", SessionMismatch),
        ("digest", b"", None, "session digest", SessionMismatch),
        ("pool_size", 65, None, "session digest", SessionMismatch),
        ("coupling", "baseline", None, "session digest", SessionMismatch),
        ("coupling", "unspecified", None, "coupling", CodecError),
        ("bins", 12, None, "bins", CodecError),
        ("protocol_version", 2, None, "protocol_version", SessionMismatch),
    ],
)
def test_foreign_wire_fields(
    field: str, value: object, pre_shared: int | None, operand: str, kind: type[CodecError]
) -> None:
    fields = make_session().wire_fields(share_seed=True) | {field: value}
    with refused(operand, kind=kind):
        Session.from_wire_fields(fields, pre_shared)


def test_wire_fields_stay_as_they_came() -> None:
    fields = make_session().wire_fields(share_seed=True)
    before = dict(fields)
    Session.from_wire_fields(fields)
    assert fields == before


def test_require() -> None:
    session = make_session()
    session.require(pool_size=64, pool_kind="gaussian", model_digest=bytes(32))
    with refused("pool_size", "64", "65", SessionMismatch):
        session.require(model_digest=bytes(32), pool_size=65)
    with refused("model_digest", "00" * 32, "01" * 32, SessionMismatch):
        session.require(model_digest=b"\1" * 32)


def test_a_session_does_not_change() -> None:
    with pytest.raises(AttributeError):
        make_session().seed = 1  # type: ignore[misc]


@pytest.mark.parametrize(
    ("changes", "limit"),
    [
        ({"pool_size": 2**18 + 1}, 2**18),
        ({"pool_size": 2**24}, 2**18),
        ({"pool_size": 257, "latent_dimension": 2**14}, 256),
        ({"pool_size": 2**18 + 1, "pool_kind": "discrete"}, 2**18),
    ],
)
def test_pools_that_a_service_cannot_hold(changes: dict[str, Any], limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused before anything of the pool is made, and so are dimensions that a model does not have."""
    session, fitting = make_session(**changes), make_session(latent_dimension=2**14).wire_fields(share_seed=True)
    monkeypatch.setattr(Session, "candidates", None)
    with refused("pool_size", str(changes["pool_size"]), f"at most {limit},"):
        session.require_affordable()
    with refused("latent_dimension", str(2**14), "2", SessionMismatch):
        Session.from_wire_fields(fitting, latent_dimension=2)


@pytest.mark.parametrize("changes", [{"race_order": "arrival"}, {"pool_kind": "lattice", "cell_width": 0.5}])
def test_pools_that_nobody_holds(changes: dict[str, Any]) -> None:
    """Of which only some candidates are made."""
    make_session(pool_size=2**24, **changes).require_affordable()
