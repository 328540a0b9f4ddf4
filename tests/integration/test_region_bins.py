"""Models of images whose latent is continuous: the binning of a session follows from the model."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from decoder.client import DecoderClient
from encoder.client import EncoderClient
from shared_rng import Binning
from tests.bits import ESTIMATOR, MIXTURE, write_model
from tests.integration.services import Fleet, assert_as_in_process
from tests.models import refused, uniforms

SOURCES = 2.0 * uniforms(30 * 30, 1).reshape(30, 6, 5) - 1.0
SIDES = [2.0 * uniforms(30 * 16, 3 + k).reshape(30, 4, 4) - 1.0 for k in range(2)]


@pytest.mark.parametrize(("architecture", "binning"), [(MIXTURE, "region"), (ESTIMATOR, "random")])
def test_binning_follows_from_the_model(tmp_path: Path, architecture: dict[str, Any], binning: Binning) -> None:
    """Regions for a mixture, which is trained for them; another binning where it is asked for."""
    card = write_model(tmp_path, "vae", architecture)
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(tmp_path))
        started = [fleet.launch("decoder", model=tmp_path) for _ in SIDES]
        options = [part for decoder in started for part in ("--decoder", decoder.wait_ready())]
        encoder = stack.enter_context(EncoderClient(fleet.start("encoder", *options, model=tmp_path).address))
        decoders = [stack.enter_context(DecoderClient(decoder.address)) for decoder in started]
        session = encoder.session(seed=5, pool_size=256)
        assert (session.binning, session.bins, session.decoders) == (binning, 16, 2)
        for other in ("random", "modulo", "region"):
            assert encoder.session(seed=5, pool_size=256, binning=other).binning == other
        with refused("pool", "lattice", "iid, since the encoder's source is not Gaussian"):
            encoder.session(pool="lattice")
        assert_as_in_process(session, card, encoder, decoders, SOURCES, SIDES)
