"""Encoder search of an image model in a running service, from a configuration file to the decoders' files."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import numpy as np

from decoder.client import DecoderClient
from decoder.model import load_decoder_model
from encoder.client import EncoderClient
from encoder.model import load_encoder_model
from encoder.similar import SimilarImages
from experiments.coding import code_in_process
from experiments.images import MNIST, bundled_digits
from shared_rng import find_model, load_card
from tests.integration.services import Fleet

MODEL = "mnist-discrete-k4-l4"
DIGITS = bundled_digits(150)


def test_search_is_served(tmp_path: Path) -> None:
    """Messages and picks are those of the same search in one process, and other ones than without it."""
    np.savez(tmp_path / "digits.npz", images=DIGITS[30:])
    sources, sides = MNIST.sources(DIGITS[:30]), [MNIST.side_information(DIGITS[:30], k) for k in range(2)]
    config = tmp_path / "encoder.toml"
    config.write_text(f'search = 4\nsearch-images = "{tmp_path / "digits.npz"}"\n')
    card = load_card(find_model(MODEL))
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(tmp_path))
        started = [fleet.launch("decoder", *fleet.decoder_arguments(k, sides[k]), model=MODEL) for k in range(2)]
        options = [part for decoder in started for part in ("--decoder", decoder.wait_ready())]
        service = fleet.start("encoder", *options, "--config", str(config), model=MODEL)
        encoder = stack.enter_context(EncoderClient(service.address))
        session = encoder.session(seed=3)
        encoder.open(session)
        answers = list(encoder.encode(session, sources, batch=7))
        assert all(state.lag == 0 for state in encoder.await_delivery(session, len(sources)))
        model, decoder_model = load_encoder_model(card, SimilarImages(MNIST, DIGITS[30:])), load_decoder_model(card)
        here = code_in_process(session, model, decoder_model, sources, sides, search=4)
        assert np.array_equal(np.concatenate([answer.picks for answer in answers]), here.encoder_picks)
        for k, decoder in enumerate(started):
            reader = stack.enter_context(DecoderClient(decoder.address))
            picks, reconstructions = reader.read(session.digest, len(sources))
            assert np.array_equal(picks, here.decoder_picks[k])
            assert np.array_equal(picks % session.bins, here.encoder_picks % session.bins)
            assert np.array_equal(reconstructions, here.reconstructions[k].astype(np.float32))
    plain = code_in_process(session, model, decoder_model, sources, sides)
    assert not np.array_equal(plain.encoder_picks, here.encoder_picks)
