"""The one result schema: what demo, sweep and benchmark write, and what tables, plots and reports read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from shared_rng import CodecError

RESULTS_NAME = "results.json"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One cell: a source, a coupling, K and L_max. Fields that do not apply are None and not written.

    Attributes:
        source: ``mnist`` or ``gaussian``.
        coupling: ``gls`` or ``baseline``.
        decoders: K.
        bins: L_max.
        bits: rate, log2(L_max) bits a message.
        messages: number of messages.
        pool_size: N.
        match_probability: share of messages with Y among the decoders' picks.
        failed_messages: messages that at least one decoder could not decode.
        payload_bytes: packed bytes, ceil(count · bits / 8) summed over batches; one copy, not K.
        transport_bytes: bytes that the encoder wrote to the connections of all K decoders, measured there.
        transport_bytes_back: bytes that came back on them.
        seconds: wall time of the cell.
        mse_paper: best of K, pixels in [-1, 1], averaged over the 28×28 image with the left half blank.
        mse_paper_sem: its standard error.
        mse: best of K, a pixel of the source half, pixels in [0, 1].
        psnr_db: -10·log10 of ``mse``.
        baseline_minus_gls: mean over messages of the baseline's ``mse_paper`` less that of GLS.
        baseline_minus_gls_sem: standard error of that paired difference.
        noise_variance: s² of p_{W|A} (Gaussian source).
        mean_db: mean over messages of 10·log10 of the best squared error, the paper's metric.
        mean_db_sem: its standard error.
        mse_db: 10·log10 of the mean of the best squared error.
    """

    source: str
    coupling: str
    decoders: int
    bins: int
    bits: int
    messages: int
    pool_size: int
    match_probability: float
    failed_messages: int
    payload_bytes: int
    seconds: float
    transport_bytes: int | None = None
    transport_bytes_back: int | None = None
    mse_paper: float | None = None
    mse_paper_sem: float | None = None
    mse: float | None = None
    psnr_db: float | None = None
    baseline_minus_gls: float | None = None
    baseline_minus_gls_sem: float | None = None
    noise_variance: float | None = None
    mean_db: float | None = None
    mean_db_sem: float | None = None
    mse_db: float | None = None


@dataclass(frozen=True)
class Results:
    """A run: its configuration and its cells."""

    configuration: dict[str, Any]
    records: Sequence[Record]

    def write(self, folder: Path) -> Path:
        """Write ``results.json``; returns its path."""
        records = [{name: v for name, v in asdict(r).items() if v is not None} for r in self.records]
        path = folder / RESULTS_NAME
        body = {"configuration": self.configuration, "records": records}
        path.write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")
        return path

    @classmethod
    def read(cls, folder: Path) -> Results:
        """Read ``results.json``.

        Raises:
            CodecError: it is missing, or not of this schema.
        """
        path = folder / RESULTS_NAME
        if not path.is_file():
            raise CodecError("results", f"no file {path}", f"a folder with {RESULTS_NAME}")
        try:
            body = json.loads(path.read_text(encoding="utf-8"))
            records = [Record(**record) for record in body["records"]]
            return cls(body["configuration"], records)
        except (ValueError, TypeError, KeyError) as error:
            names = ", ".join(field.name for field in fields(Record))
            raise CodecError(str(path), str(error), f"configuration and records with {names}") from error
