"""What ``train`` is told of a user's images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from experiments.__main__ import app
from experiments.image_commands import OwnImages, models, training_data
from experiments.report import print_table
from tests.encoder.test_whole_images import COLOUR, GREY, folder
from tests.models import refused


def test_training_data(tmp_path: Path) -> None:
    """The task follows from the files and the options, and the card's command names them."""
    path = folder(tmp_path / "own", list(COLOUR))
    data = training_data(None, None, OwnImages(path, (6, 8), "top", 3), 18)
    assert (data.task.source_shape, data.task.side_shape, data.task.name) == ((3, 8, 3), (3, 3, 3), "own")
    assert (len(data.training), len(data.held_out)) == (18, 2)
    assert data.arguments == "--images own --size 6 8 --side top --crop 3"


@pytest.mark.parametrize(
    ("change", "operand", "given"),
    [
        ({"size": None}, "--images", "no --size"),
        ({"crop": None}, "--images", "no --crop"),
        ({"crop": 4}, "crop", "4"),
        ({"side": "middle"}, "side", "middle"),
        ({"batch": 19}, "own", "20 images"),
        ({"dataset": "mnist"}, "data set", "mnist and --images"),
    ],
)
def test_options_that_do_not_fit(tmp_path: Path, change: dict[str, Any], operand: str, given: str) -> None:
    path = folder(tmp_path / "own", list(GREY))
    options = {"size": (6, 8), "side": "top", "crop": 3, "batch": 18, "dataset": None} | change
    own = OwnImages(path, options["size"], options["side"], options["crop"])
    with refused(operand, given):
        training_data(options["dataset"], None, own, options["batch"])


def test_two_places_of_images(tmp_path: Path) -> None:
    """A data folder and a user's own images."""
    own = OwnImages(folder(tmp_path / "own", list(GREY)), (6, 8), "top", 3)
    with refused("--data", f"{tmp_path} and --images", "one of them"):
        training_data(None, tmp_path, own, 18)


def test_models_of_an_odd_card(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One line, and no table."""
    (tmp_path / "odd").mkdir()
    card = {"source": "none", "architecture": {}, "training": {"metrics": {"mse_paper": "low"}}}
    (tmp_path / "odd" / "card.json").write_text(json.dumps(card))
    with pytest.raises(SystemExit) as ended:
        models(tmp_path)
    assert ended.value.code == 3
    assert capsys.readouterr() == (
        "",
        f"error: card training.metrics.mse_paper: got 'low' in {tmp_path}/odd/card.json, expected a number\n",
    )


def test_names_that_look_like_markup(capsys: pytest.CaptureFixture[str]) -> None:
    """A folder may be called so."""
    print_table("Models", ["model"], [["run[best]"], ["[/b]"]])
    assert "run[best]" in (shown := capsys.readouterr().out)
    assert "[/b]" in shown


def test_unknown_data_set() -> None:
    with refused("data set", "'fashion'", "mnist, cifar10, or --images"):
        training_data("fashion", None, OwnImages(None, None, None, None), 8)


@pytest.mark.parametrize(
    ("change", "name"), [({"size": (28, 28)}, "--size"), ({"side": "right"}, "--side"), ({"crop": 7}, "--crop")]
)
def test_sizes_of_data_sets_are_given(change: dict[str, Any], name: str) -> None:
    own = OwnImages(None, **({"size": None, "side": None, "crop": None} | change))
    with refused(name, str(change[name[2:]]), "--images as well"):
        training_data("mnist", None, own, 8)


def test_name_of_the_folder_that_one_is_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``--images .`` has the folder's name, and a name with a blank is quoted in the card's command."""
    monkeypatch.chdir(folder(tmp_path / "my own", list(GREY)))
    data = training_data(None, None, OwnImages(Path(), (6, 8), "top", 3), 18)
    assert data.task.name == "my own"
    assert data.arguments.startswith("--images 'my own' --size")


def test_too_few_to_hold_one_out(tmp_path: Path) -> None:
    path = folder(tmp_path / "own", list(GREY)[:9])
    with refused("own", "9 images", "at least 10"):
        training_data(None, None, OwnImages(path, (6, 8), "top", 3), 8)


def test_no_workers(tmp_path: Path) -> None:
    """A usage error; nothing is written."""
    result = CliRunner().invoke(app, ["sweep", "mnist", "--out", str(tmp_path / "out"), "--workers", "0"])
    assert result.exit_code == 2
    assert "'--workers'" in result.output
    assert not (tmp_path / "out").exists()
