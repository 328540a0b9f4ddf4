"""``encoder send``: sources from .npy, IDX and PNG files to running services, and the files that it refuses."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from decoder.client import DecoderClient
from decoder.model import load_decoder_model
from encoder.model import load_encoder_model
from experiments import images
from experiments.coding import code_in_process
from shared_rng import Session, find_model, load_card
from tests.integration.services import Fleet, run_program

DIGITS = images.bundled_digits(12)
SIDE = images.MNIST.side_information(DIGITS, 0)
SEED = 0x0F0E0D0C0B0A09080706050403020100


class World:
    """Services of the image model with one decoder, and a folder for source files."""

    def __init__(self, encoder: str, reader: DecoderClient, folder: Path) -> None:
        self.encoder = encoder
        self.reader = reader
        self.folder = folder

    def send(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of ``encoder send``."""
        done, _ = run_program("encoder", "send", *arguments, "--to", self.encoder, cwd=self.folder)
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(tmp_path_factory.mktemp("send")))
        path = fleet.folder / "side.npy"
        np.save(path, np.tile(SIDE, (2, 1, 1)))
        decoder = fleet.launch("decoder", "--side-information", str(path), model="mnist")
        encoder = fleet.launch("encoder", "--decoder", decoder.wait_ready(), model="mnist")
        reader = stack.enter_context(DecoderClient(decoder.address))
        yield World(encoder.wait_ready(), reader, fleet.folder)


def idx(pixels: npt.NDArray[np.uint8]) -> bytes:
    return b"\0\0\x08\x03" + np.array(pixels.shape, dtype=">u4").tobytes() + pixels.tobytes()


def write_idx(folder: Path) -> list[str]:
    (folder / "digits-idx3-ubyte").write_bytes(idx(DIGITS))
    return ["digits-idx3-ubyte"]


def write_gzip(folder: Path) -> list[str]:
    (folder / "digits.gz").write_bytes(gzip.compress(idx(DIGITS)))
    return ["digits.gz"]


def write_halves(folder: Path) -> list[str]:
    """Samples of the source's own shape, in [-1, 1]."""
    np.save(folder / "halves.npy", images.MNIST.sources(DIGITS))
    return ["halves.npy"]


def write_pngs(folder: Path) -> list[str]:
    """Whole digits; the encoder's half is cut out. One of them has three channels."""
    for number, digit in enumerate(DIGITS):
        image = Image.fromarray(digit)
        (image.convert("RGB") if number == 5 else image).save(folder / f"{number:02d}.png")
    return [f"{number:02d}.png" for number in range(len(DIGITS))]


def write_mixture(folder: Path) -> list[str]:
    """Files of all kinds, in the order of the command line."""
    np.save(folder / "first.npy", DIGITS[:3])
    (folder / "second").write_bytes(idx(DIGITS[3:11]))
    Image.fromarray(DIGITS[11][:, 14:]).save(folder / "third.png")
    return ["first.npy", "second", "third.png"]


WRITERS = [write_idx, write_gzip, write_halves, write_pngs, write_mixture]


@pytest.mark.parametrize("write", WRITERS)
def test_files_of_all_kinds(world: World, write: Callable[[Path], list[str]]) -> None:
    """Whatever holds the digits, the messages are those of both ends in one process."""
    seed = f"{SEED + WRITERS.index(write):032x}"
    options = ["--bins", "8", "--pool-size", "128", "--seed", seed, "--batch", "5"]
    code, output, errors = world.send(*write(world.folder), *options)
    assert (code, errors) == (0, "")
    lines = output.splitlines()
    opened = re.fullmatch(r"session ([0-9a-f]{64}), 12 messages from 0 on", lines[0])
    assert opened
    # Batches of 5, 5 and 2 messages of 3 bits.
    assert lines[1] == "gaussian pool of 128 candidates"
    assert lines[2] == "12 messages of 3 bits, 5 payload bytes"
    assert re.fullmatch(r"decoder 0 at 127\.0\.0\.1:\d+: 12 acknowledged", lines[3])
    picks, reconstructions = world.reader.read(bytes.fromhex(opened[1]), 12)

    card = load_card(find_model("mnist"))
    ends = load_encoder_model(card), load_decoder_model(card)
    session = Session(
        seed=int(seed, 16),
        pool_size=128,
        bins=8,
        decoders=1,
        model_digest=card.digest,
        latent_dimension=ends[0].latent_dimension,
    )
    assert session.digest.hex() == opened[1]
    expected = code_in_process(session, *ends, images.MNIST.sources(DIGITS), [SIDE])
    assert picks.tolist() == expected.decoder_picks[0].tolist()
    assert np.array_equal(reconstructions, expected.reconstructions[0].astype(np.float32))


