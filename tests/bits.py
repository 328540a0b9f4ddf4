"""Sessions of every kind with fixed models and inputs, and the bits that follow: for golden files and other machines.

``python -m tests.bits OUT.npz [--float-settings]`` writes them from a process of its own; ``python -m tests.bits
tests/golden/messages.json`` writes the golden file.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import operator
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.numpy import save_file

from decoder import Decoder, DecoderModel, load_decoder_model
from encoder import Encoder, EncoderModel, load_encoder_model
from experiments import images
from networks import codebook, vae
from shared_rng import ModelCard, Session, find_model, load_card
from shared_rng.lattice import lattice_for
from tests.models import SEED, Floats, uniforms

GOLDEN = Path(__file__).parent / "golden" / "messages.json"
GOLDEN_MESSAGES = 24

_SIZES = {"latent_dimension": 2, "source_height": 6, "source_width": 5, "side_height": 4, "side_width": 4,
          "encoder_hidden": 20, "decoder_hidden": 18}  # fmt: skip
ESTIMATOR = _SIZES | {"side_features": 14, "estimator_hidden": 16}
MIXTURE = _SIZES | {
    "weights_head": "mixture",
    "side_features": 14,
    "fusion_hidden": 12,
    "mixture_components": 3,
    "mixture_hidden": 10,
}
WORDS = _SIZES | {"latent_dimension": 1, "decoder_width": 16, "bins": 8}


@dataclass(frozen=True)
class Case:
    """One session and its inputs.

    Attributes:
        session: the session.
        encoder_model: the encoder's half.
        decoder_model: the decoder's half.
        sources: [B, *source_shape].
        sides: [K, B, *side_shape].
        search: nodes of a searching encoder, or 0.
        same_digest: whether the model's digest, and so the session's, is the same with every library: weights that
            ship are, those that are written for a test are not.
    """

    session: Session
    encoder_model: EncoderModel
    decoder_model: DecoderModel
    sources: npt.NDArray[np.floating]
    sides: npt.NDArray[np.floating]
    search: int = 0
    same_digest: bool = True


def write_model(folder: Path, source: str, architecture: dict[str, Any]) -> ModelCard:
    """A model folder of an image source with fixed weights, in which every layer's outputs are of order one."""
    untrained = ModelCard(source, architecture, {}, None, bytes(32))
    halves = {
        "vae": (vae.encoder_from_card, vae.decoder_from_card),
        "codebook": (codebook.encoder_from_card, codebook.decoder_from_card),
    }
    tensors = {}
    for half, (prefix, network) in enumerate(zip(("encoder.", "decoder."), halves[source], strict=True)):
        for place, (name, tensor) in enumerate(network(untrained).state_dict().items()):
            shape = tuple(tensor.shape)
            scale = 4.0 / np.sqrt(np.prod(shape[1:])) if len(shape) > 1 else 1.0
            values = (uniforms(int(np.prod(shape)), 1000 * half + place) - 0.5) * scale
            tensors[prefix + name] = values.reshape(shape).astype(np.float32)
    weights = folder / "weights.safetensors"
    save_file(tensors, weights)
    sha256 = hashlib.sha256(weights.read_bytes()).hexdigest()
    card = {"source": source, "architecture": architecture, "weights": {"file": weights.name, "sha256": sha256}}
    (folder / "card.json").write_text(json.dumps(card), encoding="utf-8")
    return load_card(folder)


def bell(count: int, seed: int) -> Floats:
    """Numbers of mean 0 and variance 1 by twelve additions, which round alike everywhere: [count]."""
    return np.asarray(functools.reduce(operator.add, uniforms(12 * count, seed).reshape(12, count)) - 6.0)


def _gaussian(count: int, search: int = 0, **changes: Any) -> Case:
    card = load_card(find_model("gaussian"))
    encoder_model = load_encoder_model(card)
    fields: dict[str, Any] = {"bins": 16, "decoders": 2, "pool_size": 256, "pool_variance": encoder_model.pool_variance}
    if changes.get("pool_kind") == "lattice":
        lattice = lattice_for(2, 16, 1.0, 0.5)
        fields |= {"pool_size": lattice.pool_size, "cell_width": lattice.cell_width, "pool_variance": 1.0}
    session = Session(seed=SEED, model_digest=card.digest, **(fields | changes))
    sources = bell(count, 21)
    sides = np.stack([sources + 0.75 * bell(count, 22 + k) for k in range(session.decoders)])
    return Case(session, encoder_model, load_decoder_model(card), sources, sides, search)


def _digits(count: int, **changes: Any) -> Case:
    card = load_card(find_model("mnist"))
    fields: dict[str, Any] = {"bins": 16, "decoders": 2, "pool_size": 256, "latent_dimension": 4}
    session = Session(seed=SEED, model_digest=card.digest, **(fields | changes))
    digits = images.bundled_digits(count)
    sides = np.stack([images.MNIST.side_information(digits, k) for k in range(session.decoders)])
    return Case(session, load_encoder_model(card), load_decoder_model(card), images.MNIST.sources(digits), sides)


