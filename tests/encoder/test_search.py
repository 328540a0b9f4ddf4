"""Encoder search: same wire, same decoders, the best message of all."""

from __future__ import annotations

import numpy as np
import pytest

from encoder import Encoder
from experiments.gaussian import Cell, open_cell
from shared_rng import pool
from tests.models import refused


def test_searched_labels_are_those_of_their_picks() -> None:
    session, model, _ = open_cell(Cell("lattice", "gls", 4, 2), None, 3)
    sources = np.linspace(-3.0, 3.0, 200)
    plain, searched = Encoder(session, model).encode(sources, 9), Encoder(session, model, 24).encode(sources, 9)
    assert len(searched.payload) == len(plain.payload)
    labels = [pool.label_of(session, 9 + b, int(pick)) for b, pick in enumerate(searched.picks)]
    assert labels == searched.labels.tolist()
    # Most sources lie well inside a cell, where the nearest point is the best message as well.
    agreeing = int((plain.labels == searched.labels).sum())
    assert 150 < agreeing < 200


def test_one_message_alone_is_searched_like_the_batch() -> None:
    session, model, _ = open_cell(Cell("lattice", "gls", 2, 4), None, 4)
    sources = np.linspace(-2.0, 2.0, 9)
    whole = Encoder(session, model, 16).encode(sources, 5).labels
    alone = [int(Encoder(session, model, 16).encode(sources[b : b + 1], 5 + b).labels[0]) for b in range(9)]
    assert alone == whole.tolist()


@pytest.mark.parametrize(
    ("scheme", "nodes", "operand"), [("iid", 16, "encoder search"), ("lattice", 1, "search nodes")]
)
def test_what_cannot_be_searched_is_refused(scheme: str, nodes: int, operand: str) -> None:
    session, model, _ = open_cell(Cell(scheme, "gls", 2, 4), 0.01, 5)
    with refused(operand):
        Encoder(session, model, nodes)
