"""The one result schema: what demo, sweep and benchmark write, and what tables, plots and reports read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from experiments.whole_files import write_whole
from shared_rng import CodecError

RESULTS_NAME = "results.json"


@dataclass(frozen=True, kw_only=True)
class Record:
    """One cell: a source, a coupling, K and L_max. Fields that do not apply are None and not written.

    Attributes:
        source: ``mnist``, ``cifar10``, ``gaussian`` or ``toy`` (two letter distributions and no message).
        recipe: how an image model was trained, or the name of a reference, which then has coupling ``none``.
        model: name of its folder.
        model_digest: what stands for it in a session, hexadecimal.
        training_seed: of the model.
        coding_seeds: seeds of common randomness; every message was coded with each, and figures are means.
        scheme: how a Gaussian source is coded, a name of ``experiments.gaussian`` or ``reference_cells``.
        coupling: ``gls``, ``baseline``, ``list``, or ``none`` where there is no common randomness.
        decoders: K.
        bins: L_max.
        bits: rate, log2(L_max) bits a message.
        measured_bits: rate that a variable-length code spent, bits a source sample.
        messages: number of messages.
        pool_size: N.
        match_probability: share of messages with Y among the decoders' picks.
        match_probability_sem: its standard error.
        match_bound_lemma: lower bound on it by the list matching lemma on realised pools (equation 3).
        match_bound_lemma_sem: standard error of that bound, which is a mean over messages.
        match_bound_prop4: lower bound on it by proposition 4, for a large pool.
        match_optimum: largest match probability of one decoder, with communication, 1 - d_TV (toy).
        failed_messages: messages that at least one decoder could not decode.
        payload_bytes: packed bytes, ceil(count · bits / 8) summed over batches; one copy, not K.
        transport_bytes: bytes that the encoder wrote to the connections of all K decoders, measured there.
        transport_bytes_back: bytes that came back on them.
        seconds: wall time of the cell.
        cpu_seconds: processor time of the cell, all threads together.
        repetitions: times that s² was chosen and evaluated on fresh messages; ``messages`` counts all.
        mse_paper: best of K, pixels in [-1, 1], averaged over the 28×28 image with the left half blank.
        mse_paper_sem: its standard error.
        mse: best of K, a pixel of the source half, pixels in [0, 1].
        psnr_db: -10·log10 of ``mse``.
        mse_paper_seeds: ``mse_paper`` of each coding seed.
        mse_paper_decoders: ``mse_paper`` of each decoder alone.
        match_decoders: share of messages at which each decoder picked Y.
        mse_paper_no_mismatch: ``mse_paper`` if every decoder had the encoder's sample, best of K.
        baseline_minus_gls: mean over messages of the baseline's ``mse_paper`` less that of GLS.
        baseline_minus_gls_sem: standard error of that paired difference.
        search: similar images a source of a searching encoder, J; None without search.
        search_gain: mean over messages of ``mse_paper`` without search less that with it.
        search_gain_sem: standard error of that paired difference.
        encoder_ms: processor time of the encoder a message, all threads together, in milliseconds.
        noise_variances: s² of p_{W|A} that each repetition chose.
        mean_db: mean over messages of 10·log10 of the best squared error, the paper's metric.
        mean_db_sem: its standard error.
        mse_db: 10·log10 of the mean of the best squared error.
        mse_db_integrated: the same, integrated over the side information, so that rare failures count.
        mse_db_integrated_sem: its standard error, in dB to first order.
        mse_db_low: lower end of its 95 % bootstrap interval; None where no message missed, since an interval
            from such a sample knows nothing of the misses that make the mean.
        mse_db_high: upper end of that interval.
        core_db: 10·log10 of the mean with errors clipped at two cell widths, (2w)², which needs no rare event.
        far_messages: messages with an error beyond two cell widths at every decoder.
        far_share_integrated: their share, integrated over the side information.
        missed_messages: messages at which no decoder picked the encoder's sample. A lattice's bin holds one
            point a period, so there this is an error of nearly a period at every decoder.
    """

    source: str
    coupling: str
    decoders: int
    bins: int
    bits: int
    messages: int
    pool_size: int | None = None
    match_probability: float | None = None
    recipe: str | None = None
    model: str | None = None
    model_digest: str | None = None
    training_seed: int | None = None
    coding_seeds: int | None = None
    failed_messages: int | None = None
    payload_bytes: int | None = None
    seconds: float | None = None
    scheme: str | None = None
    measured_bits: float | None = None
    repetitions: int | None = None
    cpu_seconds: float | None = None
    match_probability_sem: float | None = None
    match_bound_lemma: float | None = None
    match_bound_lemma_sem: float | None = None
    match_bound_prop4: float | None = None
    match_optimum: float | None = None
    transport_bytes: int | None = None
    transport_bytes_back: int | None = None
    mse_paper: float | None = None
    mse_paper_sem: float | None = None
    mse: float | None = None
    psnr_db: float | None = None
    mse_paper_seeds: list[float] | None = None
    mse_paper_decoders: list[float] | None = None
    match_decoders: list[float] | None = None
    mse_paper_no_mismatch: float | None = None
    baseline_minus_gls: float | None = None
    baseline_minus_gls_sem: float | None = None
    search: int | None = None
    search_gain: float | None = None
    search_gain_sem: float | None = None
    encoder_ms: float | None = None
    noise_variances: list[float] | None = None
    mean_db: float | None = None
    mean_db_sem: float | None = None
    mse_db: float | None = None
    mse_db_integrated: float | None = None
    mse_db_integrated_sem: float | None = None
    mse_db_low: float | None = None
    mse_db_high: float | None = None
    missed_messages: int | None = None
    core_db: float | None = None
    far_messages: int | None = None
    far_share_integrated: float | None = None


_TYPES = {field.name: str(field.type).removesuffix(" | None") for field in fields(Record)}


def _record(values: dict[str, Any]) -> Record:
    """A record from what a file has.

    Raises:
        TypeError: a field is unknown, missing, or not of its type.
    """
    if not isinstance(values, dict):
        raise TypeError(f"a record of type {type(values).__name__}")
    for name, kind in _TYPES.items():
        if (value := values.get(name)) is not None and not _is(value, kind):
            raise TypeError(f"{name} {value!r}")
    return Record(**values)


def _is(value: object, kind: str) -> bool:
    if kind.startswith("list"):
        return isinstance(value, list) and all(_is(part, "float") for part in value)
    kinds: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float)}
    return isinstance(value, kinds[kind]) and not isinstance(value, bool)


@dataclass(frozen=True)
class Results:
    """A run: its configuration and its cells."""

    configuration: dict[str, Any]
    records: Sequence[Record]

    def write(self, folder: Path) -> Path:
        """Write ``results.json`` and return its path; killed at any time, the old file or the new one is there."""
        records = [{name: v for name, v in asdict(r).items() if v is not None} for r in self.records]
        path = folder / RESULTS_NAME
        body = {"configuration": self.configuration, "records": records}
        write_whole(path, json.dumps(body, indent=1) + "\n")
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
            records = [_record(record) for record in body["records"]]
            return cls(dict(body["configuration"]), records)
        except (ValueError, TypeError, KeyError) as error:
            names = ", ".join(field.name for field in fields(Record))
            raise CodecError(str(path), str(error), f"configuration and records with {names}") from error
