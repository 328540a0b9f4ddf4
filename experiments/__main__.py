"""Command line: ``python -m experiments demo | gaussian | sweep | toy`` and the commands of two other files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from experiments import image_commands, service_commands
from experiments.run_configuration import configuration, values
from experiments.service_commands import Out, services_end
from gumbelcast.program import EXIT_INPUT, fail

if TYPE_CHECKING:
    from experiments.results import Record

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Experiments with the distributed lossy codec. Exit codes: 0 done, 2 usage, 3 refused input, "
    "5 a service failed.",
)
app.command()(image_commands.train)
app.command()(image_commands.models)
app.command()(image_commands.search)
for command in (service_commands.status, service_commands.bench, service_commands.load, service_commands.chaos):
    app.command()(command)
sweep_app = typer.Typer(no_args_is_help=True, help="Measure every cell of a table of the paper.")
app.add_typer(sweep_app, name="sweep")

for dataset in ("mnist", "cifar10"):
    sweep_app.command(dataset)(image_commands.sweep_command(dataset))


@app.command()
def demo(
    out: Out,
    digits: Annotated[int, typer.Option(help="Digits to send, 2 … 1000.")] = 1000,
    bins: Annotated[str, typer.Option(help="Values of L_max.")] = "4,8,16,32,64",
    decoders: Annotated[str, typer.Option(help="Values of K.")] = "1,2,3,4",
    pool_size: Annotated[
        int | None, typer.Option(help="N, candidates a message.", show_default="256, or what a model is made for")
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the common randomness.")] = 1,
    model: Annotated[
        list[str] | None,
        typer.Option(
            help="Model of MNIST digits, name or folder; repeat it.", show_default="mnist and shipped list models"
        ),
    ] = None,
) -> None:
    """Run the main job: an encoder and decoders as processes, real digits, table, plots and report."""
    from experiments import plots, report
    from experiments.demo import MODEL, DemoOptions, run_demo, tuned_models
    from experiments.results import Results
    from shared_rng import find_model, load_card

    started = time.perf_counter()
    with services_end():
        names = tuple(model) if model else (MODEL, *tuned_models())
        options = DemoOptions(digits, values(bins, int), values(decoders, int), pool_size, seed, names)
        digests = [load_card(find_model(name)).digest.hex() for name in names]
        out.mkdir(parents=True, exist_ok=True)
        records, example = run_demo(options)
    described = {**configuration(started), **asdict(options), "model_digests": digests}
    results = Results(described, records)
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
    trials: Annotated[int, typer.Option(help="Messages a cell; a tenth as many choose s².")] = 20000,
    seed: Annotated[int, typer.Option(help="Seed of sources, side information and common randomness.")] = 1,
) -> None:
    """Run the Gaussian sweep with GLS alone (the paper's table 10), once; the same command goes on."""
    _sweep(
        out,
        os.cpu_count() or 1,
        schemes=("iid", "lattice", "narrow"),
        couplings=("gls",),
        decoders=values(decoders, int),
        bins=values(bins, int),
        choose_trials=max(10, trials // 10),
        trials=trials,
        seed=seed,
    )


@sweep_app.command("gaussian")
def sweep_gaussian(
    out: Out,
    schemes: Annotated[
        str | None,
        typer.Option(
            help="Some of iid (the paper's pool), lattice, narrow, and references: search, common, nested, tables, "
            "blocks, e8, random, entropy.",
            show_default="all; entropy where its package constriction is installed",
        ),
    ] = None,
    couplings: Annotated[str, typer.Option(help="gls, baseline or both.")] = "gls,baseline",
    decoders: Annotated[str, typer.Option(help="Values of K.")] = "1,2,3,4",
    bins: Annotated[str, typer.Option(help="Values of L_max.")] = "2,4,8,16,32,64",
    variances: Annotated[
        str, typer.Option(help="Values of s² to choose from (iid).")
    ] = "0.01,0.008,0.006,0.005,0.003,0.002,0.001",
    choose_trials: Annotated[int, typer.Option(help="Messages on which each s² is tried.")] = 10000,
    trials: Annotated[int, typer.Option(help="Fresh messages on which the chosen s² is evaluated.")] = 100000,
    repetitions: Annotated[int, typer.Option(help="Times that both are done.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of sources, side information and common randomness.")] = 1,
    workers: Annotated[int | None, typer.Option(help="Threads that work at once.", show_default="all cores")] = None,
) -> None:
    """Reproduce tables 10 and 11, with our schemes and references; the same command goes on after an interruption."""
    from experiments.reference_cells import available_schemes

    _sweep(
        out,
        workers if workers is not None else os.cpu_count() or 1,
        schemes=available_schemes() if schemes is None else values(schemes, str),
        couplings=values(couplings, str),
        decoders=values(decoders, int),
        bins=values(bins, int),
        variances=values(variances, float),
        choose_trials=choose_trials,
        trials=trials,
        repetitions=repetitions,
        seed=seed,
    )


def _sweep(out: Path, workers: int, **options: Any) -> None:
    from experiments import gaussian_plots, match_plots, report
    from experiments.sweep import SweepOptions, run_sweep

    try:
        results = run_sweep(SweepOptions(**options), out, workers, configuration(time.perf_counter()))
    except (ValueError, OSError) as error:
        fail(error, EXIT_INPUT)
    title = "Gaussian source, best of K; mean_db is the paper's metric, mse_db the dB of the MSE"
    report.print_table(title, report.GAUSSIAN_COLUMNS, [report.gaussian_row(record) for record in results.records])
    print(report.agreement(results.records))
    plots: dict[str, Callable[[Sequence[Record], Path], None]] = {"mse_db.png": gaussian_plots.mse_decibels}
    # Cells that were only integrated have neither of the others.
    if any(record.mean_db is not None for record in results.records):
        plots["mean_db.png"] = gaussian_plots.mean_decibels
    if any(record.match_probability is not None for record in results.records):
        plots["match.png"] = match_plots.match_against_bits
    for name, plot in plots.items():
        plot(results.records, out / name)
    print(f"results.json, {', '.join(plots)} are in {out}")


@app.command()
def toy(out: Out) -> None:
    """Match probability of GLS for 100 random pairs of distributions, with its bound, K = 1 … 20."""
    from experiments import match_plots, report
    from experiments.results import Results
    from experiments.toy import LETTERS, PAIRS, SEED, run_toy

    started = time.perf_counter()
    try:
        out.mkdir(parents=True, exist_ok=True)
        records = run_toy()
        numbers = {"experiment": "toy", "pairs": PAIRS, "letters": LETTERS, "seed": SEED}
        Results({**configuration(started), **numbers}, records).write(out)
        match_plots.match_against_decoders(records, out / "toy.png")
    except (ValueError, OSError) as error:
        fail(error, EXIT_INPUT)
    title = f"Means over {PAIRS} random pairs, {LETTERS} letters"
    report.print_table(title, report.TOY_COLUMNS, [report.toy_row(record) for record in records])
    print(f"results.json and toy.png are in {out}")


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
