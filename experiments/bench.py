"""How fast the compiled races are, as ratios to NumPy scans over all N candidates in the same run.

Two scans are the yardsticks, both in vectorised float64. One weighs every candidate of the same session and must
give the same picks. The other does so with races told candidate by candidate, which is the fastest full scan there
is; its picks are other draws. A ratio is the median over rounds that measure both sides one after the other.
"""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from experiments.progress import progress
from experiments.throughput import Throughput, measure_throughput
from experiments.timing import BINS, MESSAGES, code, open_iid, open_lattice, paper_card, scan

BENCH_NAME = "bench.json"
DECODERS = (1, 2, 3, 4)
POOL_SIZE = 2**15
GROWTH_SIZES = tuple(2**power for power in range(10, 25, 2))
GROWTH_CELLS = ((1, 4), (2, 16), (4, 64))
LARGEST_POOL = 2**24

_ROUNDS = 5
_SCANNED = 4
"""Messages that a scan takes at once: more or fewer are slower, by the processor's caches."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One cell; microseconds a message, the decoders' being those of all K together.

    Attributes:
        pool: ``iid`` (the paper's) or ``lattice``.
        decoders: K.
        bins: L_max.
        pool_size: N.
        noise_variance: s², the paper's best of the cell; None on a lattice.
        encoder_us: compiled encoder, from source to payload.
        decoders_us: compiled decoders, from payload to reconstructions.
        scan_encoder_us: encoder by a scan of the same session.
        scan_decoders_us: decoders by a scan of the same session, which share the bin's candidates.
        ratio_encoder: scan's time over the compiled one's.
        ratio_decoders: the same of the decoders.
        ratio: the same of both together.
        ratio_index_scan: both together, against a scan with races told candidate by candidate.
    """

    pool: str
    decoders: int
    bins: int
    pool_size: int
    noise_variance: float | None
    encoder_us: float
    decoders_us: float
    scan_encoder_us: float
    scan_decoders_us: float
    ratio_encoder: float
    ratio_decoders: float
    ratio: float
    ratio_index_scan: float


@dataclass(frozen=True)
class Growth:
    """Microseconds a message of both ends together, by N, and the largest over the smallest."""

    decoders: int
    bins: int
    microseconds: dict[int, float]
    ratio: float


@dataclass(frozen=True)
class Memory:
    """Growth of a process's peak memory by a session, its messages included, and what one pool would take."""

    pool_size: int
    messages: int
    peak_growth_mib: float
    one_pool_mib: float


@dataclass(frozen=True)
class Bench:
    """All that is measured."""

    cells: list[Cell]
    growth: list[Growth]
    memory: Memory
    throughput: Throughput

    def write(self, folder: Path, configuration: dict[str, Any]) -> Path:
        """Write ``bench.json``; returns its path."""
        path = folder / BENCH_NAME
        path.write_text(json.dumps({"configuration": configuration} | asdict(self), indent=1) + "\n", encoding="utf-8")
        return path


COLUMNS = (
    "pool", "K", "L_max", "N", "s²", "encoder µs", "decoders µs", "scan µs", "× encoder", "× decoders", "× both",
    "× both, index scan",
)  # fmt: skip


def row(cell: Cell) -> list[str]:
    """One line of the table."""
    times = (cell.encoder_us, cell.decoders_us, cell.scan_encoder_us + cell.scan_decoders_us)
    ratios = (cell.ratio_encoder, cell.ratio_decoders, cell.ratio, cell.ratio_index_scan)
    return [
        cell.pool,
        str(cell.decoders),
        str(cell.bins),
        str(cell.pool_size),
        "" if cell.noise_variance is None else f"{cell.noise_variance:g}",
        *(f"{value:.3g}" for value in times),
        *(f"{value:.0f}" for value in ratios),
    ]


def summary(bench: Bench) -> list[str]:
    """The measurements that are no cells, in words."""
    memory, sent = bench.memory, bench.throughput
    groups: dict[str, Callable[[Cell], bool]] = {
        "K = 1": lambda cell: cell.decoders == 1,
        "L_max <= 8": lambda cell: cell.bins <= 8,
        "K = 4 and L_max = 64": lambda cell: (cell.decoders, cell.bins) == (4, 64),
    }
    lowest = []
    for name, chosen in groups.items():
        cells = [cell for cell in bench.cells if cell.pool == "iid" and chosen(cell)]
        if cells:
            against = min(cell.ratio for cell in cells), min(cell.ratio_index_scan for cell in cells)
            lowest.append("{}: {:.0f} and {:.0f}".format(name, *against))
    return [
        f"lowest ratios of an iid pool to the scan and to the index scan; {'; '.join(lowest)}",
        *(
            f"N from 2^10 to 2^24, K = {g.decoders}, L_max = {g.bins}: "
            f"{min(g.microseconds.values()):.1f} … {max(g.microseconds.values()):.1f} µs a message, ratio {g.ratio:.2f}"
            for g in bench.growth
        ),
        f"N = 2^24, {memory.messages} messages at both ends: peak memory grew by {memory.peak_growth_mib:.1f} MiB, "
        f"one pool is {memory.one_pool_mib:.0f} MiB",
        f"services, K = {sent.decoders}, L_max = {sent.bins}, batches of {sent.batch}: "
        f"{sent.messages_per_second:.0f} messages/s; processor time a message {sent.processor_us:.2f} µs: "
        f"encoding {sent.encoder_us:.2f}, decoding {sent.decoders_us:.2f}, "
        f"serialisation {sent.serialisation_us:.2f}, transport and the rest {sent.transport_us:.2f}",
    ]


