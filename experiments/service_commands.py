"""Commands of ``python -m experiments`` on running services: ``status``, ``bench``, ``load`` and ``chaos``."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from experiments.run_configuration import configuration, values
from gumbelcast.options import Insecure, TlsCa, TlsCert, TlsKey
from gumbelcast.program import EXIT_INPUT, fail
from gumbelcast.security import Security

EXIT_SERVICE = 5
"""A service did not start, or a decoder missed messages."""

Out = Annotated[Path, typer.Option(help="Folder for everything that is written.")]


@contextlib.contextmanager
def services_end() -> Iterator[None]:
    """Stopped by SIGTERM, the block's services are stopped as well; what fails is one line and an exit code."""
    import grpc

    from experiments.processes import ServiceFailed

    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        yield
    except (ValueError, OSError) as error:
        fail(error, EXIT_INPUT)
    except (ServiceFailed, RuntimeError) as error:
        fail(error, EXIT_SERVICE)
    except grpc.RpcError as error:
        fail(f"{error.code().name}: {error.details()}", EXIT_SERVICE)


def status(
    services: Annotated[list[str], typer.Argument(help="host:port of encoders and decoders.")],
    seconds: Annotated[float, typer.Option(min=0.0, help="Time over which the rate is measured.")] = 1.0,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    insecure: Insecure = False,
) -> None:
    """Show sessions, positions, lags, rates and errors of running services; exit code 5 if one is not serving."""
    from experiments import report
    from experiments.status import COLUMNS, status_rows

    try:
        rows, notes, serving = status_rows(services, Security(tls_cert, tls_key, tls_ca, insecure=insecure), seconds)
    except (ValueError, OSError) as error:
        fail(error, EXIT_INPUT)
    report.print_table("Services", COLUMNS, rows)
    print(*notes, sep="\n", end="\n" if notes else "")
    if not serving:
        sys.exit(EXIT_SERVICE)


def bench(out: Out) -> None:
    """Measure speed as ratios to NumPy scans, growth with N, memory, and messages a second through the services."""
    from experiments import bench as measure
    from experiments import report

    started = time.perf_counter()
    with services_end():
        out.mkdir(parents=True, exist_ok=True)
        measured = measure.run_bench()
        path = measured.write(out, configuration(started))
    title = "Microseconds of processor time a message, and ratios (×) to scans over all N candidates"
    report.print_table(title, measure.COLUMNS, [measure.row(cell) for cell in measured.cells])
    print("\n".join(measure.summary(measured)))
    print(f"wrote {path}")


def chaos(
    out: Out,
    seconds: Annotated[float, typer.Option(help="How long faults happen.")] = 60.0,
    decoders: Annotated[int, typer.Option(help="K.")] = 3,
    seed: Annotated[int, typer.Option(help="Seed of data, common randomness and faults.")] = 1,
) -> None:
    """Kill, stop and cut off services under load, and check that every accepted message is decoded once, and right."""
    from experiments import chaos as faults

    started = time.perf_counter()
    with services_end():
        out.mkdir(parents=True, exist_ok=True)
        happened = faults.run_chaos(seconds, decoders, seed, partial(print, flush=True))
        path = happened.write(out, configuration(started))
    print("\n".join(happened.summary()))
    print(f"wrote {path}")
    if happened.lost or happened.duplicates or happened.wrong:
        raise SystemExit(EXIT_SERVICE)


def load(
    out: Out,
    schemes: Annotated[str, typer.Option(help="Some of lattice, iid (N = 2^15) and images (the demo's).")] = (
        "lattice,iid,images"
    ),
    decoders: Annotated[str, typer.Option(help="Values of K.")] = "1,4,16",
    batches: Annotated[str, typer.Option(help="Messages a batch.")] = "1,16,256,4096",
    messages: Annotated[int, typer.Option(help="Messages a cell, at most; no more than 200 batches.")] = 20000,
    soak: Annotated[int, typer.Option(help="Messages over which the memory is watched; 0 for none.")] = 1_000_000,
) -> None:
    """Measure messages a second, bytes a message and latency of running services by batch size, and their memory."""
    from experiments import load as measure
    from experiments import report

    started = time.perf_counter()
    with services_end():
        out.mkdir(parents=True, exist_ok=True)
        numbers = values(decoders, int), values(batches, int)
        cells = measure.run_load(values(schemes, str), *numbers, messages, print)
        watched = measure.run_soak(soak, print) if soak else None
        path = measure.write(out, configuration(started), cells, watched)
    title = "Services on loopback; bytes a message, transport to one decoder; time of one batch until it is accepted"
    report.print_table(title, measure.COLUMNS, [measure.row(cell) for cell in cells])
    if watched is not None:
        growth = ", ".join(f"{name} {mib:+.1f} MiB" for name, mib in watched.growth().items())
        print(f"memory from {watched.messages[0]} to {watched.messages[-1]} messages: {growth}")
    print(f"wrote {path}")
