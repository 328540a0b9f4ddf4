"""Whole images: folders and files, grey and colour, and what is said of those that do not fit."""

from __future__ import annotations

import io
import pickle
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from encoder.whole_images import WantedImages, read_archive, read_images
from tests.models import refused, uniforms

GREY = np.floor(256 * uniforms(20 * 48)).astype(np.uint8).reshape(20, 6, 8)
SIZE, OTHER = (WantedImages("--images", (size,), "as --size has it") for size in ((6, 8), (8, 6)))
COLOUR = np.floor(256 * uniforms(20 * 144)).astype(np.uint8).reshape(20, 6, 8, 3)


def folder(path: Path, pictures: list[npt.NDArray[np.uint8]]) -> Path:
    path.mkdir()
    for number, picture in enumerate(pictures):
        Image.fromarray(picture).save(path / f"{number:03}.png")
    return path


@pytest.mark.parametrize("pictures", [GREY, COLOUR], ids=["grey", "colour"])
def test_a_folder(tmp_path: Path, pictures: npt.NDArray[np.uint8]) -> None:
    """In the order of the names."""
    assert np.array_equal(read_images(folder(tmp_path / "own", list(pictures)), SIZE), pictures)


def test_one_colour_makes_all_colour(tmp_path: Path) -> None:
    found = read_images(folder(tmp_path / "own", [GREY[0], COLOUR[0]]), SIZE)
    assert np.array_equal(found, np.stack([np.repeat(GREY[0][:, :, None], 3, axis=2), COLOUR[0]]))


@pytest.mark.parametrize("pictures", [GREY, COLOUR], ids=["grey", "colour"])
def test_files_of_arrays(tmp_path: Path, pictures: npt.NDArray[np.uint8]) -> None:
    np.save(tmp_path / "a.npy", pictures)
    np.savez(tmp_path / "a.npz", images=pictures)
    np.savez(tmp_path / "b.npz", labels=np.zeros(3), train_images=pictures)
    for name in ("a.npy", "a.npz", "b.npz"):
        assert np.array_equal(read_images(tmp_path / name, SIZE), pictures)


def test_idx(tmp_path: Path) -> None:
    """As Fashion-MNIST comes."""
    header = b"\0\0\x08\x03" + np.array(GREY.shape, dtype=">u4").tobytes()
    (tmp_path / "train-images-idx3-ubyte").write_bytes(header + GREY.tobytes())
    assert np.array_equal(read_images(tmp_path / "train-images-idx3-ubyte", SIZE), GREY)


def test_mixed_sizes(tmp_path: Path) -> None:
    path = folder(tmp_path / "own", [GREY[0], GREY[0][:5], GREY[1]])
    with refused(str(path / "001.png"), "5×8 pixels", "6×8, as --size has it"):
        read_images(path, SIZE)


def test_wrong_size(tmp_path: Path) -> None:
    path = folder(tmp_path / "own", [GREY[0]])
    with refused(str(path / "000.png"), "6×8 pixels", "8×6"):
        read_images(path, OTHER)
    np.save(tmp_path / "a.npy", GREY)
    with refused("a.npy", "[20, 6, 8]", "[B, 8, 6]"):
        read_images(tmp_path / "a.npy", OTHER)


def test_unreadable_pictures(tmp_path: Path) -> None:
    path = folder(tmp_path / "own", [GREY[0], GREY[1]])
    (path / "001.png").write_bytes((path / "001.png").read_bytes()[:60])
    with refused(str(path / "001.png"), expected="image file"):
        read_images(path, SIZE)
    (path / "001.png").write_text("no picture")
    with refused(str(path / "001.png"), "an unknown kind of file"):
        read_images(path, SIZE)


def test_nothing_to_read(tmp_path: Path) -> None:
    with refused("--images", "no file or folder", "a folder of pictures"):
        read_images(tmp_path / "absent", SIZE)
    with refused(str(tmp_path), "an empty folder", "pictures"):
        read_images(tmp_path, SIZE)
    (tmp_path / "a.npz").write_bytes(b"no archive")
    with refused(str(tmp_path / "a.npz"), expected="a readable .npz file"):
        read_images(tmp_path / "a.npz", SIZE)
    np.savez(tmp_path / "b.npz", pixels=GREY)
    with refused(str(tmp_path / "b.npz"), "arrays pixels", "train_images or images"):
        read_images(tmp_path / "b.npz", SIZE)