def run_bench() -> Bench:
    """Measure everything; a few minutes.

    Raises:
        RuntimeError: a compiled race and its scan gave different picks, or a decoder missed messages.
        ServiceFailed: a service did not start.
    """
    cells = [(pool, k, bins) for pool in ("iid", "lattice") for k in DECODERS for bins in BINS]
    with progress() as bar:
        task = bar.add_task("races", total=len(cells) + len(GROWTH_CELLS) + 2)

        def step(description: str) -> None:
            bar.update(task, description=description, advance=1)

        measured = []
        for pool, k, bins in cells:
            measured.append(measure_cell(pool, k, bins))
            step(f"{pool}, K = {k}, L_max = {bins}")
        growth = []
        for k, bins in GROWTH_CELLS:
            growth.append(measure_growth(k, bins))
            step(f"growth with N, K = {k}, L_max = {bins}")
        memory = measure_memory()
        step("memory")
        throughput = measure_throughput()
        step("throughput")
    return Bench(measured, growth, memory, throughput)


def measure_cell(pool: str, decoders: int, bins: int) -> Cell:
    """Time both ends, compiled and by the scans.

    Raises:
        RuntimeError: picks differ.
    """
    ends = open_lattice(decoders, bins) if pool == "lattice" else open_iid(decoders, bins, POOL_SIZE)
    session = ends.session
    # A lattice's races are told candidate by candidate already.
    fastest = ends if pool == "lattice" else open_iid(decoders, bins, POOL_SIZE, "index")
    rounds = []
    code(ends)  # compiles, or loads what is compiled
    for number in range(_ROUNDS):
        rows = slice(number * _SCANNED, (number + 1) * _SCANNED)
        compiled, picks = code(ends)
        scanned, scan_picks = scan(ends, rows)
        if not np.array_equal(picks[:, rows], scan_picks):
            raise RuntimeError(f"{pool}, K = {decoders}, L_max = {bins}: picks differ from those of the scan")
        rounds.append((compiled, scanned, scan(fastest, rows)[0]))
    # [rounds, compiled | scan | fastest scan, encoder | decoders], microseconds a message
    times = np.array(rounds)
    middle = np.median(times, axis=0)
    both = times.sum(axis=2)
    apart = np.median(times[:, 1] / times[:, 0], axis=0)
    return Cell(
        pool=pool,
        decoders=decoders,
        bins=bins,
        pool_size=session.pool_size,
        noise_variance=paper_card(decoders, bins).number("noise_variance") if pool == "iid" else None,
        encoder_us=float(middle[0, 0]),
        decoders_us=float(middle[0, 1]),
        scan_encoder_us=float(middle[1, 0]),
        scan_decoders_us=float(middle[1, 1]),
        ratio_encoder=float(apart[0]),
        ratio_decoders=float(apart[1]),
        ratio=float(np.median(both[:, 1] / both[:, 0])),
        ratio_index_scan=float(np.median(both[:, 2] / both[:, 0])),
    )


def measure_growth(decoders: int, bins: int) -> Growth:
    """Time both ends together for all sizes of the pool, in turns."""
    ends = [open_iid(decoders, bins, size) for size in GROWTH_SIZES]
    code(ends[0])
    rounds = np.array([[sum(code(each)[0]) for each in ends] for _ in range(_ROUNDS)])
    times = np.median(rounds, axis=0)
    by_size = dict(zip(GROWTH_SIZES, times.tolist(), strict=True))
    return Growth(decoders, bins, by_size, float(times.max() / times.min()))


def measure_memory() -> Memory:
    """Growth of the peak memory, in a process of its own."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
        growth = executor.submit(_peak_growth).result()
    return Memory(LARGEST_POOL, MESSAGES, growth / 2**20, LARGEST_POOL * 8 / 2**20)


def _peak_growth() -> int:
    """Bytes by which a session with the largest pool, coding all its messages, raises this process's peak."""
    warm, largest = (open_iid(2, 16, size) for size in (2**13, LARGEST_POOL))
    code(warm.first(1))  # loads what is compiled
    before = _peak_bytes()
    code(largest)
    return _peak_bytes() - before


def _peak_bytes() -> int:
    """Peak memory of this process. ``getrusage`` would count that of the parent before the start as well."""
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024
