"""Model cards: the JSON file that says what a model is, and the digest by which two ends recognise it.

A card holds ``source`` (``gaussian``, ``vae`` or ``codebook``), ``architecture`` (the numbers that define the model),
``weights`` (file name and SHA-256, absent where there are none) and ``training`` (command, data, metrics;
for people). The digest covers the first three, so an edited comment changes nothing.
"""

from __future__ import annotations

import hashlib
import json
import math
import reprlib
import sys
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

from shared_rng.errors import CodecError

CARD_NAME = "card.json"

MAX_SIZE = 2**20
"""The largest size of a network's layer or image."""
MAX_IMAGE = 1_000_000
"""Numbers of one image: in single precision it fits into one message of the wire."""
_MAX_CARD_BYTES = 2**20
_MAX_SHOWN = 100


@dataclass(frozen=True)
class ModelCard:
    """A checked card.

    Attributes:
        source: the kind of source.
        architecture: its numbers, by name.
        training: command, data and metrics, for people.
        weights: path of the weights, checked against their SHA-256, or None.
        digest: 32 bytes over source, architecture and the weights' SHA-256.
    """

    source: str
    architecture: dict[str, Any]
    training: dict[str, Any]
    weights: Path | None
    digest: bytes

    def number(self, name: str) -> float:
        """A number of the architecture.

        Raises:
            CodecError: it is missing, or no number that a double can hold.
        """
        value = self.architecture.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or _overflows(value):
            raise CodecError(f"card architecture.{name}", _shown(value), "a number")
        return value

    def size(self, name: str) -> int:
        """A size of the architecture.

        Raises:
            CodecError: it is missing, or no integer above 0, or too large for any network.
        """
        value = self.architecture.get(name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise CodecError(f"card architecture.{name}", _shown(value), "an integer above 0")
        if value > MAX_SIZE:
            raise CodecError(f"card architecture.{name}", _shown(value), f"at most {MAX_SIZE}")
        return value

    def image_shape(self, half: str) -> tuple[int, ...]:
        """Shape of one image of a half, ``source`` or ``side``: [height, width], or [height, width, 3] in colour.

        Raises:
            CodecError: a size is missing or out of range, ``channels``, 1 where it is absent, is not 1 or 3, or the
                image is too large for a message of the wire.
        """
        channels = self.architecture.get("channels", 1)
        if isinstance(channels, bool) or channels not in (1, 3):
            raise CodecError("card architecture.channels", _shown(channels), "1 (grey) or 3 (colour)")
        height, width = self.size(f"{half}_height"), self.size(f"{half}_width")
        if height * width * channels > MAX_IMAGE:
            given = f"{height} and {width}"
            expected = f"at most {MAX_IMAGE} numbers an image"
            raise CodecError(f"card architecture.{half}_height and architecture.{half}_width", given, expected)
        return (height, width) if channels == 1 else (height, width, 3)

    @property
    def side(self) -> str:
        """Of halves of images, the one that decoders see crops of; ``left`` where the card does not say.

        Raises:
            CodecError: it is none of left, right, top and bottom.
        """
        side = self.architecture.get("side", "left")
        if side not in ("left", "right", "top", "bottom"):
            raise CodecError("card architecture.side", _shown(side), "left, right, top or bottom")
        return str(side)

    @property
    def is_convolutional(self) -> bool:
        """Whether ``architecture.network`` is ``convolutional``; where it is absent, layers are fully connected.

        Raises:
            CodecError: it is something else.
        """
        network = self.architecture.get("network", "connected")
        if network not in ("connected", "convolutional"):
            raise CodecError("card architecture.network", _shown(network), "convolutional, or none")
        return bool(network == "convolutional")

    def require_size(self, expected: int, *names: str) -> None:
        """Check sizes of the architecture, or their product, against what the weights have.

        Raises:
            CodecError: they differ; it names them.
        """
        if math.prod(self.size(name) for name in names) != expected:
            given = " and ".join(str(self.size(name)) for name in names)
            product = " as their product" if len(names) > 1 else ""
            fields = " and ".join(f"architecture.{name}" for name in names)
            raise CodecError(f"card {fields}", given, f"{expected}{product}, as the weights have")

    def variances(self) -> tuple[float, float, float]:
        """Prior, noise and side variance of a Gaussian source.

        Raises:
            CodecError: one is missing or out of range.
        """
        prior, noise = self.number("prior_variance"), self.number("noise_variance")
        side = self.number("side_variance")
        for name, value in (("prior_variance", prior), ("noise_variance", noise)):
            if not 0 < value < float("inf"):
                raise CodecError(f"card architecture.{name}", value, "a finite number above 0")
        if not side > 0:
            raise CodecError("card architecture.side_variance", side, "a number above 0, or Infinity for none")
        return prior, noise, side

    def with_variances(self, **variances: float | None) -> ModelCard:
        """The card of a Gaussian source with other variances and the digest that follows; None keeps the card's.

        Raises:
            CodecError: a variance is given and the source is not Gaussian.
        """
        given = {name: float(value) for name, value in variances.items() if value is not None}
        if not given:
            return self
        if self.source != "gaussian":
            raise CodecError(", ".join(given), f"given for a {self.source} source", "a model of a gaussian source")
        architecture = self.architecture | given
        return replace(self, architecture=architecture, digest=model_digest(self.source, architecture, None))


def weights_sha256(path: Path) -> str:
    """SHA-256 of a weights file, in hexadecimal."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def model_digest(source: str, architecture: dict[str, Any], sha256: str | None) -> bytes:
    """The digest that stands for a model in a session."""
    summary = {"source": source, "architecture": architecture, "weights_sha256": sha256}
    return hashlib.sha256(json.dumps(summary, sort_keys=True).encode()).digest()


def load_card(folder: Path) -> ModelCard:
    """Read ``card.json`` of a model folder and check its weights against the card.

    Raises:
        CodecError: the card is missing or malformed, or the weights are missing or not those of the card.
    """
    path = folder / CARD_NAME
    if not path.is_file():
        raise CodecError("model", f"{folder} without {CARD_NAME}", f"a model folder with {CARD_NAME}")
    if (length := path.stat().st_size) > _MAX_CARD_BYTES:
        raise CodecError(str(path), f"{length} bytes", f"at most {_MAX_CARD_BYTES}")
    try:
        card = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise CodecError(str(path), f"no valid JSON ({error})", "a JSON object") from error
    if not isinstance(card, dict):
        raise CodecError(str(path), type(card).__name__, "a JSON object")
    source = _field(path, card, "source", str)
    architecture = _field(path, card, "architecture", dict)
    for name, value in architecture.items():
        if isinstance(value, dict | list):
            raise CodecError(f"card architecture.{_shown(name)}", type(value).__name__, "a number or a text")
    weights, sha256 = None, None
    if "weights" in card:
        entry = _field(path, card, "weights", dict)
        file = _field(path, entry, "file", str)
        if not file.isprintable() or file in ("", ".", "..") or len(file) > 100 or "/" in file:
            raise CodecError("card weights.file", _shown(file), "the name of a file beside the card")
        weights = folder / file
        sha256 = _field(path, entry, "sha256", str)
        if not weights.is_file():
            raise CodecError("card weights.file", weights, "an existing file")
        if (actual := weights_sha256(weights)) != sha256:
            raise CodecError("card weights.sha256", _shown(sha256), f"that of {weights.name}, {actual}")
    training = _field(path, card, "training", dict) if "training" in card else {}
    return ModelCard(source, architecture, training, weights, model_digest(source, architecture, sha256))


def _field(path: Path, holder: dict[str, Any], name: str, kind: type) -> Any:
    value = holder.get(name)
    if not isinstance(value, kind):
        raise CodecError(f"{path.name} {name}", _shown(value), f"a value of type {kind.__name__}")
    return value


def _overflows(value: float) -> bool:
    return isinstance(value, int) and abs(value) > sys.float_info.max


def _shown(value: object) -> str:
    """A value for an error, in one line that is not too long."""
    short = reprlib.Repr()
    short.maxstring = short.maxother = short.maxlong = _MAX_SHOWN
    return short.repr(value)


def find_model(name: str) -> Path:
    """The folder of a model: the name of one that comes with the package, or a path.

    Raises:
        CodecError: neither is there, or both are, and they differ.
    """
    shipped = {path.parent.name: path.parent for path in Path(str(resources.files("zoo"))).glob(f"*/{CARD_NAME}")}
    path = Path(name)
    if name in shipped:
        if (path / CARD_NAME).is_file() and not path.samefile(shipped[name]):
            raise CodecError(
                "model", f"{name!r}, a shipped model and a folder here", f"./{name}, or another folder name"
            )
        return shipped[name]
    if name and path.is_dir():
        return path
    raise CodecError("model", repr(name), f"a folder, or one of: {', '.join(sorted(shipped))}")