def _packed(data: bytes, method: int = zipfile.ZIP_STORED) -> bytes:
    """An archive with one member, ``images.npy``."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", method) as archive:
        archive.writestr("images.npy", data)
    return stream.getvalue()


def _flipped(data: bytes, start: int, count: int, bits: int = 0x5A) -> bytes:
    return data[:start] + bytes(byte ^ bits for byte in data[start : start + count]) + data[start + count :]


ARRAY = io.BytesIO()
np.save(ARRAY, GREY)
STORED, DEFLATED, LZMA = (
    _packed(ARRAY.getvalue(), method) for method in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_LZMA)
)
CENTRAL = DEFLATED.index(b"PK\x01\x02")
BROKEN = {
    "empty": b"",
    "cut": STORED[: len(STORED) // 2],
    "no archive": b"no archive",
    "an array": ARRAY.getvalue(),
    "a pickle": pickle.dumps({"images": [1]}),
    "another byte": _flipped(STORED, 400, 1),
    "deflated, other bytes": _flipped(DEFLATED, 60, 40),
    "lzma, other bytes": _flipped(LZMA, 100, 40),
    "encrypted": _flipped(_flipped(DEFLATED, 6, 1, 1), CENTRAL + 8, 1, 1),
    "packed by an unknown method": _flipped(_flipped(DEFLATED, 8, 1, 97), CENTRAL + 10, 1, 97),
    "a header that asks for 480 TB": _packed(
        ARRAY.getvalue().replace(b"(20, 6, 8), }" + 12 * b" ", b"(10000000000000, 6, 8), }")
    ),
    "a header that is no Python": _packed(ARRAY.getvalue().replace(b"(20, 6, 8)", b"(20, 6; 8)")),
    "shorter than its shape": _packed(ARRAY.getvalue()[:500]),
    "objects": _packed(ARRAY.getvalue().replace(b"'|u1'", b"'|O' ")),
}


@pytest.mark.parametrize("data", BROKEN.values(), ids=BROKEN)
def test_damaged_archive(tmp_path: Path, data: bytes) -> None:
    """Whatever is wrong with it, the file is named."""
    (tmp_path / "a.npz").write_bytes(data)
    with refused(str(tmp_path / "a.npz"), expected="a readable .npz file"):
        read_archive(tmp_path / "a.npz", "images")


@pytest.mark.parametrize("data", [STORED, DEFLATED, LZMA])
def test_archives_however_packed(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.npz").write_bytes(data)
    assert np.array_equal(read_archive(tmp_path / "a.npz", "images"), GREY)


@pytest.mark.parametrize("channels", [1, 3])
def test_grey_and_colour_where_a_model_says_which(tmp_path: Path, channels: int) -> None:
    """Grey pictures serve a model of colour ones; a colour picture is refused by a grey model, by its name."""
    wanted = replace(SIZE, channels=channels)
    path = folder(tmp_path / "own", [GREY[0], COLOUR[0]])
    np.save(tmp_path / "grey.npy", GREY)
    np.save(tmp_path / "colour.npy", COLOUR)
    if channels == 1:
        with refused(str(path / "001.png"), "a colour image", "a grey image"):
            read_images(path, wanted)
        with refused("colour.npy", "[20, 6, 8, 3]", "uint8 [B, 6, 8], as --size has it"):
            read_images(tmp_path / "colour.npy", wanted)
        assert np.array_equal(read_images(tmp_path / "grey.npy", wanted), GREY)
    else:
        assert read_images(path, wanted).shape == (2, 6, 8, 3)
        assert np.array_equal(read_images(tmp_path / "grey.npy", wanted), np.stack([GREY] * 3, axis=3))
        assert np.array_equal(read_images(tmp_path / "colour.npy", wanted), COLOUR)


def test_one_of_two_sizes(tmp_path: Path) -> None:
    """Where two would do, all images have the first one's."""
    wanted = WantedImages("--images", ((6, 8), (6, 7)), "for the model")
    assert read_images(folder(tmp_path / "own", [GREY[0][:, :7]] * 2), wanted).shape == (2, 6, 7)
    path = folder(tmp_path / "mixed", [GREY[0], GREY[1][:, :7]])
    with refused(str(path / "001.png"), "6×7 pixels", "6×8, as 000.png has"):
        read_images(path, wanted)
    with refused("000.png", "6×6 pixels", "6×8 or 6×7, for the model"):
        read_images(folder(tmp_path / "small", [GREY[0][:, :6]]), wanted)
