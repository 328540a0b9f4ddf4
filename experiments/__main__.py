"""Command line of the experiments: ``python -m experiments demo | gaussian | bench | train`` (``gumbelcast``)."""

from __future__ import annotations

import os
import platform
import shlex
import signal
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from gumbelcast.program import EXIT_INPUT, fail

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Experiments with the distributed lossy codec. Exit codes: 0 done, 2 usage, 3 refused input, "
    "5 a service failed.",
)
train_app = typer.Typer(no_args_is_help=True, help="Train a model.")
app.add_typer(train_app, name="train")

EXIT_SERVICE = 5
"""A service did not start, or a decoder missed messages."""

Out = Annotated[Path, typer.Option(help="Folder for everything that is written.")]


def _numbers(text: str) -> tuple[int, ...]:
    """A comma-separated list of numbers, as an option gives it."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"got {text!r}, expected numbers with commas between them") from None


def _configuration(started: float) -> dict[str, Any]:
    """What every run says of itself."""
    return {
        "command": shlex.join(["python", "-m", "experiments", *sys.argv[1:]]),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "gumbelcast": version("gumbelcast"),
        "numpy": version("numpy"),
        "torch": version("torch"),
        "python": platform.python_version(),
        "processors": os.cpu_count(),
        "seconds": round(time.perf_counter() - started, 1),
    }


@app.command()
def demo(
    out: Out,
    digits: Annotated[int, typer.Option(help="Digits to send, 1 … 1000.")] = 1000,
    bins: Annotated[str, typer.Option(help="Values of L_max.")] = "4,8,16,32,64",
    decoders: Annotated[str, typer.Option(help="Values of K.")] = "1,2,3,4",
    pool_size: Annotated[int, typer.Option(help="N, candidates a message.")] = 256,
    seed: Annotated[int, typer.Option(help="Seed of the common randomness.")] = 1,
) -> None:
    """Run the main job: an encoder and decoders as processes, real digits, table, plots and report."""
    import grpc

    from experiments import plots, report
    from experiments.demo import MODEL, DemoOptions, run_demo
    from experiments.processes import ServiceFailed
    from experiments.results import Results
    from shared_rng import find_model, load_card

    # Stopped by SIGTERM, the services must be stopped as well.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    started = time.perf_counter()
    try:
        options = DemoOptions(digits, _numbers(bins), _numbers(decoders), pool_size, seed)
        card = load_card(find_model(MODEL))
        out.mkdir(parents=True, exist_ok=True)
        records, example = run_demo(options)
    except (ValueError, OSError) as error:
        fail(error, EXIT_INPUT)
    except (ServiceFailed, RuntimeError) as error:
        fail(error, EXIT_SERVICE)
    except grpc.RpcError as error:
        fail(f"{error.code().name}: {error.details()}", EXIT_SERVICE)
    configuration = {**_configuration(started), **asdict(options), "model": MODEL, "model_digest": card.digest.hex()}
    results = Results(configuration, records)
    rows = [report.image_row(record) for record in records]
    report.print_table(f"MNIST, {digits} digits, best of K", report.IMAGE_COLUMNS, rows)
    results.write(out)
    plots.rate_distortion(records, out / "rate_distortion.png")
    plots.examples(example, out / "examples.png")
    page = report.write_report(results, out, out / "rate_distortion.png", out / "examples.png")
    print(f"results.json, rate_distortion.png, examples.png and report.html are in {page.parent}")


@app.command()
def gaussian(
    out: Out,
    decoders: Annotated[str, typer.Option(help="Values of K.")] = "1,2,3,4",
    bins: Annotated[str, typer.Option(help="Values of L_max.")] = "2,4,8,16,32,64",
    trials: Annotated[int, typer.Option(help="Messages a cell.")] = 20000,
    seed: Annotated[int, typer.Option(help="Seed of sources, side information and common randomness.")] = 1,
) -> None:
    """Run the Gaussian source of the paper's table 10 (GLS) and compare."""
    from experiments import report
    from experiments.gaussian import GaussianOptions, run_gaussian
    from experiments.results import Results

    started = time.perf_counter()
    try:
        options = GaussianOptions(_numbers(decoders), _numbers(bins), trials, seed)
        out.mkdir(parents=True, exist_ok=True)
        records = list(run_gaussian(options))
    except (ValueError, OSError) as error:
        fail(error, EXIT_INPUT)
    rows = [report.gaussian_row(record) for record in records]
    title = f"Gaussian source, {trials} messages a cell; mean_db is the paper's metric, mse_db the dB of the MSE"
    report.print_table(title, report.GAUSSIAN_COLUMNS, rows)
    path = Results({**_configuration(started), **asdict(options)}, records).write(out)
    print(f"wrote {path}")


@app.command()
def bench(out: Out) -> None:
    """Measure speed as ratios to NumPy scans, growth with N, memory, and messages a second through the services."""
    from experiments import bench as measure
    from experiments import report
    from experiments.processes import ServiceFailed

    # Stopped by SIGTERM, the services must be stopped as well.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    started = time.perf_counter()
    try:
        out.mkdir(parents=True, exist_ok=True)
        measured = measure.run_bench()
        path = measured.write(out, _configuration(started))
    except (ValueError, OSError) as error:
        fail(error, EXIT_INPUT)
    except (ServiceFailed, RuntimeError) as error:
        fail(error, EXIT_SERVICE)
    title = "Microseconds of processor time a message, and ratios (×) to scans over all N candidates"
    report.print_table(title, measure.COLUMNS, [measure.row(cell) for cell in measured.cells])
    print("\n".join(measure.summary(measured)))
    print(f"wrote {path}")


@train_app.command()
def mnist(
    out: Out,
    data: Annotated[
        Path | None, typer.Option(help="Folder with MNIST/raw; by default torchvision downloads it.")
    ] = None,
    beta: Annotated[float, typer.Option(min=0.0, help="Weight of the rate (nats) against squared error.")] = 7.0,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training digits.")] = 40,
    batch: Annotated[int, typer.Option(min=8, help="Digits a step.")] = 128,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="Adam's first step size.")] = 1e-3,
    seed: Annotated[int, typer.Option(help="Seed of weights, order, crops and latents.")] = 1,
) -> None:
    """Train the MNIST model; the same command goes on after an interruption."""
    from experiments import images
    from experiments.train import TrainingOptions, train_mnist

    try:
        digits = images.mnist_digits(data, train=True)
        options = TrainingOptions(beta=beta, epochs=epochs, batch=batch, learning_rate=learning_rate, seed=seed)
        card = train_mnist(digits, out, options)
    except (ValueError, OSError) as error:
        fail(error, EXIT_INPUT)
    print(f"model {card.digest.hex()[:16]} in {out}: {card.training['metrics']}")


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
