"""Options from a file and the environment: which one holds, what is refused, and that no secret is shown."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import decoder.__main__
import encoder.__main__
from tests.integration.services import Fleet, end, gaussian_data, run_program

APPS = {"encoder": encoder.__main__.app, "decoder": decoder.__main__.app}
SEED = "00112233445566778899aabbccddeeff"


def shown(program: str, *arguments: str, **environment: str) -> tuple[dict[str, object], str]:
    """What ``--print-config`` says holds, and its text."""
    result = CliRunner().invoke(APPS[program], ["serve", *arguments, "--print-config"], env=environment)
    assert result.exit_code == 0, result.output
    return tomllib.loads(result.output), result.output


def test_which_one_holds(tmp_path: Path) -> None:
    """The command line before the environment before the file before the default; each with where it came from."""
    file = tmp_path / "encoder.toml"
    file.write_text('decoder = ["a:1", "b:2"]\ndecoder-wait = 5\nbind = "x:1"\nmodel = "gaussian"\nsearch = 3\n')
    values, text = shown(
        "encoder", "--config", str(file), "--search", "7", GUMBELCAST_BIND="127.0.0.1:9", GUMBELCAST_SEARCH="5"
    )
    assert values == {
        "decoder": ["a:1", "b:2"],
        "model": "gaussian",
        "bind": "127.0.0.1:9",
        "decoder_wait": 5.0,
        "search": 7,
        "insecure": False,
        "log_level": "info",
        "log_format": "text",
    } | {name: value for name, value in values.items() if name.startswith(("metrics", "journal"))}
    lines = text.splitlines()
    assert f'model = "gaussian"  # {file}' in lines
    assert 'bind = "127.0.0.1:9"  # GUMBELCAST_BIND' in lines
    assert "search = 7  # command line" in lines
    assert "insecure = false  # default" in lines
    assert "# tls_cert is not set" in lines
    # What is shown can be a file again.
    file.write_text(text)
    assert shown("encoder", "--config", str(file))[0] == values


def test_lists_and_file_from_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "decoder.toml"
    file.write_text('out = "elsewhere"\n')
    values, _ = shown(
        "decoder", GUMBELCAST_CONFIG=str(file), GUMBELCAST_ALLOW_READER="one two", GUMBELCAST_INSECURE="true"
    )
    assert (values["out"], values["allow_reader"], values["insecure"]) == ("elsewhere", ["one", "two"], True)


@pytest.mark.parametrize("program", ["encoder", "decoder"])
def test_the_seed_is_masked(program: str) -> None:
    _, text = shown(program, *(["--decoder", "a:1"] if program == "encoder" else []), GUMBELCAST_SEED=SEED)
    assert SEED not in text
    assert "# the seed is ***, from GUMBELCAST_SEED" in text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("decoderwait = 5\nbnd = 3\n", "got bnd, decoderwait, expected some of allow_client, bind, decoder, "),
        ("config = 'x'\n", "got config, expected some of"),
        ("[bind]\nhost = 'x'\n", "bind: got a table, expected a value"),
        ("bind = \n", "expected TOML"),
        (None, "No such file"),
    ],
)
def test_files_that_are_refused(tmp_path: Path, text: str | None, expected: str) -> None:
    file = tmp_path / "c.toml"
    if text is not None:
        file.write_text(text)
    result = CliRunner().invoke(APPS["encoder"], ["serve", "--config", str(file), "--decoder", "127.0.0.1:9"])
    assert (result.exit_code, result.stdout) == (3, "")
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("error: ")
    assert expected in result.stderr


def test_a_value_of_another_type(tmp_path: Path) -> None:
    file = tmp_path / "c.toml"
    file.write_text('decoder = ["127.0.0.1:9"]\ndecoder-wait = "long"\n')
    result = CliRunner().invoke(APPS["encoder"], ["serve", "--config", str(file)])
    assert result.exit_code == 2
    assert "Invalid value for '--decoder-wait'" in result.stderr


def test_services_from_files_with_a_seed_from_the_environment(
    fleet: Fleet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A whole deployment: options from files, JSON logs, and the seed on no line that anybody writes."""
    sources, sides = gaussian_data(4, 1)
    np.save(tmp_path / "t.npy", sides[0])
    np.save(tmp_path / "a.npy", sources)
    monkeypatch.setenv("GUMBELCAST_SEED", SEED)
    common = 'model = "gaussian"\nlog-format = "json"\nlog-level = "debug"\n'
    (tmp_path / "decoder.toml").write_text(f'{common}side-information = "{tmp_path / "t.npy"}"\n')
    decoder_service = fleet.start("decoder", "--config", str(tmp_path / "decoder.toml"))
    (tmp_path / "encoder.toml").write_text(f'{common}decoder = ["{decoder_service.address}"]\n')
    encoder_service = fleet.start("encoder", "--config", str(tmp_path / "encoder.toml"))
    done, _ = run_program("encoder", "send", "a.npy", "--to", encoder_service.address, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert [end(service) for service in (encoder_service, decoder_service)] == [0, 0]
    for service, program in ((encoder_service, "encoder"), (decoder_service, "decoder")):
        events = [json.loads(line) for line in service.log.read_text().splitlines()]
        assert {event["program"] for event in events} == {program}
        assert [event for event in events if event["text"].startswith("serving on ")]
        assert [event for event in events if len(event.get("session", "")) == 16]
        assert all(set(event) >= {"time", "level", "text"} for event in events)
    for text in (done.stdout, *(service.log.read_text() for service in fleet.services)):
        assert SEED not in text.lower()
        assert str(int(SEED, 16)) not in text


def test_two_seeds(tmp_path: Path) -> None:
    (tmp_path / "seed.hex").write_text(SEED)
    for command in (
        ["decoder", "serve", "--model", "gaussian", "--seed-file", "seed.hex"],
        ["encoder", "send", "a.npy", "--to", "127.0.0.1:9", "--seed", SEED],
    ):
        done, _ = run_program(*command, cwd=tmp_path, environment={"GUMBELCAST_SEED": SEED})
        assert (done.returncode, done.stdout) == (3, "")
        assert done.stderr.startswith("error: seed: got --seed")
        assert SEED not in done.stderr
