"""Commands of ``python -m experiments`` for images: ``train``, ``models``, ``search`` and ``sweep mnist | cifar10``."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from experiments.run_configuration import configuration, values
from gumbelcast.program import EXIT_INPUT, fail
from shared_rng import CodecError

if TYPE_CHECKING:
    from encoder.image_task import Side
    from experiments.training import TrainingData  # at run time it would bring in torch

QUICK: dict[str, Any] = {
    "messages": 1000,
    "coding_seeds": 1,
    "choose_messages": 300,
    "largest_pool": 256,
    "epochs": 3,
}
"""Options of ``sweep --quick``: less training, fewer messages, small pools."""
MAX_SEED = 2**63 - 1
_FEWEST = 10
"""Images of a user's: with fewer none would be held out."""

Out = Annotated[Path, typer.Option(help="Folder for everything that is written.")]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder with MNIST/raw, or cifar10.npz or cifar-10-batches-py; else torchvision downloads."),
]


@dataclass(frozen=True)
class OwnImages:
    """What ``train`` is told of a user's images: where they are, their size, and how they are split."""

    path: Path | None
    size: tuple[int, int] | None
    side: str | None
    crop: int | None


def training_data(dataset: str | None, folder: Path | None, own: OwnImages, batch: int) -> TrainingData:
    """The images to train on, of a data set by name or of the user.

    Raises:
        CodecError: both or none are given, a size is missing or for a data set, or an image does not fit; the file is
            named.
    """
    from encoder.image_task import ImageTask
    from encoder.whole_images import WantedImages, read_images
    from experiments.datasets import load_images, task_of
    from experiments.training import TrainingData

    if own.path is None:
        for name, value in (("--size", own.size), ("--side", own.side), ("--crop", own.crop)):
            if value is not None:
                raise CodecError(name, value, "--images as well; those of data sets are given")
        task = task_of(dataset or "")
        return TrainingData(task, load_images(task.name, folder, train=True), f"{task.name} --data DIR")
    if dataset is not None:
        raise CodecError("data set", f"{dataset} and --images", "one of them")
    if folder is not None:
        raise CodecError("--data", f"{folder} and --images", "one of them")
    if own.size is None or own.crop is None:
        raise CodecError("--images", "no --size or no --crop", "both: --size HEIGHT WIDTH --crop PIXELS")
    images = read_images(own.path, WantedImages("--images", (own.size,), "as --size has it"))
    path, side = own.path.absolute(), cast("Side", own.side or "left")
    task = ImageTask(path.stem, *own.size, channels=3 if images.ndim == 4 else 1, side=side, crop=own.crop)
    if len(images) < _FEWEST:
        raise CodecError(str(own.path), f"{len(images)} images", f"at least {_FEWEST}, of which a tenth is held out")
    training = len(images) - len(images) // 10
    if training < batch:
        raise CodecError(
            str(own.path), f"{len(images)} images", f"{batch} without the last tenth, or a smaller --batch"
        )
    height, width = own.size
    arguments = f"--images {shlex.quote(path.name)} --size {height} {width} --side {side} --crop {own.crop}"
    return TrainingData(task, images, arguments)


