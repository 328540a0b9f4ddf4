"""A blocking client of the encoder service, for whoever owns the source."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from types import TracebackType
from typing import Any, Literal

import grpc
import numpy.typing as npt

from gumbelcast import convert
from gumbelcast.channels import CALL_SECONDS, STREAM_SECONDS, open_blocking_channel, rows_per_batch
from gumbelcast.probe import require_trust
from gumbelcast.security import PLAIN, Security
from gumbelcast.v1 import encoder_pb2 as pb
from gumbelcast.v1.encoder_pb2_grpc import EncoderServiceStub
from shared_rng import Binning, CodecError, Coupling, Session
from shared_rng.lattice import lattice_for

Pool = Literal["lattice", "iid"]

ARRIVAL_POOL_SIZE = 2**15
"""N of an i.i.d. pool by default where a race stops early: the paper's."""
INDEX_POOL_SIZE = 1024
"""N by default where all candidates are weighed."""
DEFAULT_BINS = 16
"""L_max by default of models that serve any."""
RESUME_SECONDS = 60.0
"""How long a sender tries to reach an encoder again."""
PROGRESS_SECONDS = 30.0
"""A decoder that acknowledges nothing for so long is not waited for."""
OPEN_SECONDS = 600.0
"""Deadline of opening a session, above any sensible time that an encoder waits for its decoders."""


_RESUME_PAUSE = 0.2
_LOST = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL)