def test_sent_again_goes_on(world: World) -> None:
    """The same session takes further sources under further numbers."""
    (name,) = write_halves(world.folder)
    first, second = (world.send(name, "--seed", "a" * 32) for _ in range(2))
    assert first[0] == second[0] == 0
    assert "12 messages from 0 on" in first[1]
    assert "12 messages from 12 on" in second[1]


REFUSED: dict[str, tuple[Callable[[Path], object], tuple[str, ...]]] = {
    "absent.npy": (lambda path: None, ("source file: got absent.npy", "existing")),
    "text.npy": (lambda path: path.write_text("x"), ("text.npy: got ", ".npy file")),
    "unknown.bin": (lambda path: path.write_bytes(b"xyz"), ("unknown.bin: got an unknown kind of file", "IDX")),
    "cut-idx3": (lambda path: path.write_bytes(idx(DIGITS)[:-1]), ("cut-idx3: got 9423 bytes", "9424 bytes")),
    "cut.gz": (lambda path: path.write_bytes(gzip.compress(idx(DIGITS))[:-9]), ("cut.gz: got ", "complete gzip")),
    "shape.npy": (lambda path: np.save(path, np.zeros((2, 3, 4))), ("shape.npy: got ", "(3, 4)", "(28, 14)")),
    "integers.npy": (
        lambda path: np.save(path, np.zeros((2, 28, 14), dtype=np.int32)), ("dtype int32", "float32, float64"),
    ),
    "half.npy": (
        lambda path: np.save(path, np.zeros((2, 28, 14), dtype=np.float16)), ("dtype float16", "float32"),
    ),
    "nan.npy": (
        lambda path: np.save(path, np.full((2, 28, 14), np.nan)), ("sources, row 0 (message 0)", "NaN", "finite"),
    ),
    "range.npy": (
        lambda path: np.save(path, np.full((2, 28, 14), 255.0)),
        ("sources, row 0 (message 0), pixel (0, 0): got 255.0", "pixels in [-1, 1]"),
    ),
    "colour.png": (
        lambda path: Image.new("RGB", (28, 28), (255, 0, 0)).save(path), ("colour.png: got a colour image", "grey"),
    ),
    "small.png": (lambda path: Image.new("L", (10, 10)).save(path), ("small.png: got ", "(10, 10)", "(28, 14)")),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_files(world: World, name: str) -> None:
    """Exit code 3 and one line that names the file, what came and what was expected."""
    write, parts = REFUSED[name]
    write(world.folder / name)
    code, _, errors = world.send(name)
    assert (code, len(errors.splitlines())) == (3, 1), errors
    assert errors.startswith("error: ")
    assert [part for part in parts if part not in errors] == [], errors


@pytest.mark.parametrize(
    ("options", "part"),
    [
        (["--bins", "12"], "bins: got 12, expected a power of two"),
        (["--decoders", "2"], "decoders: got 2, expected at most 1, those of this encoder"),
        (["--decoders", "0"], "decoders: got 0, expected an integer in 1"),
        (["--pool-size", "8"], "bins: got 16, expected at most pool_size, 8"),
    ],
)
def test_refused_sessions(world: World, options: list[str], part: str) -> None:
    (name,) = write_halves(world.folder)
    code, _, errors = world.send(name, *options)
    assert (code, len(errors.splitlines())) == (3, 1), errors
    assert part in errors
