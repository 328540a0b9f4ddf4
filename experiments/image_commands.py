"""Commands of ``python -m experiments`` that deal with images: ``train``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gumbelcast.program import EXIT_INPUT, fail

Out = Annotated[Path, typer.Option(help="Folder for everything that is written.")]
Data = Annotated[
    Path | None,
    typer.Option(help="Folder with MNIST/raw, or cifar10.npz or cifar-10-batches-py; else torchvision downloads."),
]


def train(
    out: Out,
    dataset: Annotated[str, typer.Argument(help="mnist or cifar10.")],
    data: Data = None,
    recipe: Annotated[str, typer.Option(help="How to train: paper.")] = "paper",
    beta: Annotated[
        float | None, typer.Option(min=0.0, help="Weight of the rate (nats) against squared error (paper).")
    ] = None,
    epochs: Annotated[int, typer.Option(min=1, help="Passes over the training images.")] = 40,
    batch: Annotated[int, typer.Option(min=8, help="Images a step.")] = 128,
    learning_rate: Annotated[float, typer.Option(min=0.0, help="Adam's first step size.")] = 1e-3,
    seed: Annotated[int, typer.Option(help="Seed of weights, order, crops and latents.")] = 1,
    tensorboard: Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard logs as well.")] = False,
) -> None:
    """Train an image model; the same command goes on after an interruption."""
    from experiments.datasets import load_images, task_of
    from experiments.recipes import recipe_kind, recipe_options
    from experiments.training import TrainingData, TrainingOptions
    from experiments.training import train as run

    try:
        chosen = recipe_options(recipe, {"beta": beta})
        task = task_of(dataset)
        source = TrainingData(task, load_images(dataset, data, train=True), f"{dataset} --data DIR")
        options = TrainingOptions(epochs, batch, learning_rate, seed)
        make = recipe_kind(recipe).make
        card = run(lambda: make(task, chosen), source, out, options, tensorboard=tensorboard)
    except (ValueError, OSError) as error:
        fail(error, EXIT_INPUT)
    print(f"model {card.digest.hex()[:16]} in {out}: {card.training['metrics']}")
