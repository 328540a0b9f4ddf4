"""Codebook models in services: what `send` opens by default, and equality with one process."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest

from decoder.client import DecoderClient
from decoder.model import load_decoder_model
from encoder.client import EncoderClient
from encoder.model import load_encoder_model
from experiments import images
from experiments.coding import code_in_process
from experiments.distortion import best_squared_errors, standard_error
from shared_rng import Coupling, find_model, load_card
from tests.integration.services import Fleet, assert_as_in_process
from tests.models import refused, uniforms, write_codebook

SOURCES = np.sign(2.0 * uniforms(30 * 12, 1) - 1.0).reshape(30, 4, 3)
SIDES = [2.0 * uniforms(30 * 6, 3 + k).reshape(30, 3, 2) - 1.0 for k in range(3)]


@pytest.mark.parametrize(("kind", "couplings"), [("gls", ("gls", "baseline")), ("list", ("list",))])
def test_codebooks_are_served(tmp_path: Path, kind: str, couplings: tuple[Coupling, ...]) -> None:
    """Four decoders are there; a list of twelve words in four bins takes the first three."""
    card = write_codebook(tmp_path, kind)
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(tmp_path))
        started = [fleet.launch("decoder", model=tmp_path) for _ in range(4)]
        options = [part for decoder in started for part in ("--decoder", decoder.wait_ready())]
        encoder = stack.enter_context(EncoderClient(fleet.start("encoder", *options, model=tmp_path).address))
        decoders = [stack.enter_context(DecoderClient(decoder.address)) for decoder in started]
        default = encoder.session(seed=5)
        assert (default.pool_kind, default.pool_size, default.bins) == ("discrete", 12, 4)
        assert (default.coupling, default.decoders) == (kind, 3 if kind == "list" else 4)
        for pool in ("iid", "lattice"):
            with refused("pool", pool, "none, since the model's codebook is the pool"):
                encoder.session(pool=pool)
        for coupling in couplings:
            session = encoder.session(seed=5, decoders=3, coupling=coupling)
            assert_as_in_process(session, card, encoder, decoders[:3], SOURCES, SIDES)
            encoder.close(session)


@pytest.mark.parametrize("name", ["mnist-list-k4-l16", "mnist-discrete-k4-l4"])
def test_shipped_codebooks_of_digits(tmp_path: Path, name: str) -> None:
    """1,000 digits through services, message for message as in one process, with the error that the card tells."""
    digits = images.bundled_digits(1000)
    card = load_card(find_model(name))
    sources, sides = images.MNIST.sources(digits), [images.MNIST.side_information(digits, k) for k in range(4)]
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(tmp_path))
        started = [fleet.launch("decoder", *fleet.decoder_arguments(k, sides[k]), model=name) for k in range(4)]
        options = [part for decoder in started for part in ("--decoder", decoder.wait_ready())]
        encoder = stack.enter_context(EncoderClient(fleet.start("encoder", *options, model=name).address))
        session = encoder.session(seed=1)
        encoder.open(session)
        answers = list(encoder.encode(session, sources))
        assert all(state.lag == 0 for state in encoder.await_delivery(session, len(sources)))
        assert sum(answer.payload_bytes for answer in answers) == 1000 * session.bits // 8
        here = code_in_process(session, load_encoder_model(card), load_decoder_model(card), sources, sides)
        assert np.array_equal(np.concatenate([answer.picks for answer in answers]), here.encoder_picks)
        for k, decoder in enumerate(started):
            reader = stack.enter_context(DecoderClient(decoder.address))
            picks, reconstructions = reader.read(session.digest, 1000)
            assert np.array_equal(picks, here.decoder_picks[k])
            assert np.array_equal(reconstructions, here.reconstructions[k].astype(np.float32))
    errors = best_squared_errors(sources, here.reconstructions) / 2.0
    assert errors.mean() == pytest.approx(card.training["metrics"]["mse_paper"], abs=4.0 * standard_error(errors))
