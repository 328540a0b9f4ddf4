"""Source files: every kind read, every broken one refused by name."""

from __future__ import annotations

import gzip
import io
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from encoder.files import read_idx, read_sources, to_unit_range
from tests.models import refused, uniforms

SHAPE = (4, 3)
PIXELS = np.floor(256 * uniforms(60)).astype(np.uint8).reshape(5, 4, 3)
EXPECTED = (PIXELS / 127.5 - 1.0).astype(np.float32)
WIDE = np.floor(256 * uniforms(140)).astype(np.uint8).reshape(5, 4, 7)


def idx(pixels: npt.NDArray[np.uint8]) -> bytes:
    return b"\0\0\x08\x03" + np.array(pixels.shape, dtype=">u4").tobytes() + pixels.tobytes()


def npy(array: npt.NDArray[np.generic]) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def png(pixels: npt.NDArray[np.uint8]) -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, format="PNG")
    return stream.getvalue()


def npz() -> bytes:
    stream = io.BytesIO()
    np.savez(stream, a=np.ones(3))
    return stream.getvalue()


def flipped(data: bytes, *places: int) -> bytes:
    """Some bytes inverted."""
    changed = bytearray(data)
    for place in places:
        changed[place] ^= 0xFF
    return bytes(changed)


def write(folder: Path, name: str, data: bytes) -> Path:
    path = folder / name
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(("pixel", "value"), [(0, -1.0), (255, 1.0), (51, -0.6)])
def test_unit_range(pixel: int, value: float) -> None:
    assert to_unit_range(np.array([[pixel]], dtype=np.uint8)).tolist() == [[pytest.approx(value)]]


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("a.npy", npy(PIXELS)),
        ("a-ubyte", idx(PIXELS)),
        ("a-ubyte.gz", gzip.compress(idx(PIXELS))),
        ("wide.npy", npy(np.concatenate([WIDE[:, :, :4], PIXELS], axis=2))),
        ("wide.idx", idx(np.concatenate([WIDE[:, :, :4], PIXELS], axis=2))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_images(tmp_path: Path, name: str, data: bytes) -> None:
    """8-bit pixels come in [-1, 1], and of a wider image the right part."""
    found = read_sources(write(tmp_path, name, data), SHAPE)
    assert found.dtype == np.float32
    assert np.array_equal(found, EXPECTED)


@pytest.mark.parametrize("pixels", [PIXELS[0], np.concatenate([WIDE[0], PIXELS[0]], axis=1)])
def test_one_picture(tmp_path: Path, pixels: npt.NDArray[np.uint8]) -> None:
    found = read_sources(write(tmp_path, "a.png", png(pixels)), SHAPE)
    assert np.array_equal(found, EXPECTED[:1])


def test_equal_channels_are_grey(tmp_path: Path) -> None:
    """An image file in a colour format, without a colour in it."""
    colours = np.repeat(PIXELS[0][:, :, None], 3, axis=2)
    found = read_sources(write(tmp_path, "a.png", png(colours)), SHAPE)
    assert np.array_equal(found, EXPECTED[:1])


@pytest.mark.parametrize(("dtype", "suffix"), [("u2", "png"), ("i4", "tiff"), ("f4", "tiff")])
def test_deep_pictures(tmp_path: Path, dtype: str, suffix: str) -> None:
    """Clipped to 8 bits they would be nearly white or black."""
    path = tmp_path / f"a.{suffix}"
    Image.fromarray((257 * PIXELS[0].astype(np.int64)).astype(dtype)).save(path)
    with refused(str(path), "pixels of mode", "8 bits a channel"):
        read_sources(path, SHAPE)


COLOURS = np.floor(256 * uniforms(180, 2)).astype(np.uint8).reshape(5, 4, 3, 3)


@pytest.mark.parametrize("extra", [0, 4])
def test_colour_images(tmp_path: Path, extra: int) -> None:
    """For a model of colour images, as picture or array; of a wider one the right part."""
    wide = np.concatenate([COLOURS[:, :, :1].repeat(extra, axis=2), COLOURS], axis=2)
    expected = to_unit_range(COLOURS)
    found = read_sources(write(tmp_path, "a.png", png(wide[0])), (4, 3, 3))
    assert np.array_equal(found, expected[:1])
    assert np.array_equal(read_sources(write(tmp_path, "a.npy", npy(wide)), (4, 3, 3)), expected)


@pytest.mark.parametrize(
    ("side", "rows", "columns"),
    [("right", slice(4), slice(3)), ("top", slice(2, 6), slice(3)), ("bottom", slice(4), slice(3))],
)
def test_other_sides_are_cut_away(tmp_path: Path, side: str, rows: slice, columns: slice) -> None:
    """Crops come from that side of the image, and the source is the rest."""
    whole = np.floor(256 * uniforms(90, 4)).astype(np.uint8).reshape(5, 6, 3)
    whole = whole if side in ("top", "bottom") else np.floor(256 * uniforms(100, 4)).astype(np.uint8).reshape(5, 4, 5)
    path = write(tmp_path, "a.npy", npy(whole))
    assert np.array_equal(read_sources(path, SHAPE, side), to_unit_range(whole[:, rows, columns]))


def test_grey_image_for_a_colour_model(tmp_path: Path) -> None:
    """Three equal channels."""
    found = read_sources(write(tmp_path, "a.png", png(PIXELS[0])), (4, 3, 3))
    assert np.array_equal(found, np.repeat(EXPECTED[:1, :, :, None], 3, axis=3))


def test_colour_image_for_a_grey_model(tmp_path: Path) -> None:
    """Refused: what the model would make of it is no one's wish."""
    path = write(tmp_path, "a.png", png(COLOURS[0]))
    with refused(str(path), "a colour image", "a grey image, since the model's sources are grey"):
        read_sources(path, SHAPE)
    path = write(tmp_path, "a.npy", npy(COLOURS))
    with refused(str(path), "(4, 3, 3)", "(4, 3)"):
        read_sources(path, SHAPE)


@pytest.mark.parametrize("dtype", ["<f8", "<f4", ">f8"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_numbers(tmp_path: Path, dtype: str, shape: tuple[int, ...]) -> None:
    """Floating-point samples stay as they are, in a type that can travel."""
    samples = (8.0 * uniforms(7 * int(np.prod(shape))) - 4.0).reshape(7, *shape).astype(dtype)
    found = read_sources(write(tmp_path, "a.npy", npy(samples)), shape)
    assert found.dtype in (np.float32, np.float64)
    assert np.array_equal(found, samples)


def test_bytes_are_no_scalars(tmp_path: Path) -> None:
    """Only pictures are mapped to [-1, 1]: a scalar source of 8-bit numbers is refused."""
    path = write(tmp_path, "a.npy", npy(PIXELS.ravel()))
    with refused(str(path), "uint8"):
        read_sources(path, ())


def test_empty_idx(tmp_path: Path) -> None:
    assert read_sources(write(tmp_path, "a", idx(PIXELS[:0])), SHAPE).shape == (0, 4, 3)


@pytest.mark.parametrize(
    ("data", "given", "expected"),
    [
        (b"", "nothing", "00000803"),
        (b"\0\0\x08\x01" + bytes(12), "00000801", "00000803"),
        (b"\0\0\x0d\x03" + bytes(12), "00000d03", "00000803"),
        (idx(PIXELS)[:15], "00000803", "00000803"),
        (idx(PIXELS)[:-1], "75 bytes", "76 bytes for 5 images"),
        (idx(PIXELS) + b"\0", "77 bytes", "76 bytes for 5 images"),
        (b"\0\0\x08\x03" + b"\xff" * 12, "16 bytes", "4294967295 images"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_idx(data: bytes, given: str, expected: str) -> None:
    with refused("the file", given, expected):
        read_idx(data, "the file")


@pytest.mark.parametrize("name", ["absent.npy", "", "folder"])
def test_no_file(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    with refused("source file", str(tmp_path / name), "existing"):
        read_sources(tmp_path / name, SHAPE)


@pytest.mark.parametrize(
    ("samples", "given", "expected"),
    [
        (np.zeros((5, 4, 2), np.uint8), "(4, 2)", "(4, 3)"),
        (np.zeros((5, 3, 7), np.uint8), "(3, 3)", "(4, 3)"),
        (np.zeros((4, 3), np.uint8), "(3,)", "(4, 3)"),
        (np.zeros((5, 1, 4, 3)), "(1, 4, 3)", "(4, 3)"),
        (np.zeros((5, 4, 7)), "(4, 7)", "(4, 3)"),
        (np.zeros(()), "()", "(4, 3)"),
        (np.zeros((5, 4, 3), np.int64), "int64", "float32, float64 or uint8"),
        (np.zeros((5, 4, 3), complex), "complex128", "float32, float64 or uint8"),
        (np.zeros((5, 4, 3), bool), "bool", "float32, float64 or uint8"),
    ],
)
def test_samples_of_another_kind(tmp_path: Path, samples: npt.NDArray[np.generic], given: str, expected: str) -> None:
    path = write(tmp_path, "a.npy", npy(samples))
    with refused(str(path), given, expected):
        read_sources(path, SHAPE)


ARCHIVE = gzip.compress(idx(PIXELS), mtime=0)
PICTURE = png(np.tile(PIXELS[0], (40, 40)))
OBJECTS = b"\x93NUMPY\x01\x00\x76\x00{'descr': '|O', 'fortran_order': False, 'shape': (1,), }".ljust(127) + b"\n"


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        ("empty.npy", b"", "a .npy file"),
        ("text.npy", b"1 2 3", "a .npy file"),
        ("short.npy", npy(PIXELS)[:-3], "a .npy file"),
        ("header.npy", npy(PIXELS)[:40], "a .npy file"),
        ("objects.npy", OBJECTS, "a .npy file"),
        pytest.param("brace.npy", flipped(npy(PIXELS), 60), "a .npy file"),
        ("zip.npy", npz(), ".npy file of numbers"),
        ("short.gz", ARCHIVE[:-9], "a complete gzip file"),
        ("crc.gz", flipped(ARCHIVE, len(ARCHIVE) - 6), "a complete gzip file"),
        pytest.param("broken.gz", flipped(ARCHIVE, 10), "a complete gzip file"),
        ("png.gz", gzip.compress(PICTURE), ".npy, IDX or image file"),
        ("short.idx", idx(PIXELS)[:-1], "76 bytes for 5 images"),
        ("short-idx.gz", gzip.compress(idx(PIXELS)[:-1]), "76 bytes for 5 images"),
        ("empty.png", b"", ".npy, IDX or image file"),
        ("text.png", b"no picture", ".npy, IDX or image file"),
        pytest.param("short.png", PICTURE[: len(PICTURE) // 2], "image"),
        pytest.param("broken.png", flipped(PICTURE, 50, 51), "image"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_broken_file(tmp_path: Path, name: str, data: bytes, expected: str) -> None:
    path = write(tmp_path, name, data)
    with refused(str(path), expected=expected):
        read_sources(path, SHAPE)


def npy_header(shape: tuple[int, ...]) -> bytes:
    """A ``.npy`` file of doubles that ends after its header."""
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".encode()
    return b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(117) + b"\n"


def png_header(width: int, height: int) -> bytes:
    """A picture of one grey pixel whose header says that it has more."""
    picture = bytearray(png(np.zeros((1, 1), np.uint8)))
    picture[16:24] = width.to_bytes(4, "big") + height.to_bytes(4, "big")
    picture[29:33] = zlib.crc32(picture[12:29]).to_bytes(4, "big")
    return bytes(picture)


@pytest.mark.parametrize(
    ("name", "data", "given", "expected"),
    [
        ("a.npy", npy_header((2**31, 2**9)), "0 bytes", f"{2**43} for float64"),
        ("b.npy", npy_header((2**62, 2**62)), "0 bytes", f"{2**127} for float64"),
        ("a.idx", idx(PIXELS)[:4] + b"\xff" * 12 + bytes(75), "91 bytes", f"{16 + (2**32 - 1) ** 3} bytes"),
        ("bomb.gz", gzip.compress(bytes(2**22)), f"more than {2**20} bytes", "a smaller file"),
        ("large.png", png_header(2**15, 2**15), "Image size", f"at most {2**25} pixels"),
        ("warned.png", png_header(10**4, 10**4), "10000×10000 pixels", f"at most {2**25} pixels"),
        ("just.png", png_header(2**25 + 1, 1), f"{2**25 + 1}×1 pixels", f"at most {2**25} pixels"),
        ("bomb.png", png_header(2**31 - 1, 2**31 - 1), "Image size", f"at most {2**25} pixels"),
    ],
)  # fmt: skip
def test_files_that_say_they_are_huge(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, data: bytes, given: str, expected: str
) -> None:
    """Refused before there is room for what they say."""
    monkeypatch.setattr("encoder.files.MAX_UNPACKED", 2**20)
    path = write(tmp_path, name, data)
    tracemalloc.start()
    try:
        with refused(str(path), given, expected):
            read_sources(path, SHAPE)
        assert tracemalloc.get_traced_memory()[1] < 2**23
    finally:
        tracemalloc.stop()