def _images(count: int, source: str, architecture: dict[str, Any], **changes: Any) -> Case:
    with tempfile.TemporaryDirectory(prefix="gumbelcast-") as folder:
        card = write_model(Path(folder), source, architecture)
        encoder_model, decoder_model = load_encoder_model(card), load_decoder_model(card)
    fields: dict[str, Any] = {"bins": 8, "decoders": 2, "pool_size": 64, "latent_dimension": 2}
    session = Session(seed=SEED, model_digest=card.digest, **(fields | changes))
    sources = 2.0 * uniforms(count * 30, 31).reshape(count, 6, 5) - 1.0
    sides = np.stack([sources[:, k : k + 4, :4] for k in range(session.decoders)])
    return Case(session, encoder_model, decoder_model, sources, sides, same_digest=False)


def _words(count: int, coupling: str, **changes: Any) -> Case:
    words = 16 if coupling == "list" else 64
    fields = {"pool_kind": "discrete", "pool_size": words, "latent_dimension": 1, "coupling": coupling} | changes
    return _images(count, "codebook", WORDS | {"coupling": coupling, "words": words}, **fields)


CASES: dict[str, Callable[[int], Case]] = {
    "gaussian, by index": _gaussian,
    "gaussian, by index, modulo": lambda n: _gaussian(n, binning="modulo"),
    "gaussian, by index, baseline": lambda n: _gaussian(n, coupling="baseline"),
    "gaussian, by arrival": lambda n: _gaussian(n, race_order="arrival", pool_size=2**15),
    "gaussian, by arrival, short": lambda n: _gaussian(n, race_order="arrival", pool_size=1024, coupling="baseline"),
    "gaussian, by arrival, modulo": lambda n: _gaussian(n, race_order="arrival", binning="modulo"),
    "lattice": lambda n: _gaussian(n, pool_kind="lattice"),
    "lattice, baseline": lambda n: _gaussian(n, pool_kind="lattice", coupling="baseline"),
    "lattice, searched": lambda n: _gaussian(min(n, 100), search=8, pool_kind="lattice"),
    "digits": _digits,
    "digits, baseline": lambda n: _digits(n, coupling="baseline"),
    "digits, regions": lambda n: _digits(n, binning="region"),
    "images, estimator": lambda n: _images(n, "vae", ESTIMATOR),
    "images, mixture": lambda n: _images(n, "vae", MIXTURE),
    "images, convolutional": lambda n: _images(n, "vae", ESTIMATOR | {"network": "convolutional"}),
    "words": lambda n: _words(n, "gls"),
    "words, list": lambda n: _words(n, "list"),
}
"""By name: from a number of messages, at most 1,000, to a case."""


@dataclass(frozen=True)
class Bits:
    """What follows from a case.

    Attributes:
        digest: the session's, which has pool blocks in it; where the model's is another with every library, the digest
            of the same session with a model digest of zeros.
        payload: the packed messages.
        picks: int64 [1 + K, B], Y and X^(1) … X^(K).
    """

    digest: bytes
    payload: bytes
    picks: npt.NDArray[np.int64]


def bits_of(case: Case) -> Bits:
    """Encode and decode."""
    batch = Encoder(case.session, case.encoder_model, case.search).encode(case.sources)
    decoders = [Decoder(case.session, k, case.decoder_model) for k in range(case.session.decoders)]
    decoded = [d.decode(batch.payload, side) for d, side in zip(decoders, case.sides, strict=True)]
    return Bits(_digest(case), batch.payload, np.stack([batch.picks, *(each.picks for each in decoded)]))


def _digest(case: Case) -> bytes:
    if case.same_digest:
        return case.session.digest
    fields = {name: getattr(case.session, name) for name in Session.__dataclass_fields__}
    return Session(**(fields | {"model_digest": bytes(32)})).digest


def disturb_float_settings() -> None:
    """What a host program may have set before it uses this library; none of it may show."""
    torch.set_flush_denormal(True)
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    torch.set_num_threads(3)
    torch.backends.mkldnn.enabled = False
    np.seterr(all="ignore")


def _write_golden(path: Path) -> None:
    golden = {}
    for name, make in CASES.items():
        bits = bits_of(make(GOLDEN_MESSAGES))
        picks = [" ".join(map(str, row)) for row in bits.picks.tolist()]
        golden[name] = {"digest": bits.digest.hex(), "payload": bits.payload.hex(), "picks": picks}
    path.write_text(json.dumps(golden, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Entry point."""
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--float-settings", action="store_true")
    options = parser.parse_args()
    if options.out.suffix == ".json":
        _write_golden(options.out)
        return
    if options.float_settings:
        disturb_float_settings()
    arrays: dict[str, npt.NDArray[Any]] = {}
    for name, make in CASES.items():
        bits = bits_of(make(options.messages))
        arrays[f"{name}: digest"] = np.frombuffer(bits.digest, dtype=np.uint8)
        arrays[f"{name}: payload"] = np.frombuffer(bits.payload, dtype=np.uint8)
        arrays[f"{name}: picks"] = bits.picks
    np.savez(options.out, **arrays)
    print(f"torch {torch.__version__} with {torch.backends.cpu.get_cpu_capability()}, numpy {np.__version__}")


if __name__ == "__main__":
    main()
