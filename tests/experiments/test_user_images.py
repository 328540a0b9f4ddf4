"""A user's images: folders and files, grey and colour, and what is said of those that do not fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from experiments.image_commands import OwnImages, training_data
from experiments.user_images import load_user_images
from tests.models import refused, uniforms

GREY = np.floor(256 * uniforms(20 * 48)).astype(np.uint8).reshape(20, 6, 8)
COLOUR = np.floor(256 * uniforms(20 * 144)).astype(np.uint8).reshape(20, 6, 8, 3)


def folder(path: Path, pictures: list[npt.NDArray[np.uint8]]) -> Path:
    path.mkdir()
    for number, picture in enumerate(pictures):
        Image.fromarray(picture).save(path / f"{number:03}.png")
    return path


@pytest.mark.parametrize("pictures", [GREY, COLOUR], ids=["grey", "colour"])
def test_a_folder(tmp_path: Path, pictures: npt.NDArray[np.uint8]) -> None:
    """In the order of the names."""
    assert np.array_equal(load_user_images(folder(tmp_path / "own", list(pictures)), 6, 8), pictures)


def test_one_colour_makes_all_colour(tmp_path: Path) -> None:
    found = load_user_images(folder(tmp_path / "own", [GREY[0], COLOUR[0]]), 6, 8)
    assert np.array_equal(found, np.stack([np.repeat(GREY[0][:, :, None], 3, axis=2), COLOUR[0]]))


@pytest.mark.parametrize("pictures", [GREY, COLOUR], ids=["grey", "colour"])
def test_files_of_arrays(tmp_path: Path, pictures: npt.NDArray[np.uint8]) -> None:
    np.save(tmp_path / "a.npy", pictures)
    np.savez(tmp_path / "a.npz", images=pictures)
    np.savez(tmp_path / "b.npz", labels=np.zeros(3), train_images=pictures)
    for name in ("a.npy", "a.npz", "b.npz"):
        assert np.array_equal(load_user_images(tmp_path / name, 6, 8), pictures)


def test_idx(tmp_path: Path) -> None:
    """As Fashion-MNIST comes."""
    header = b"\0\0\x08\x03" + np.array(GREY.shape, dtype=">u4").tobytes()
    (tmp_path / "train-images-idx3-ubyte").write_bytes(header + GREY.tobytes())
    assert np.array_equal(load_user_images(tmp_path / "train-images-idx3-ubyte", 6, 8), GREY)


def test_mixed_sizes(tmp_path: Path) -> None:
    path = folder(tmp_path / "own", [GREY[0], GREY[0][:5], GREY[1]])
    with refused(str(path / "001.png"), "5×8 pixels", "6×8, as --size has it"):
        load_user_images(path, 6, 8)


def test_wrong_size(tmp_path: Path) -> None:
    path = folder(tmp_path / "own", [GREY[0]])
    with refused(str(path / "000.png"), "6×8 pixels", "8×6"):
        load_user_images(path, 8, 6)
    np.save(tmp_path / "a.npy", GREY)
    with refused("a.npy", "[20, 6, 8]", "[B, 8, 6]"):
        load_user_images(tmp_path / "a.npy", 8, 6)


def test_unreadable_pictures(tmp_path: Path) -> None:
    path = folder(tmp_path / "own", [GREY[0], GREY[1]])
    (path / "001.png").write_bytes((path / "001.png").read_bytes()[:60])
    with refused(str(path / "001.png"), expected="image file"):
        load_user_images(path, 6, 8)
    (path / "001.png").write_text("no picture")
    with refused(str(path / "001.png"), "an unknown kind of file"):
        load_user_images(path, 6, 8)


def test_nothing_to_read(tmp_path: Path) -> None:
    with refused("--images", "no file or folder", "a folder of pictures"):
        load_user_images(tmp_path / "absent", 6, 8)
    with refused(str(tmp_path), "an empty folder", "pictures"):
        load_user_images(tmp_path, 6, 8)
    (tmp_path / "a.npz").write_bytes(b"no archive")
    with refused(str(tmp_path / "a.npz"), expected="a readable .npz file"):
        load_user_images(tmp_path / "a.npz", 6, 8)
    np.savez(tmp_path / "b.npz", pixels=GREY)
    with refused(str(tmp_path / "b.npz"), "arrays pixels", "train_images or images"):
        load_user_images(tmp_path / "b.npz", 6, 8)


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


def test_unknown_data_set() -> None:
    with refused("data set", "'fashion'", "mnist, cifar10, or --images"):
        training_data("fashion", None, None, 8)
