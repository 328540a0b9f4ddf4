"""What an encoder says of itself: the answer of ``GetStatus``, and readings for the metrics."""

from __future__ import annotations

from collections.abc import Sequence

from encoder.gaussian import GaussianEncoderModel
from encoder.model import AlphabetModel, EncoderModel
from encoder.open_session import EncoderSession
from gumbelcast.metrics import Reading
from gumbelcast.v1 import encoder_pb2 as pb
from shared_rng.session import PROTOCOL_VERSION


def status(
    model: EncoderModel, addresses: Sequence[str], sessions: dict[bytes, EncoderSession]
) -> pb.GetStatusResponse:
    """The encoder's model, its decoders' addresses and the open sessions by digest, for the wire."""
    return pb.GetStatusResponse(
        protocol_version=PROTOCOL_VERSION,
        model_digest=model.digest,
        latent_dimension=model.latent_dimension,
        pool_variance=model.pool_variance,
        source_shape=model.source_shape,
        side=model.side,
        decoder_addresses=addresses,
        gaussian=_gaussian_source(model),
        codebook=_codebook(model),
        region_bins=model.region_bins,
        sessions=[
            pb.EncoderSessionStatus(
                session_digest=digest,
                next_message=state.accepted.next_message,
                decoders=state.states(),
                oldest_message=state.accepted.oldest_message,
            )
            for digest, state in sessions.items()
        ],
    )


def _gaussian_source(model: EncoderModel) -> pb.GaussianSource | None:
    if not isinstance(model, GaussianEncoderModel):
        return None
    return pb.GaussianSource(prior_variance=model.prior_variance, side_variance=model.side_variance)


def _codebook(model: EncoderModel) -> pb.Codebook | None:
    if not isinstance(model, AlphabetModel):
        return None
    book = model.codebook
    return pb.Codebook(words=book.words, bins=book.bins, list=book.coupling == "list")


def readings(sessions: dict[bytes, EncoderSession], waiting_batches: int) -> list[Reading]:
    """For the metrics; called from another thread, so it reads a copy.

    Args:
        sessions: the open ones by digest.
        waiting_batches: batches on their way into the journal.
    """
    states = [(digest.hex()[:16], decoder) for digest, s in sessions.copy().items() for decoder in s.states()]
    names = "session", "decoder"
    lags = [((name, str(decoder.index)), float(decoder.lag)) for name, decoder in states]
    ready = [((name, str(decoder.index)), float(decoder.ready)) for name, decoder in states]
    return [
        Reading("sessions", "Open sessions", (), [((), float(len(sessions)))]),
        Reading("journal_queue_batches", "Batches that wait to be accepted", (), [((), float(waiting_batches))]),
        Reading("lag_messages", "Accepted messages that a decoder has not acknowledged", names, lags),
        Reading("decoder_ready", "1 while a decoder takes batches", names, ready),
    ]
