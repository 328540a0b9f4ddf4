"""Pre-shared seeds: both ends and the source's owner hold the seed in a file, and only its digest travels."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

from decoder.client import DecoderClient
from experiments.coding import code_in_process
from shared_rng import Session
from shared_rng.session import seed_digest
from tests.integration.recorder import Recorder
from tests.integration.services import Fleet, gaussian_data, in_process_models, run_program

SEED, OTHER = 0x00112233445566778899AABBCCDDEEFF, 0xFFEEDDCCBBAA99887766554433221100
SOURCES, SIDES = gaussian_data(20, 1)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sources and two seeds, in files."""
    np.save(tmp_path / "sources.npy", SOURCES)
    (tmp_path / "seed.hex").write_text(f"{SEED:032x}\n")
    (tmp_path / "other.hex").write_text(f"{OTHER:032X}")
    return tmp_path


@contextmanager
def recorded(fleet: Fleet, encoder: list[str], decoder: list[str]) -> Iterator[tuple[Recorder, Recorder, str]]:
    """One decoder and an encoder with recorders before both: (to the encoder, to the decoder, decoder's address)."""
    with ExitStack() as stack:
        (service,) = fleet.decoders(SIDES, *decoder)
        to_decoder = stack.enter_context(Recorder(service.address))
        started = fleet.encoder([to_decoder.address], "--decoder-wait", "5", *encoder)
        yield stack.enter_context(Recorder(started.address)), to_decoder, service.address


def seed_file(folder: Path, name: str) -> list[str]:
    return ["--seed-file", str(folder / name)] if name else []


def traces(recorder: Recorder, seed: int) -> list[bool]:
    """Whether the seed went forward in bytes of either order or as text, and whether its digest did."""
    sent = bytes(recorder.forward)
    forms = [seed.to_bytes(16, "little"), seed.to_bytes(16, "big"), b"%032x" % seed, b"%032X" % seed]
    return [any(form in sent for form in forms), seed_digest(seed) in sent]


def expected_picks() -> list[int]:
    encoder, decoder = in_process_models()
    session = Session(
        seed=SEED,
        pool_size=1024,
        bins=16,
        decoders=1,
        model_digest=encoder.digest,
        pool_variance=encoder.pool_variance,
    )
    picks: list[int] = code_in_process(session, encoder, decoder, SOURCES, SIDES).decoder_picks[0].tolist()
    return picks


@pytest.mark.parametrize("shared", ["a file", "the wire"])
def test_seed_travels_only_when_it_is_not_shared(fleet: Fleet, folder: Path, shared: str) -> None:
    """With seed files at all three ends the digest alone is on the wire; the picks are those of the seed either way."""
    options = seed_file(folder, "seed.hex" if shared == "a file" else "")
    with recorded(fleet, options, options) as (to_encoder, to_decoder, address):
        given = options or ["--seed", f"{SEED:032x}"]
        done, _ = run_program("encoder", "send", "sources.npy", "--to", to_encoder.address, *given, cwd=folder)
        assert (done.returncode, done.stderr) == (0, "")
        assert [traces(to_encoder, SEED), traces(to_decoder, SEED)] == [[shared == "the wire", True]] * 2
        with DecoderClient(address) as reader:
            (status,) = reader.status().sessions
            picks, _ = reader.read(status.session_digest, len(SOURCES))
        assert picks.tolist() == expected_picks()
    for service in fleet.services:
        assert f"{SEED:032x}" not in service.log.read_text().lower()
    assert f"{SEED:032x}" not in done.stdout.lower()


DIGESTS = "seed_digest", seed_digest(SEED).hex(), seed_digest(OTHER).hex()
REFUSALS = [
    # Seed files of the encoder, the decoder and the owner; who refuses; what the refusal says.
    (
        "seed.hex",
        "other.hex",
        "seed.hex",
        "decoder",
        ("seed_digest", seed_digest(SEED).hex(), seed_digest(OTHER).hex()),
    ),
    ("seed.hex", "", "seed.hex", "decoder", ("seed: got no seed", "none was pre-shared with this service")),
    (
        "other.hex",
        "seed.hex",
        "seed.hex",
        "encoder",
        ("seed_digest", seed_digest(SEED).hex(), seed_digest(OTHER).hex()),
    ),
    ("", "seed.hex", "seed.hex", "encoder", ("seed: got no seed", "none was pre-shared with this service")),
]


@pytest.mark.parametrize(("encoder", "decoder", "owner", "refuser", "parts"), REFUSALS)
def test_seeds_that_differ(
    fleet: Fleet, folder: Path, encoder: str, decoder: str, owner: str, refuser: str, parts: tuple[str, ...]
) -> None:
    """Refused by the first end that holds another seed or none, by digest; with one decoder, nobody is left."""
    ends = seed_file(folder, encoder), seed_file(folder, decoder)
    with recorded(fleet, *ends) as (to_encoder, to_decoder, address):
        command = ["encoder", "send", "sources.npy", "--to", to_encoder.address, *seed_file(folder, owner)]
        done, _ = run_program(*command, cwd=folder)
        assert (done.returncode, done.stdout) == (3, "")
        assert len(done.stderr.splitlines()) == 1
        assert ("no decoder took the session" in done.stderr) == (refuser == "decoder")
        assert [part for part in ("FAILED_PRECONDITION", *parts) if part not in done.stderr] == [], done.stderr
        assert not traces(to_encoder, SEED)[0]
        assert not traces(to_decoder, SEED)[0]
        with DecoderClient(address) as reader:
            assert list(reader.status().sessions) == []


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--seed", "12"], "--seed: got 2 characters, expected 32 hexadecimal digits"),
        (["--seed", "g" * 32], "--seed: got 32 characters, expected 32 hexadecimal digits"),
        (["--seed", "0" * 32, "--seed-file", "seed.hex"], "seed: got --seed and --seed-file, expected one of them"),
        (["--seed-file", "sources.npy"], "seed file sources.npy: got "),
    ],
)
def test_bad_seeds_at_the_owner(folder: Path, options: list[str], part: str) -> None:
    """Found before anything is sent: nobody is at the address."""
    done, _ = run_program("encoder", "send", "sources.npy", "--to", "127.0.0.1:9", *options, cwd=folder)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith(f"error: {part}")
    assert len(done.stderr.splitlines()) == 1
