"""Encoder and decoder on unlike machines: other instruction sets, libraries' kernels, threads and float settings.

What a processor can do is taken from a process by the libraries' own variables. ``make test-oldest`` does the same with
the oldest libraries.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy._core._multiarray_umath import __cpu_dispatch__
from safetensors.numpy import load_file, save_file

from decoder import Decoder, load_decoder_model
from decoder.client import DecoderClient
from encoder import Encoder, load_encoder_model
from encoder.client import EncoderClient
from shared_rng import load_card
from shared_rng.card import weights_sha256
from tests.bits import CASES, Bits, bits_of
from tests.integration.services import WAIT_SECONDS, Fleet
from tests.models import uniforms, write_vae

MESSAGES = 280
"""A case: all cases and ends make more than 10,000 picks."""

PLAIN = {
    "ATEN_CPU_CAPABILITY": "default",
    "MKL_CBWR": "COMPATIBLE",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "NPY_DISABLE_CPU_FEATURES": " ".join(__cpu_dispatch__),
    "NUMBA_CPU_NAME": "generic",
    "NUMBA_CPU_FEATURES": "",
    "OMP_NUM_THREADS": "1",
}
"""A processor with nothing beyond what every library needs."""
MIDDLE = {
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_CBWR": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "NPY_DISABLE_CPU_FEATURES": " ".join(name for name in __cpu_dispatch__ if "512" in name or name == "X86_V4"),
    "OMP_NUM_THREADS": "4",
    "MKL_NUM_THREADS": "2",
}
"""A processor without wide vectors, and more threads than this machine may have."""


@pytest.fixture(scope="module")
def own() -> dict[str, Bits]:
    """What this process gets."""
    return {name: bits_of(make(MESSAGES)) for name, make in CASES.items()}


@pytest.mark.parametrize(
    ("variables", "capability", "options"),
    [(PLAIN, "DEFAULT", []), (MIDDLE, "AVX2", ["--float-settings"])],
    ids=["plain processor", "middle processor, float settings"],
)
def test_same_bits(
    tmp_path: Path, own: dict[str, Bits], variables: dict[str, str], capability: str, options: Sequence[str]
) -> None:
    """The same pools and message bytes, and at most one of 10,000 picks is another."""
    out = tmp_path / "bits.npz"
    command = [sys.executable, "-m", "tests.bits", str(out), "--messages", str(MESSAGES), *options]
    done = subprocess.run(command, env=os.environ | variables, capture_output=True, text=True, timeout=4 * WAIT_SECONDS)
    assert done.returncode == 0, done.stderr
    assert f" with {capability}," in done.stdout
    theirs = np.load(out)
    picks = different = 0
    for name, bits in own.items():
        assert theirs[f"{name}: digest"].tobytes() == bits.digest, name
        assert theirs[f"{name}: payload"].tobytes() == bits.payload, name
        picks += bits.picks.size
        different += int((theirs[f"{name}: picks"] != bits.picks).sum())
    assert picks >= 10_000
    assert different <= picks / 10_000


def test_services_on_unlike_processors(fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A plain encoder and an ordinary decoder agree on the session, and reconstruct what one process does.

    A decoder whose model differs by one weight, in its last bit, is refused.
    """
    card = write_vae(tmp_path)
    other = tmp_path / "other"
    other.mkdir()
    tensors = load_file(tmp_path / "weights.safetensors")
    weights = tensors["encoder.layers.0.weight"]
    weights[0, 0] = np.nextafter(weights[0, 0], np.float32(2))
    save_file(tensors, other / "weights.safetensors")
    text = json.loads((tmp_path / "card.json").read_text())
    text["weights"]["sha256"] = weights_sha256(other / "weights.safetensors")
    (other / "card.json").write_text(json.dumps(text))

    sources = 2.0 * uniforms(40 * 12, 5).reshape(40, 4, 3) - 1.0
    np.save(tmp_path / "side.npy", sources[:, :3, :2])
    options = ["--side-information", str(tmp_path / "side.npy")]
    decoders = [fleet.launch("decoder", *options, model=folder) for folder in (tmp_path, other)]
    with monkeypatch.context() as patch:
        for name, value in PLAIN.items():
            patch.setenv(name, value)
        addresses = [part for d in decoders for part in ("--decoder", d.wait_ready())]
        encoder = fleet.start("encoder", *addresses, model=tmp_path)
    with EncoderClient(encoder.address) as client, DecoderClient(decoders[0].address) as reader:
        session = client.session(pool_size=256, bins=16, decoders=2, seed=3)
        states = client.open(session).decoders
        assert [state.ready for state in states] == [True, False]
        assert f"model_digest: got {card.digest.hex()}, expected {load_card(other).digest.hex()}" in states[1].reason
        assert sum(answer.count for answer in client.encode(session, sources)) == len(sources)
        lags = [state.lag for state in client.await_delivery(session, len(sources))]
        assert lags == [0, len(sources)]
        picks, reconstructions = reader.read(session.digest, len(sources))
    batch = Encoder(session, load_encoder_model(card)).encode(sources)
    decoded = Decoder(session, 0, load_decoder_model(card)).decode(batch.payload, sources[:, :3, :2])
    assert picks.tolist() == decoded.picks.tolist()
    assert np.abs(reconstructions - decoded.reconstructions).max() < 1e-6