def train(
    out: Out,
    dataset: Annotated[str | None, typer.Argument(help="mnist or cifar10; or --images.")] = None,
    data: Data = None,
    images: Annotated[
        Path | None, typer.Option(help="Your own: a folder of pictures, or a .npz, .npy or IDX file of 8-bit images.")
    ] = None,
    size: Annotated[tuple[int, int] | None, typer.Option(help="Height and width of your images.")] = None,
    side: Annotated[
        str | None,
        typer.Option(help="Half that decoders see crops of: left, right, top, bottom.", show_default="left"),
    ] = None,
    crop: Annotated[int | None, typer.Option(help="Height and width of a crop.")] = None,
    recipe: Annotated[
        str, typer.Option(help="How to train: paper, region, discrete, list or quantiser; or the reference zero-bits.")
    ] = "paper",
    beta: Annotated[
        float | None, typer.Option(min=0.0, help="Weight of the rate (nats) against squared error (paper).")
    ] = None,
    architecture: Annotated[
        str | None, typer.Option(help="Networks: small or paper (convolutional; wants a GPU) (paper).")
    ] = None,
    decoders: Annotated[int | None, typer.Option(help="K that the model is for (all but paper).")] = None,
    bins: Annotated[
        int | None, typer.Option(help="L_max that the model is for (region, discrete, list, quantiser).")
    ] = None,
    pool_size: Annotated[int | None, typer.Option(help="N that the model is for (region).")] = None,
    start: Annotated[
        str | None,
        typer.Option(help="Model of the same kind, name or folder, to start from (region, discrete, list, quantiser)."),
    ] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Passes over the training images.")] = None,
    batch: Annotated[int | None, typer.Option(min=8, help="Images a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(min=0.0, help="Adam's first step size.")] = None,
    ramp: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Share of steps in which it rises.")] = None,
    clip: Annotated[float | None, typer.Option(min=0.0, help="Norm at which the gradient is cut.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Seed of weights, order, crops and latents.")] = 1,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard logs as well.")] = False,
) -> None:
    """Train an image model; the same command goes on after an interruption. Defaults are the recipe's."""
    from experiments.recipes import recipe_kind, recipe_options
    from experiments.training import train as run

    try:
        chosen = recipe_options(
            recipe,
            {
                "beta": beta,
                "architecture": architecture,
                "decoders": decoders,
                "bins": bins,
                "pool_size": pool_size,
                "start": start,
            },
        )
        kind = recipe_kind(recipe)
        source = training_data(dataset, data, OwnImages(images, size, side, crop), batch or kind.training.batch)
        options = kind.training_of(source.task, start)
        options = replace(
            options,
            epochs=epochs or options.epochs,
            batch=batch or options.batch,
            learning_rate=options.learning_rate if learning_rate is None else learning_rate,
            seed=seed,
            ramp=options.ramp if ramp is None else ramp,
            clip=options.clip if clip is None else clip,
        )
        make = kind.make
        card = run(lambda: make(source.task, chosen), source, out, options, tensorboard=tensorboard)
    except (ValueError, OSError) as error:
        fail(error, EXIT_INPUT)
    print(f"model {card.digest.hex()[:16]} in {out}: {card.training['metrics']}")


def models(
    folder: Annotated[Path | None, typer.Option(help="Folder of model folders.", show_default="shipped models")] = None,
) -> None:
    """List models with what their cards tell; every name serves as --model."""
    from experiments import catalogue, report

    try:
        found = catalogue.shipped_models() if folder is None else catalogue.models_in(folder)
        rows = [catalogue.row(model) for model in found]
    except (ValueError, OSError) as error:
        fail(error, EXIT_INPUT)
    report.print_table("Models", catalogue.COLUMNS, rows)


def search(
    out: Out,
    dataset: Annotated[str, typer.Argument(help="mnist or cifar10.")],
    model: Annotated[list[str], typer.Option(help="A model, name or folder; repeat it.")],
    data: Data = None,
    search: Annotated[int, typer.Option(help="Similar training images a source, J.")] = 16,
    messages: Annotated[int, typer.Option(help="Test images.")] = 2000,
    decoders: Annotated[int | None, typer.Option(help="K.", show_default="the model's")] = None,
    bins: Annotated[int | None, typer.Option(help="L_max.", show_default="the model's")] = None,
    pool_size: Annotated[int | None, typer.Option(help="N, where a model leaves a choice.", show_default="256")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the common randomness.")] = 1,
) -> None:
    """Code test images with encoder search and without it, and tell the gain and what it costs."""
    from experiments import image_search, report
    from experiments.catalogue import named_models
    from experiments.results import Results

    started = time.perf_counter()
    try:
        options = image_search.ImageSearchOptions(dataset, search, messages, seed, decoders, bins, pool_size)
        out.mkdir(parents=True, exist_ok=True)
        records = image_search.compare(options, named_models(model, dataset), data)
        Results({**configuration(started), **asdict(options)}, records).write(out)
    except (ValueError, OSError) as error:
        fail(error, EXIT_INPUT)
    title = f"{dataset}, {records[0].messages} messages, encoder search with {search} similar images"
    report.print_table(title, image_search.COLUMNS, [image_search.row(record) for record in records])
    print(f"results.json is in {out}")


Recipes = Annotated[str, typer.Option(help="Recipes to measure, with commas between them.")]
Names = Annotated[
    list[str] | None,
    typer.Option("--model", help="A model to use wherever it serves; repeat it. Else models are trained."),
]
Models = Annotated[
    Path | None, typer.Option(help="Folder of trained models, shared by sweeps.", show_default="OUT/models")
]
Decoders = Annotated[str, typer.Option(help="Values of K.")]
Bins = Annotated[str, typer.Option(help="Values of L_max.")]
Messages = Annotated[int | None, typer.Option(help="Test images.", show_default="10000")]
CodingSeeds = Annotated[
    int | None, typer.Option(help="Seeds of common randomness; each codes all test images.", show_default="3")
]
ChooseMessages = Annotated[
    int | None, typer.Option(help="Held-out training images on which models and N are chosen.", show_default="1000")
]
Epochs = Annotated[
    int | None, typer.Option(min=1, help="Of models to be trained.", show_default="what suits the recipe")
]
TrainingSeed = Annotated[int, typer.Option(min=0, max=MAX_SEED, help="Of models to be trained.")]
Quick = Annotated[bool, typer.Option("--quick", help="A first impression within ten minutes; other options hold.")]
Processes = Annotated[int | None, typer.Option("--workers", min=1, help="Processes at once.", show_default="all cores")]


def sweep_command(dataset: str) -> Callable[..., None]:
    """The command that sweeps a data set."""

    def sweep(
        out: Out,
        data: Data = None,
        recipes: Recipes = "paper",
        model: Names = None,
        models: Models = None,
        decoders: Decoders = "1,2,3,4",
        bins: Bins = "4,8,16,32,64",
        messages: Messages = None,
        coding_seeds: CodingSeeds = None,
        choose_messages: ChooseMessages = None,
        epochs: Epochs = None,
        training_seed: TrainingSeed = 1,
        quick: Quick = False,
        workers: Processes = None,
    ) -> None:
        from experiments import image_report, report
        from experiments.catalogue import named_models
        from experiments.image_grid import ImageSweepOptions
        from experiments.image_sweep import ImageSweep

        numbers = {
            "messages": messages,
            "coding_seeds": coding_seeds,
            "choose_messages": choose_messages,
            "epochs": epochs,
        }
        started = time.perf_counter()
        try:
            options = ImageSweepOptions(
                dataset,
                values(recipes, str),
                values(decoders, int),
                values(bins, int),
                training_seed=training_seed,
                **(QUICK if quick else {}) | {name: number for name, number in numbers.items() if number is not None},
            )
            named = named_models(model or [], dataset)
            run = ImageSweep(options, data, out, named, models, configuration(started))
            results = run.run(workers or os.cpu_count() or 1)
            page = image_report.write_report(run, results)
        except (ValueError, OSError) as error:
            fail(error, EXIT_INPUT)
        title = f"{dataset}, {results.records[0].messages} messages a cell, best of K"
        report.print_table(title, *image_report.short_table(results.records))
        print(f"results.json, report.html and its plots are in {page.parent}")

    tables = {"mnist": "13 and 14 on MNIST", "cifar10": "15 and 16 on CIFAR-10"}[dataset]
    sweep.__doc__ = f"Measure tables {tables}, with training; the same command goes on after an interruption."
    return sweep
