"""The session: everything that the encoder and its K decoders must agree on before the first message."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np

from shared_rng import philox, regions, variates
from shared_rng.errors import CodecError, SessionMismatch

PROTOCOL_VERSION = 3
"""Version of the format: words, pool, bins, races, picks and message bits. A change to any is a new one."""

PoolKind = Literal["gaussian", "discrete", "lattice"]
RaceOrder = Literal["index", "arrival"]
Binning = Literal["random", "modulo", "region"]
Coupling = Literal["gls", "baseline", "list"]

MAX_BINS = 2**16
MAX_POOL = 2**24
MAX_DECODERS = 2**16
MAX_VARIANCE = 1e18
MAX_SCANNED = 2**18
"""N at a service, of pools that are looked at candidate by candidate."""
MAX_SCANNED_NUMBERS = 2**22
"""N times coordinates of a candidate, likewise."""
_DIGEST_BLOCK = 256
_SEED_BYTES = 16


def seed_digest(seed: int) -> bytes:
    """SHA-256 of the 128-bit seed as 16 little-endian bytes; what travels when the seed is pre-shared."""
    return hashlib.sha256(seed.to_bytes(_SEED_BYTES, "little")).digest()


def _check_integer(name: str, value: object, low: int, high: int, expected: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise CodecError(name, repr(value), expected)


def require_bins(bins: int) -> None:
    """What L_max may be in any session.

    Raises:
        CodecError: it is no such number.
    """
    expected = "a power of two in 2 … 65536"
    _check_integer("bins", bins, 2, MAX_BINS, expected)
    if bins & (bins - 1):
        raise CodecError("bins", bins, expected)


def require_decoders(decoders: int) -> None:
    """What K may be in any session.

    Raises:
        CodecError: it is no such number.
    """
    _check_integer("decoders", decoders, 1, MAX_DECODERS, f"an integer in 1 … {MAX_DECODERS}")


def _check_real(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MAX_VARIANCE:
        raise CodecError(name, repr(value), f"a finite number above 0, at most {MAX_VARIANCE:g}")


@dataclass(frozen=True, kw_only=True)
class Session:
    """One agreement between an encoder and K decoders (arXiv 2506.05632, section 3 and algorithm 1).

    Attributes:
        seed: 128 bits of common randomness.
        pool_size: N, the number of candidates a message; 2 … 2^24.
        bins: L_max, a power of two in 2 … 2^16, at most N. A message is log2(L_max) bits.
        decoders: K, 1 … 2^16.
        latent_dimension: coordinates of one candidate; 1 for a discrete pool.
        pool_kind: ``gaussian`` (candidates i.i.d. N(0, pool_variance · I)), ``discrete`` (candidate i is the
            letter i of an alphabet of N) or ``lattice`` (N points ``cell_width`` apart, shifted by a common
            dither a message).
        pool_variance: variance of each coordinate of a Gaussian pool; 1 for the others.
        cell_width: distance of neighbouring points of a lattice pool; 0 for the others.
        race_order: ``index`` (S_i is word i of the race: a decoder makes those of its bin alone) or
            ``arrival`` (candidates in the order of arrival: a race with a bound on its weights stops early;
            Gaussian pools only).
        binning: label of candidate i. ``random`` (i.i.d. uniform, section 3 of the paper), ``modulo`` (i mod
            L_max) or ``region`` (of the nearest of L_max centroids of N(0, I), see ``shared_rng.regions``; Gaussian
            pools of variance 1 with races by index). None stands for ``modulo`` where the pool is not Gaussian or
            L_max = N, so that nothing is binned, and for ``random`` otherwise.
        coupling: ``gls`` (one private race a decoder), ``baseline`` (one race shared by all) or ``list`` (no
            races: the encoder takes the heaviest candidate, decoder k the k-th of the bin, which is GLS with
            degenerate proposals; discrete pools of L_max · K letters).
        model_digest: SHA-256 of the model that both ends hold half of each.
        protocol_version: version of the format.

    Raises:
        CodecError: a field is out of range; it names the field, what came and what was expected.
    """

    seed: int = field(repr=False)
    pool_size: int
    bins: int
    decoders: int
    model_digest: bytes
    latent_dimension: int = 1
    pool_kind: PoolKind = "gaussian"
    pool_variance: float = 1.0
    cell_width: float = 0.0
    race_order: RaceOrder = "index"
    binning: Binning | None = None
    coupling: Coupling = "gls"
    protocol_version: int = PROTOCOL_VERSION

    def __post_init__(self) -> None:
        if type(self.protocol_version) is not int or self.protocol_version != PROTOCOL_VERSION:
            raise SessionMismatch("protocol_version", self.protocol_version, PROTOCOL_VERSION)
        # The value is a secret, here and in every text that a session is put into.
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**128:
            given = "a number out of range" if type(self.seed) is int else f"a {type(self.seed).__name__}"
            raise CodecError("seed", given, "an integer in 0 … 2^128 - 1")
        _check_integer("pool_size", self.pool_size, 2, MAX_POOL, "an integer in 2 … 2^24")
        require_bins(self.bins)
        if self.bins > self.pool_size:
            raise CodecError("bins", self.bins, f"at most pool_size, {self.pool_size}")
        require_decoders(self.decoders)
        _check_integer("latent_dimension", self.latent_dimension, 1, 2**16, "an integer in 1 … 65536")
        if self.pool_kind not in get_args(PoolKind):
            raise CodecError("pool_kind", repr(self.pool_kind), "gaussian, discrete or lattice")
        if self.coupling not in get_args(Coupling):
            raise CodecError("coupling", repr(self.coupling), "gls, baseline or list")
        _check_real("pool_variance", self.pool_variance)
        if self.pool_kind != "gaussian" and (self.latent_dimension, self.pool_variance) != (1, 1.0):
            given = f"latent_dimension {self.latent_dimension} and pool_variance {self.pool_variance}"
            raise CodecError(f"{self.pool_kind} pool", given, "latent_dimension 1 and pool_variance 1")
        lattice = self.pool_kind == "lattice"
        if lattice:
            _check_real("cell_width", self.cell_width)
        elif self.cell_width != 0:
            raise CodecError("cell_width", self.cell_width, f"0 for a {self.pool_kind} pool")
        if self.race_order not in get_args(RaceOrder):
            raise CodecError("race_order", repr(self.race_order), "index or arrival")
        if self.race_order == "arrival" and self.pool_kind != "gaussian":
            raise CodecError("race_order", f"arrival with a {self.pool_kind} pool", "arrival with a gaussian pool")
        self._check_binning()
        if self.coupling == "list" and (self.pool_kind, self.pool_size) != ("discrete", self.bins * self.decoders):
            given = f"a {self.pool_kind} pool of {self.pool_size} candidates"
            expected = f"a discrete pool of bins · decoders, {self.bins * self.decoders}"
            raise CodecError("coupling", f"list with {given}", f"list with {expected}")
        if not isinstance(self.model_digest, bytes) or len(self.model_digest) != 32:
            raise CodecError("model_digest", self.model_digest, "32 bytes, a SHA-256")

    def _check_binning(self) -> None:
        if self.binning is None:
            by_value = self.pool_kind != "gaussian" or self.bins == self.pool_size
            object.__setattr__(self, "binning", "modulo" if by_value else "random")
        if self.binning not in get_args(Binning):
            raise CodecError("binning", repr(self.binning), "random, modulo or region")
        if self.pool_kind != "gaussian" and self.binning != "modulo":
            raise CodecError("binning", f"{self.binning} with a {self.pool_kind} pool", "modulo")
        if self.binning != "region":
            return
        if self.pool_variance != 1:
            raise CodecError(
                "binning", f"region with pool_variance {self.pool_variance}", "region with pool_variance 1"
            )
        if self.race_order != "index":
            raise CodecError("binning", f"region with race_order {self.race_order}", "region with race_order index")
        regions.require_sizes(self.bins, self.latent_dimension)

    def require(self, **expected: object) -> None:
        """Check fields against what this end holds.

        Raises:
            SessionMismatch: a field differs; it names the field, what came and what was expected.
        """
        for name, value in expected.items():
            given = getattr(self, name)
            if given != value:
                given, value = (v.hex() if isinstance(v, bytes) else v for v in (given, value))
                raise SessionMismatch(name, given, value)

    @property
    def bits(self) -> int:
        """Rate in bits a message, log2(L_max)."""
        return self.bins.bit_length() - 1

    @property
    def races(self) -> int:
        """Number of races that the encoder minimises over: K with GLS, 1 with the baseline, none with a list."""
        return {"gls": self.decoders, "baseline": 1, "list": 0}[self.coupling]

    def race_of(self, decoder: int) -> int:
        """The race of decoder ``decoder`` (0 … K - 1): its own with GLS, race 0 with the baseline.

        Raises:
            CodecError: the index is out of range, or the coupling has no races.
        """
        self.require_decoder(decoder)
        if self.coupling == "list":
            raise CodecError("coupling", "list, which has no races", "gls or baseline")
        return decoder if self.coupling == "gls" else 0

    def require_decoder(self, decoder: int) -> None:
        """Check the index of a decoder.

        Raises:
            CodecError: it is not one of 0 … K - 1.
        """
        _check_integer("decoder", decoder, 0, self.decoders - 1, f"an index in 0 … {self.decoders - 1}")

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 over every field and over the first and the last pool block of message 0.

        A block is 256 candidates: of a Gaussian pool as little-endian signed 64-bit multiples of 2^-16, of
        the others as little-endian doubles. Centroids of regions follow, as the Gaussian blocks. Two ends whose
        libraries gave different pools would disagree here.
        """
        summary = {each.name: getattr(self, each.name) for each in fields(self)}
        summary["model_digest"] = self.model_digest.hex()
        for name in ("pool_variance", "cell_width"):
            summary[name] = float(summary[name]).hex()
        state = hashlib.sha256(json.dumps(summary, sort_keys=True).encode())
        size = min(_DIGEST_BLOCK, self.pool_size)
        for first in (0, self.pool_size - size):
            block = self.candidates(0, first, size)
            if self.pool_kind == "gaussian":
                state.update(np.rint(block / variates.GRID).astype("<i8").tobytes())
            else:
                state.update(block.astype("<f8").tobytes())
        if self.binning == "region":
            state.update(regions.centroids(self.bins, self.latent_dimension).astype("<i8").tobytes())
        return state.digest()

    def candidates(self, message: int, first: int, count: int) -> variates.Floats:
        """Candidates ``first … first + count - 1`` of one message's pool: float64 [count, D].

        Candidate i of a Gaussian pool takes words i·D … i·D + D - 1 of the pool domain, one a coordinate.
        Point i of a lattice is (i - N // 2 + ½ - dither) · cell_width with the dither in [0, 1) from word 0:
        operations that IEEE 754 rounds alike everywhere.
        """
        if self.pool_kind == "discrete":
            return np.arange(first, first + count, dtype=np.float64)[:, None]
        if self.pool_kind == "lattice":
            dither = variates.uniforms(philox.words(self.seed, philox.POOL_DOMAIN, message, 0, 1))
            places = np.arange(first, first + count) - self.pool_size // 2 + 0.5 - dither
            return np.asarray(places * self.cell_width)[:, None]
        dimension = self.latent_dimension
        words = philox.words(self.seed, philox.POOL_DOMAIN, message, first * dimension, count * dimension)
        return variates.normals(words, self.pool_variance).reshape(count, dimension)

    def wire_fields(self, *, share_seed: bool) -> dict[str, Any]:
        """The session as plain values for the wire; without the seed where it is pre-shared."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        values["seed"] = self.seed.to_bytes(_SEED_BYTES, "little") if share_seed else b""
        return values | {"seed_digest": seed_digest(self.seed), "digest": self.digest}

    def require_affordable(self) -> None:
        """Check that a service can hold a pool of which every candidate is looked at.

        Raises:
            CodecError: the pool is too large.
        """
        if self.pool_kind == "lattice" or self.race_order == "arrival":
            return
        limit = min(MAX_SCANNED, MAX_SCANNED_NUMBERS // self.latent_dimension)
        if self.pool_size > limit:
            given = f"{self.pool_size} candidates of {self.latent_dimension} coordinates"
            raise CodecError("pool_size", given, f"at most {limit}, since a service looks at each")

    @classmethod
    def from_wire_fields(
        cls, values: Mapping[str, Any], pre_shared_seed: int | None = None, latent_dimension: int | None = None
    ) -> Session:
        """Rebuild a session from :meth:`wire_fields` and check the seed's and the session's digest.

        Args:
            values: from the wire.
            pre_shared_seed: what the session has where its seed did not travel.
            latent_dimension: what a session must have to be looked at any further, or None.

        Raises:
            SessionMismatch: the seed is missing here and in the message, or a digest or the dimension differs.
            CodecError: a field is out of range.
        """
        values = dict(values)
        seed_bytes, came_seed_digest, came_digest = (values.pop(n) for n in ("seed", "seed_digest", "digest"))
        if seed_bytes and len(seed_bytes) != _SEED_BYTES:
            raise CodecError("seed", f"{len(seed_bytes)} bytes", f"{_SEED_BYTES} bytes, or none when pre-shared")
        seed = int.from_bytes(seed_bytes, "little") if seed_bytes else pre_shared_seed
        if seed is None:
            raise SessionMismatch("seed", "no seed", "a seed, since none was pre-shared with this service")
        session = cls(seed=seed, **values)
        if latent_dimension is not None:
            session.require(latent_dimension=latent_dimension)
        for name, came, own in (
            ("seed_digest", came_seed_digest, seed_digest(session.seed)),
            ("session digest", came_digest, session.digest),
        ):
            if came != own:
                raise SessionMismatch(name, came.hex() or "nothing", own.hex())
        return session
