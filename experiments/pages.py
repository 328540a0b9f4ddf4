"""Pages of HTML that need no other file, from ``experiments/templates``."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import jinja2


def write_page(path: Path, template: str, **values: Any) -> None:
    """Fill in a template, in which all text is escaped and a missing value is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("experiments"), autoescape=True, undefined=jinja2.StrictUndefined
    )
    path.write_text(environment.get_template(template).render(**values), encoding="utf-8")


def image_data(file: Path) -> str:
    """A PNG file for ``<img src="data:image/png;base64,…">``."""
    return base64.b64encode(file.read_bytes()).decode("ascii")