class EncoderClient:
    """Talks to one encoder service; a context manager. Calls raise ``grpc.RpcError`` with the service's reason."""

    def __init__(self, address: str, security: Security = PLAIN) -> None:
        """Connect to ``host:port``.

        Raises:
            ValueError: the address is beyond loopback, and ``security`` has no certificates.
            NotTrusted: the encoder does not trust this client, or the other way round.
        """
        require_trust("encoder", address, security)
        self._channel = open_blocking_channel(address, security)
        self._stub = EncoderServiceStub(self._channel)

    def __enter__(self) -> EncoderClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def status(self) -> pb.GetStatusResponse:
        """Model, decoders and open sessions."""
        response: pb.GetStatusResponse = self._stub.GetStatus(
            pb.GetStatusRequest(), timeout=CALL_SECONDS, wait_for_ready=True
        )
        return response

    def session(
        self,
        *,
        bins: int | None = None,
        decoders: int | None = None,
        pool: Pool | None = None,
        pool_size: int | None = None,
        binning: Binning | None = None,
        coupling: Coupling | None = None,
        seed: int | None = None,
    ) -> Session:
        """A session for the model that the encoder serves; a random seed unless one is given.

        Args:
            bins: L_max, by default a codebook's and 16 for other models.
            decoders: K, by default a list's and otherwise all of the encoder's decoders.
            pool: ``lattice`` or ``iid``; by default a lattice for a Gaussian model and ``iid`` for a VAE. A codebook
                is its own pool.
            pool_size: N of an i.i.d. pool, by default 32768 for a Gaussian model and 1024 for a VAE.
            binning: labels of candidates, see :class:`shared_rng.Session`; by default ``region`` for a VAE that is made
                for it (recipe ``region``), else what suits the pool.
            coupling: ``gls``, ``baseline`` or ``list``; by default what a codebook is made for, and ``gls``.
            seed: 128 bits.

        Raises:
            CodecError: the model has no such pool, N is given for a lattice, or a field is out of range.
        """
        status = self.status()
        book = status.codebook if status.HasField("codebook") else None
        if decoders is None:
            decoders = len(status.decoder_addresses)
            if book is not None and book.list:
                decoders = book.words // book.bins
        common: dict[str, Any] = {
            "seed": secrets.randbits(128) if seed is None else seed,
            "decoders": decoders,
            "model_digest": status.model_digest,
            "binning": "region" if binning is None and status.region_bins else binning,
        }
        if book is not None:
            if pool is not None:
                raise CodecError("pool", pool, "none, since the model's codebook is the pool")
            return Session(
                pool_kind="discrete",
                pool_size=book.words if pool_size is None else pool_size,
                bins=book.bins if bins is None else bins,
                coupling=("list" if book.list else "gls") if coupling is None else coupling,
                **common,
            )
        bins = DEFAULT_BINS if bins is None else bins
        common |= {"bins": bins, "coupling": "gls" if coupling is None else coupling}
        gaussian = status.gaussian if status.HasField("gaussian") else None
        if pool == "lattice" or (pool is None and gaussian is not None):
            if gaussian is None:
                raise CodecError("pool", "lattice", "iid, since the encoder's source is not Gaussian")
            if pool_size is not None:
                raise CodecError("pool_size", f"{pool_size} for a lattice", "none (N follows from K and L_max), or iid")
            lattice = lattice_for(decoders, bins, gaussian.prior_variance, gaussian.side_variance)
            return Session(pool_kind="lattice", pool_size=lattice.pool_size, cell_width=lattice.cell_width, **common)
        default = INDEX_POOL_SIZE if gaussian is None else ARRIVAL_POOL_SIZE
        return Session(
            pool_size=default if pool_size is None else pool_size,
            latent_dimension=status.latent_dimension,
            pool_variance=status.pool_variance,
            race_order="index" if gaussian is None else "arrival",
            **common,
        )

    def open(self, session: Session, *, share_seed: bool = True) -> pb.OpenSessionResponse:
        """Open a session; without ``share_seed`` only the digest of a pre-shared seed travels."""
        wire = convert.to_session(session.wire_fields(share_seed=share_seed))
        response: pb.OpenSessionResponse = self._stub.OpenSession(
            pb.OpenSessionRequest(session=wire), timeout=OPEN_SECONDS
        )
        return response

    def encode(
        self, session: Session, sources: npt.NDArray[Any], first_message: int = 0, batch: int = 64
    ) -> Iterator[pb.EncodeResponse]:
        """Send sources [B, *source_shape] in batches, split below the message limit; yields the answers."""
        size = rows_per_batch(convert.to_tensor(sources[:1]).ByteSize(), batch)
        requests = (
            pb.EncodeRequest(
                session_digest=session.digest,
                first_message=first_message + start,
                sources=convert.to_tensor(sources[start : start + size]),
            )
            for start in range(0, len(sources), size)
        )
        yield from self._stub.Encode(requests, timeout=STREAM_SECONDS)

    def send(
        self, session: Session, sources: npt.NDArray[Any], first_message: int = 0, batch: int = 64
    ) -> Iterator[pb.EncodeResponse]:
        """As :meth:`encode`, and on after the encoder or the connection to it was lost, for up to a minute each time.

        Batches whose answers were lost are sent again; those that had been accepted are answered without picks.
        """
        done, deadline = 0, None
        while done < len(sources):
            try:
                for answer in self.encode(session, sources[done:], first_message + done, batch):
                    yield answer
                    done += answer.count
                    deadline = None
            except grpc.RpcError as error:
                deadline = deadline or time.monotonic() + RESUME_SECONDS
                if error.code() not in _LOST or time.monotonic() > deadline:
                    raise
                time.sleep(_RESUME_PAUSE)

    def await_delivery(self, session: Session, message: int) -> list[pb.DecoderState]:
        """The decoders, once each has acknowledged the messages before a number, is given up, or makes no progress."""
        positions: list[int] = []
        while True:
            request = pb.AwaitDeliveryRequest(session_digest=session.digest, message=message, seconds=PROGRESS_SECONDS)
            answer = self._stub.AwaitDelivery(request, timeout=PROGRESS_SECONDS + CALL_SECONDS)
            states = list(answer.decoders)
            reached = [state.next_message for state in states]
            lacking = [state for state in states if state.next_message < message]
            if all(state.reason for state in lacking) or reached == positions:
                return states
            positions = reached

    def close(self, session: Session) -> None:
        """Close the session at the encoder and at its decoders."""
        self._stub.CloseSession(pb.CloseSessionRequest(session_digest=session.digest), timeout=CALL_SECONDS)
