"""What the services make of a source equals what both ends make of it in one process, message for message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
import pytest

from decoder.client import DecoderClient
from decoder.model import load_decoder_model
from encoder.client import EncoderClient
from encoder.model import load_encoder_model
from experiments import images
from experiments.coding import Outcome, code_in_process
from shared_rng import Coupling, Session, find_model, load_card, packed_size
from tests.integration.services import Fleet, Floats, gaussian_data

SEED = 0xFEDCBA98765432100123456789ABCDEF


@dataclass
class Ends:
    """Running services of one model, and the data that they code."""

    model: str
    sources: Floats
    sides: Sequence[Floats]
    encoder: EncoderClient
    decoders: Sequence[DecoderClient]

    def session(self, bins: int, decoders: int, coupling: Coupling, pool_size: int, seed: int = SEED) -> Session:
        return self.encoder.session(
            pool="iid", pool_size=pool_size, bins=bins, decoders=decoders, coupling=coupling, seed=seed
        )

    def here(self, session: Session) -> Outcome:
        """Both ends in this process."""
        card = load_card(find_model(self.model))
        ends = load_encoder_model(card), load_decoder_model(card)
        return code_in_process(session, *ends, self.sources, self.sides[: session.decoders])

    def there(self, session: Session, batch: int) -> Outcome:
        """Both ends in processes of their own."""
        opened = self.encoder.open(session)
        assert (opened.next_message, [state.ready for state in opened.decoders]) == (0, [True] * session.decoders)
        for decoder, side in zip(self.decoders, self.sides[: session.decoders], strict=False):
            decoder.put_side_information(session.digest, side)
        answers = list(self.encoder.encode(session, self.sources, batch=batch))
        count = len(self.sources)
        assert [a.first_message for a in answers] == list(range(0, count, batch))
        assert [a.count for a in answers] == [min(batch, count - first) for first in range(0, count, batch)]
        assert [a.payload_bytes for a in answers] == [packed_size(a.count, session.bits) for a in answers]
        states = self.encoder.await_delivery(session, count)
        assert [(d.index, d.next_message, d.lag, d.reason) for d in states] == [
            (k, count, 0, "") for k in range(session.decoders)
        ]
        read = [d.read(session.digest, len(self.sources)) for d in self.decoders[: session.decoders]]
        self.encoder.close(session)
        return Outcome(
            encoder_picks=np.concatenate([np.asarray(a.picks, dtype=np.int64) for a in answers]),
            decoder_picks=np.stack([picks for picks, _ in read]),
            reconstructions=np.stack([reconstructions for _, reconstructions in read]),
            payload_bytes=sum(a.payload_bytes for a in answers),
        )


@pytest.fixture(scope="module", params=["gaussian", "mnist"])
def ends(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ends]:
    """Two decoders of the Gaussian source, or four of the images."""
    model = request.param
    if model == "gaussian":
        sources, sides = gaussian_data(64, 2)
    else:
        digits = images.bundled_digits(64)
        sources, sides = images.MNIST.sources(digits), [images.MNIST.side_information(digits, k) for k in range(4)]
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(tmp_path_factory.mktemp(model)))
        started = [fleet.launch("decoder", model=model) for _ in sides]
        addresses = [decoder.wait_ready() for decoder in started]
        options = [part for address in addresses for part in ("--decoder", address)]
        encoder = fleet.start("encoder", *options, model=model)
        yield Ends(
            model,
            sources,
            sides,
            stack.enter_context(EncoderClient(encoder.address)),
            [stack.enter_context(DecoderClient(address)) for address in addresses],
        )


def assert_equal(found: Outcome, expected: Outcome) -> None:
    """The same picks at every end, and the same reconstructions in the precision in which they travel."""
    assert np.array_equal(found.encoder_picks, expected.encoder_picks)
    assert np.array_equal(found.decoder_picks, expected.decoder_picks)
    assert found.reconstructions.dtype == np.float32
    assert np.array_equal(found.reconstructions, expected.reconstructions.astype(np.float32))


@pytest.mark.parametrize("coupling", ["gls", "baseline"])
def test_services_equal_one_process(ends: Ends, coupling: Coupling) -> None:
    """Whatever the batch size; K is 2 or 4 and L_max is 16."""
    decoders = len(ends.sides)
    expected = ends.here(ends.session(16, decoders, coupling, 256))
    # What is compared is not trivial: the source's samples differ, decoders differ, and not every one matches.
    assert len(set(expected.encoder_picks.tolist())) > 16
    if coupling == "gls":
        assert 0 < (expected.decoder_picks[0] != expected.decoder_picks[1]).sum() < 64
    assert expected.matched.any()
    for batch in (1, 7, 64):
        # A session that was closed never gives its numbers again: each run has its own.
        session = ends.session(16, decoders, coupling, 256, SEED + 10 + batch)
        found = ends.there(session, batch)
        assert_equal(found, ends.here(session))
        assert found.payload_bytes == sum(packed_size(min(batch, 64 - i), 4) for i in range(0, 64, batch))
    assert expected.payload_bytes == 32


def test_one_decoder_makes_the_couplings_equal(ends: Ends) -> None:
    """With K = 1 there is one race either way: the sessions differ, nothing else."""
    outcomes = [ends.there(ends.session(8, 1, coupling, 256), 64) for coupling in ("gls", "baseline")]
    sessions = [ends.session(8, 1, coupling, 256) for coupling in ("gls", "baseline")]
    assert sessions[0].digest != sessions[1].digest
    assert np.array_equal(outcomes[0].encoder_picks, outcomes[1].encoder_picks)
    assert np.array_equal(outcomes[0].decoder_picks, outcomes[1].decoder_picks)
    assert np.array_equal(outcomes[0].reconstructions, outcomes[1].reconstructions)
    assert_equal(outcomes[0], ends.here(sessions[0]))


def test_another_seed_gives_other_picks(ends: Ends) -> None:
    """The comparison above would notice a seed that does not reach both ends."""
    first, second = (ends.here(ends.session(16, 1, "gls", 256, seed)) for seed in (SEED, SEED + 1))
    assert (first.encoder_picks != second.encoder_picks).sum() > 48
    assert_equal(ends.there(ends.session(16, 1, "gls", 256, SEED + 1), 64), second)


@pytest.mark.parametrize("ends", ["mnist"], indirect=True)
def test_large_batches_are_split(ends: Ends) -> None:
    """More samples than fit into one message, in one call of the client."""
    repeats = 48  # 3,072 digits in double precision: 9.6 MB
    sources = np.tile(ends.sources.astype(np.float64), (repeats, 1, 1))
    session = ends.session(2, 1, "gls", 2)
    ends.encoder.open(session)
    ends.decoders[0].put_side_information(session.digest, np.tile(ends.sides[0], (repeats, 1, 1)))
    answers = list(ends.encoder.encode(session, sources, batch=4096))
    counts = [answer.count for answer in answers]
    assert (len(counts), sum(counts)) == (3, len(sources))
    assert [state.lag for state in ends.encoder.await_delivery(session, len(sources))] == [0]
    picks, reconstructions = ends.decoders[0].read(session.digest, len(sources))
    ends.encoder.close(session)
    # L_max = N: the message is the index itself, so both ends must agree on all of them.
    assert np.array_equal(picks, np.concatenate([answer.picks for answer in answers]))
    assert reconstructions.shape == (len(sources), 28, 14)
