"""Options that the service programs refuse: one line that names what is wrong, and a numbered exit code."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import numpy as np
import pytest

from shared_rng.card import weights_sha256
from tests.integration.services import Fleet, end, run_program
from tests.models import write_vae

OPTIONS = {"encoder": ["--decoder", "127.0.0.1:9"], "decoder": []}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with bad inputs."""
    folder = tmp_path_factory.mktemp("inputs")
    (folder / "short.hex").write_text("0123456789abcdef")
    (folder / "other.hex").write_text("x" * 32)
    (folder / "text.npy").write_text("no array")
    (folder / "file").touch()
    np.save(folder / "table.npy", np.zeros((3, 2)))
    np.save(folder / "integers.npy", np.zeros(3, dtype=np.int64))
    (folder / "empty").mkdir()
    for name in ("damaged", "other"):
        (folder / name).mkdir()
    write_vae(folder / "other", architecture={"encoder_hidden": 11})
    write_vae(folder / "damaged")
    weights = folder / "damaged" / "weights.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    card = json.loads((folder / "damaged" / "card.json").read_text())
    card["weights"]["sha256"] = weights_sha256(weights)
    (folder / "damaged" / "card.json").write_text(json.dumps(card))
    return folder


BOTH: list[tuple[list[str], int, tuple[str, ...]]] = [
    (["--model", "nobody"], 3, ("model: got 'nobody'", "gaussian, mnist")),
    (["--model", "empty"], 3, ("model: got empty without card.json",)),
    (["--seed-file", "short.hex"], 3, ("seed file short.hex: got 16 characters", "32 hexadecimal digits")),
    (["--seed-file", "other.hex"], 3, ("seed file other.hex: got ", "32 hexadecimal digits")),
    (["--seed-file", "nowhere"], 3, ("No such file", "nowhere")),
    (["--bind", "0.0.0.0:0"], 3, ("--bind: got 0.0.0.0:0 for plain text", "--tls-cert", "--insecure")),
    (["--insecure", "--tls-ca", "text.npy"], 3, ("--insecure: got certificate options with it",)),
    (["--tls-cert", "text.npy", "--tls-key", "text.npy"], 3, ("--tls-cert text.npy, --tls-key text.npy: got ", "PEM")),
    (["--bind", "127.0.0.1:TAKEN"], 4, ("cannot bind 127.0.0.1:TAKEN",)),
]
DECODER: list[tuple[list[str], int, tuple[str, ...]]] = [
    (["--side-information", "nowhere.npy"], 3, ("side information: got no file nowhere.npy",)),
    (["--side-information", "table.npy"], 3, ("table.npy: got shape (3, 2)", "shape (B,)")),
    (["--side-information", "integers.npy"], 3, ("integers.npy: got dtype int64", "float64")),
    (["--side-information", "text.npy"], 3, ("text.npy: got ",)),
    (["--model", "damaged"], 3, ("card weights.file: got weights.safetensors: ", "a complete file of safetensors")),
    (["--out", "file"], 3, ("File exists", "file")),
]


ENCODER: list[tuple[list[str], int, tuple[str, ...]]] = [
    (["--model", "other"], 3, ("card architecture.encoder_hidden: got 11", "10, as the weights have")),
    (["--model", "mnist", "--search", "4"], 3, ("--search: got 4 without --search-images", "--search-images with")),
    (["--search", "4", "--search-images", "table.npy"], 3, ("--search-images: got table.npy with a gaussian model",)),
    (["--model", "mnist", "--search", "4", "--search-images", "table.npy"], 3, ("table.npy: got float64 [3, 2]",)),
    (["--allow-client", "camera"], 3, ("--allow-client: got names without certificates", "--tls-ca")),
    (["--decoder", "192.0.2.1:7001"], 3, ("--decoder: got 192.0.2.1:7001 for plain text", "--insecure")),
]


@pytest.mark.parametrize(
    ("program", "options", "code", "parts"),
    [("encoder", *case) for case in BOTH + ENCODER] + [("decoder", *case) for case in BOTH + DECODER],
)
def test_refused_options(files: Path, program: str, options: list[str], code: int, parts: tuple[str, ...]) -> None:
    """One line that names what is wrong, the documented exit code, and nothing on standard output."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        options = [option.replace("TAKEN", port) for option in options]
        command = [program, "serve", "--model", "gaussian", *OPTIONS[program], *options]
        done, survivors = run_program(*command, cwd=files)
    assert (done.returncode, done.stdout, survivors) == (code, "", [])
    assert done.stderr.startswith("error: "), done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert [part for part in parts if part.replace("TAKEN", port) not in done.stderr] == [], done.stderr


def test_encoder_without_decoders(tmp_path: Path) -> None:
    done, _ = run_program("encoder", "serve", "--model", "gaussian", cwd=tmp_path)
    assert done.returncode == 2
    assert "Missing option '--decoder'" in done.stderr


def test_two_services_never_share_a_port(fleet: Fleet) -> None:
    """Without a word, two servers would take turns."""
    first = fleet.start("decoder")
    done, _ = run_program("decoder", "serve", "--model", "gaussian", "--bind", first.address, cwd=fleet.folder)
    assert done.returncode == 4
    assert end(first) == 0
