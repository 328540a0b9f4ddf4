"""Real numbers from a file through the deployed programs: estimate, serve, send, and what the decoders keep."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from decoder.client import DecoderClient
from decoder.gaussian import GaussianDecoderModel
from encoder.client import EncoderClient
from encoder.gaussian import GaussianEncoderModel
from experiments.coding import code_in_process
from experiments.gaussian import draw
from gumbelcast.program import EXIT_INPUT
from shared_rng import find_model, load_card
from shared_rng.lattice import lattice_for
from tests.integration.services import Fleet, Floats, run_program
from tests.models import refused

SEED = "000102030405060708090a0b0c0d0e0f"
SCALE = 20.0
"""The readings' unit: a source of variance 400, side information with noise of variance 200."""
READINGS = 1000
ESTIMATE = "encoder", "estimate"


def scaled(count: int = READINGS) -> tuple[Floats, list[Floats]]:
    """Sources and side information of two sensors in the readings' unit."""
    sources, sides = draw(3, count, 2)
    return SCALE * sources, [SCALE * side for side in sides]


def write(folder: Path, **arrays: npt.NDArray[Any]) -> list[str]:
    """One file an array; returns their paths."""
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return [str(folder / f"{name}.npy") for name in arrays]


def test_estimate_serve_send(tmp_path: Path, fleet: Fleet) -> None:
    """The whole way by hand: the options that a sample gives, both services with them, and a stream of readings."""
    sources, sides = scaled()
    readings, first, second = write(tmp_path, readings=sources, first=sides[0], second=sides[1])
    done, _ = run_program(*ESTIMATE, readings, "--side-information", first, "--side-information", second, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    options = shlex.split(done.stdout)
    values = dict(zip(options[::2], map(float, options[1::2]), strict=True))
    assert list(values) == ["--prior-variance", "--noise-variance", "--side-variance"]
    # A variance from 1,000 numbers is off by 4.5 % (one standard error); the mean of two by 3.2 %.
    assert values["--prior-variance"] == pytest.approx(SCALE**2, rel=0.18)
    assert values["--prior-variance"] == pytest.approx(sources.var(ddof=1), rel=1e-5)
    assert values["--noise-variance"] == pytest.approx(0.003 * values["--prior-variance"], rel=1e-5)
    assert values["--side-variance"] == pytest.approx(SCALE**2 / 2, rel=0.13)
    noises = [side - sources for side in sides]
    assert values["--side-variance"] == pytest.approx(np.mean([n.var(ddof=1) for n in noises]), rel=1e-5)
    assert [line.split(":")[0] for line in done.stderr.splitlines()] == [first, second]

    decoders = fleet.decoders(sides, *options)
    encoder = fleet.encoder(decoders, *options)
    done, _ = run_program(
        "encoder", "send", readings, "--to", encoder.address, "--bins", "16", "--seed", SEED, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    lattice = lattice_for(2, 16, values["--prior-variance"], values["--side-variance"])
    assert f"lattice pool of {lattice.pool_size} candidates" in done.stdout
    assert f"{READINGS} messages of 4 bits, {READINGS // 2} payload bytes" in done.stdout

    card = load_card(find_model("gaussian")).with_variances(
        **{name[2:].replace("-", "_"): value for name, value in values.items()}
    )
    with EncoderClient(encoder.address) as client:
        session = client.session(bins=16, decoders=2, seed=int(SEED, 16))
        assert (session.pool_kind, session.cell_width) == ("lattice", lattice.cell_width)
        assert session.model_digest == card.digest
    models = GaussianEncoderModel.from_card(card), GaussianDecoderModel.from_card(card)
    expected = code_in_process(session, *models, sources, sides)
    found = []
    for k, decoder in enumerate(decoders):
        with DecoderClient(decoder.address) as reader:
            picks, reconstructions = reader.read(session.digest, READINGS)
        assert np.array_equal(picks, expected.decoder_picks[k])
        assert np.array_equal(reconstructions, expected.reconstructions[k].astype(np.float32))
        found.append(reconstructions)
    # The recipe at K = 2 and four bits has -28.5 dB of the source's variance; -20 is far from any other scheme.
    error = np.square(np.stack(found) - sources).min(axis=0).mean()
    assert 10 * np.log10(error / SCALE**2) < -20


def test_pools(tmp_path: Path, fleet: Fleet) -> None:
    """A lattice by default, the paper's pool when it is asked for, and no N for a lattice."""
    sources, sides = draw(3, 50, 1)
    (readings,) = write(tmp_path, readings=sources)
    encoder = fleet.encoder(fleet.decoders(sides))

    def send(*options: str) -> tuple[int, str]:
        arguments = ["encoder", "send", readings, "--to", encoder.address, *options]
        done, _ = run_program(*arguments, cwd=tmp_path)
        return done.returncode, done.stdout + done.stderr

    for options, pool in (
        ([], "lattice pool of "),
        (["--pool", "lattice"], "lattice pool of "),
        (["--pool", "iid"], "gaussian pool of 32768 "),
        (["--pool", "iid", "--pool-size", "100"], "gaussian pool of 100 "),
    ):
        code, output = send(*options)
        assert (code, pool in output) == (0, True), output
        assert "50 acknowledged" in output
    code, output = send("--pool-size", "100")
    assert (code, "pool_size: got 100 for a lattice" in output) == (EXIT_INPUT, True), output
    for bins in ("0", "3"):
        code, output = send("--bins", bins)
        assert (code, f"bins: got {bins}, expected" in output) == (EXIT_INPUT, True), output
    with EncoderClient(encoder.address) as client:
        assert client.session(bins=4, decoders=1, pool="iid").race_order == "arrival"
        with refused("decoders", "0", "at least 1"):
            client.session(bins=4, decoders=0)


def test_images_have_no_lattice(tmp_path: Path, fleet: Fleet) -> None:
    """The image model keeps its pool, and says so when a lattice or a variance is asked of it."""
    decoder = fleet.start("decoder", model="mnist")
    encoder = fleet.start("encoder", "--decoder", decoder.address, model="mnist")
    with EncoderClient(encoder.address) as client:
        session = client.session(bins=4, decoders=1)
        assert (session.pool_kind, session.pool_size, session.race_order) == ("gaussian", 1024, "index")
        assert session == client.session(bins=4, decoders=1, pool="iid", seed=session.seed)
        with refused("pool", "lattice", "not Gaussian"):
            client.session(bins=4, decoders=1, pool="lattice")
    for program in (["encoder", "serve", "--decoder", decoder.address], ["decoder", "serve"]):
        done, _ = run_program(*program, "--model", "mnist", "--side-variance", "0.5", cwd=tmp_path)
        assert done.returncode == EXIT_INPUT
        assert done.stderr == (
            "error: side_variance: got given for a vae source, expected a model of a gaussian source\n"
        )


def test_ends_with_other_variances(tmp_path: Path, fleet: Fleet) -> None:
    """Variances are part of the model: an end that was started with others refuses the session by name."""
    sources, sides = draw(3, 5, 1)
    (readings,) = write(tmp_path, readings=sources)
    (decoder,) = fleet.decoders(sides, "--prior-variance", "1", "--side-variance", "0.25")
    encoder = fleet.encoder([decoder], "--prior-variance", "1", "--side-variance", "0.26")
    done, _ = run_program("encoder", "send", readings, "--to", encoder.address, cwd=tmp_path)
    assert done.returncode == EXIT_INPUT
    assert "model_digest: got" in done.stderr


@pytest.mark.parametrize("program", ["encoder", "decoder"])
@pytest.mark.parametrize("name", ["prior-variance", "noise-variance", "side-variance"])
def test_bad_variance(tmp_path: Path, program: str, name: str) -> None:
    arguments = ["--decoder", "127.0.0.1:1"] if program == "encoder" else []
    done, _ = run_program(program, "serve", "--model", "gaussian", f"--{name}", "-1", *arguments, cwd=tmp_path)
    assert done.returncode == EXIT_INPUT
    assert f"{name.replace('-', '_')}: got -1.0, expected a" in done.stderr


def test_estimate_without_side_information(tmp_path: Path) -> None:
    """What is not known is not printed: no option for the side information."""
    sources, _ = scaled(100)
    done, _ = run_program(*ESTIMATE, *write(tmp_path, readings=sources), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert shlex.split(done.stdout)[::2] == ["--prior-variance", "--noise-variance"]
    assert "not estimated" in done.stderr


A, T = scaled(100)[0], scaled(100)[1][0]
REFUSED = {
    "far from zero": (A + 10 * SCALE, T, "readings: got mean"),
    "a little off zero": (A + SCALE, T, "readings: got mean"),
    "an offset at one end": (A, T + SCALE, "less readings: got mean"),
    "constant": (np.full(100, 3.0), T, "readings: got 100 times 3, expected values that vary"),
    "the source itself": (A, A, "less readings: got 100 times 0, expected values that vary"),
    "one reading": (A[:1], T[:1], "readings: got 1, expected at least 2"),
    "other lengths": (A, T[:99], "got 99 rows, expected one a reading, 100"),
    "no numbers": (np.where(np.arange(100) == 7, np.nan, A), T, "readings, row 7 (message 7): got NaN"),
    "rows": (A.reshape(50, 2), T, "got samples of shape (2,), expected samples of shape ()"),
    "integers": (A.astype(np.int64), T, "got dtype int64"),
}


@pytest.mark.parametrize(("readings", "side", "reason"), REFUSED.values(), ids=REFUSED)
def test_estimate_refuses(tmp_path: Path, readings: Floats, side: Floats, reason: str) -> None:
    """A sample that the model cannot stand for: nothing on standard output, and what is wrong on standard error."""
    first, second = write(tmp_path, readings=readings, side=side)
    done, _ = run_program(*ESTIMATE, first, "--side-information", second, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (EXIT_INPUT, "")
    assert reason in done.stderr
