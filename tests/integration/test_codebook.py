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
from experiments.coding import code_in_process
from shared_rng import Coupling
from tests.integration.services import Fleet
from tests.models import refused, uniforms, write_codebook

SOURCES = 20.0 * uniforms(30 * 12, 2).reshape(30, 4, 3) - 10.0
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
            encoder.open(session)
            for decoder, side in zip(decoders, SIDES, strict=False):
                decoder.put_side_information(session.digest, side)
            answers = list(encoder.encode(session, SOURCES, batch=7))
            here = code_in_process(session, load_encoder_model(card), load_decoder_model(card), SOURCES, SIDES)
            assert np.array_equal(np.concatenate([answer.picks for answer in answers]), here.encoder_picks)
            for k, decoder in enumerate(decoders[:3]):
                picks, reconstructions = decoder.read(session.digest, 30)
                assert np.array_equal(picks, here.decoder_picks[k])
                assert np.array_equal(reconstructions, here.reconstructions[k].astype(np.float32))
            encoder.close(session)
