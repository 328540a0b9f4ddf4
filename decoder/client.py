"""A blocking client of one decoder: put side information, read reconstructions."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from gumbelcast import convert
from gumbelcast.channels import CALL_SECONDS, open_blocking_channel, rows_per_batch
from gumbelcast.probe import require_trust
from gumbelcast.security import PLAIN, Security
from gumbelcast.v1 import decoder_pb2 as pb
from gumbelcast.v1.decoder_pb2_grpc import DecoderServiceStub

_PUT_ROWS = 1024


class DecoderClient:
    """Talks to one decoder service; a context manager. Calls raise ``grpc.RpcError`` with the service's reason."""

    def __init__(self, address: str, security: Security = PLAIN) -> None:
        """Connect to ``host:port``.

        Raises:
            ValueError: the address is beyond loopback, and ``security`` has no certificates.
            NotTrusted: the decoder does not trust this client, or the other way round.
        """
        require_trust("decoder", address, security)
        self._channel = open_blocking_channel(address, security)
        self._stub = DecoderServiceStub(self._channel)

    def __enter__(self) -> DecoderClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._channel.close()

    def status(self) -> pb.GetDecoderStatusResponse:
        """Model and open sessions."""
        response: pb.GetDecoderStatusResponse = self._stub.GetDecoderStatus(
            pb.GetDecoderStatusRequest(), timeout=CALL_SECONDS, wait_for_ready=True
        )
        return response

    def put_side_information(self, digest: bytes, side: npt.NDArray[Any], first_message: int = 0) -> None:
        """Put side information [B, *side_shape] of messages from ``first_message`` on, in split batches."""
        size = rows_per_batch(side[:1].nbytes, _PUT_ROWS)
        for start in range(0, len(side), size):
            request = pb.PutSideInformationRequest(
                session_digest=digest,
                first_message=first_message + start,
                side_information=convert.to_tensor(side[start : start + size]),
            )
            self._stub.PutSideInformation(request, timeout=CALL_SECONDS)

    def read(
        self, digest: bytes, count: int, first_message: int = 0
    ) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float32]]:
        """Picks [count] (-1 where a message failed) and reconstructions [count, *source_shape]."""
        request = pb.ReadReconstructionsRequest(session_digest=digest, first_message=first_message, count=count)
        parts = list(self._stub.ReadReconstructions(request, timeout=CALL_SECONDS))
        picks = np.concatenate([np.asarray(part.picks, dtype=np.int64) for part in parts])
        return picks, np.concatenate([convert.from_tensor(part.reconstructions) for part in parts])
