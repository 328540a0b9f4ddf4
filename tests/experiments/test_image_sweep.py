"""A tiny image sweep with everything in it: training, choice, evaluation, and going on after an end."""

from __future__ import annotations

import io
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from decoder import load_decoder_model
from encoder import load_encoder_model
from experiments import image_sweep, image_training, images, paper_recipe
from experiments.catalogue import Model, named_models
from experiments.coding import code_in_process
from experiments.image_choices import Choices
from experiments.image_grid import ImageSweepOptions
from experiments.image_report import write_report
from experiments.image_sweep import ImageSweep
from experiments.image_work import Setting
from experiments.images import MNIST
from experiments.results import Record, Results
from shared_rng import Session, load_card
from tests.models import refused


def array(values: np.ndarray | np.floating) -> bytes:
    """The bytes of a .npy file."""
    file = io.BytesIO()
    np.save(file, values)
    return file.getvalue()


OPTIONS = ImageSweepOptions(
    "mnist", decoders=(1, 2), bins=(4, 16), messages=60, coding_seeds=2, choose_messages=20, largest_pool=64, epochs=1
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Few digits as torchvision lays them out: 300 to train on, 60 to test."""
    folder = tmp_path_factory.mktemp("data")
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    digits = images.bundled_digits(360)
    for name, part in (("train", digits[60:]), ("t10k", digits[:60])):
        header = b"\0\0\x08\x03" + np.array(part.shape, dtype=">u4").tobytes()
        (raw / f"{name}-images-idx3-ubyte").write_bytes(header + part.tobytes())
    return folder


def with_another_pixel(data: Path, copy: Path, part: str = "train") -> None:
    """A copy of the digits, but for the last pixel of one split."""
    shutil.copytree(data, copy)
    file = copy / "MNIST" / "raw" / f"{part}-images-idx3-ubyte"
    file.write_bytes(file.read_bytes()[:-1] + b"\1")


@pytest.fixture(scope="module")
def out(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a complete run with two models and two pool sizes to choose from."""
    folder = tmp_path_factory.mktemp("sweep")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(paper_recipe, "BETAS", (4.0, 8.0))
        patched.setattr(paper_recipe, "POOL_SIZES", (32, 64, 128))
        ImageSweep(OPTIONS, data, folder).run(2)
    return folder


def coded(out: Path) -> list[Record]:
    """All cells but the references."""
    return [record for record in Results.read(out).records if record.coupling != "none"]


def test_references(out: Path) -> None:
    """Nothing sent, with a network and a linear prediction for each K, and k-means for each L_max."""
    found = {(r.recipe, r.decoders, r.bins): r for r in Results.read(out).records if r.coupling == "none"}
    names = [
        ("components", 1, 1),
        ("k-means", 1, 1),
        ("k-means", 1, 4),
        ("k-means", 1, 16),
        *(("linear", k, 1) for k in (1, 2)),
        *(("zero-bits", k, 1) for k in (1, 2)),
    ]
    assert list(found) == names
    mse = {name: record.mse_paper or 0.0 for name, record in found.items()}
    assert mse["k-means", 1, 16] < mse["k-means", 1, 4] < mse["k-means", 1, 1]
    assert mse["components", 1, 1] < mse["k-means", 1, 1]
    assert mse["linear", 2, 1] < mse["linear", 1, 1]
    assert all(0.0 < value < 0.5 for value in mse.values())
    assert found["k-means", 1, 16].bits == 4
    assert found["linear", 2, 1].bits == 0


def test_pool_sizes(out: Path) -> None:
    """The effect of N, for the model of the middle cell."""
    found = [(r.decoders, r.bins, r.pool_size) for r in Results.read(out / "pool_sizes").records]
    assert found == [(k, bins, size) for size in (32, 64) for k in (1, 2) for bins in (4, 16)]


def same(record: Record) -> Record:
    """Without what differs between runs."""
    return replace(record, seconds=None)


def test_figures_are_those_of_sessions(out: Path) -> None:
    """Every cell, coded again in sessions of its own with the seeds that it names, gives the same figures."""
    records = coded(out)
    assert [(r.coupling, r.decoders, r.bins) for r in records] == [
        (c, k, b) for c in ("gls", "baseline") for k in (1, 2) for b in (4, 16)
    ]
    digits = images.bundled_digits(60)
    sources, sides = MNIST.sources(digits), [MNIST.side_information(digits, k) for k in range(2)]
    for record in records:
        card = load_card(out / "models" / str(record.model))
        ends = load_encoder_model(card), load_decoder_model(card)
        errors, matches, alone = [], [], []
        for seed in (1, 2):
            session = Session(
                seed=seed,
                pool_size=record.pool_size or 0,
                bins=record.bins,
                decoders=record.decoders,
                coupling=record.coupling,  # type: ignore[arg-type]
                latent_dimension=4,
                model_digest=card.digest,
            )
            outcome = code_in_process(session, *ends, sources, sides)
            own = np.square(outcome.reconstructions - sources).mean(axis=(2, 3))
            errors.append(own.min(axis=0).mean() / 2)
            alone.append(own.mean(axis=1) / 2)
            matches.append(outcome.matched.mean())
        assert record.mse_paper_seeds == pytest.approx(errors)
        assert record.mse_paper == pytest.approx(np.mean(errors))
        assert record.mse == pytest.approx(np.mean(errors) / 2)
        assert record.mse_paper_decoders == pytest.approx(np.mean(alone, axis=0))
        assert record.match_probability == pytest.approx(np.mean(matches))
        assert record.mse_paper_no_mismatch is not None
        assert (record.messages, record.coding_seeds, record.training_seed, record.recipe) == (60, 2, 1, "paper")


def test_baseline_of_one_decoder_is_gls(out: Path) -> None:
    """K = 1: the same figure, a paired difference of zero."""
    for record in coded(out):
        if (record.coupling, record.decoders) == ("gls", 1):
            assert record.baseline_minus_gls == 0.0
        assert (record.baseline_minus_gls is None) == (record.coupling == "baseline")


def test_choice_is_the_best_of_the_grid(out: Path) -> None:
    """Two models of N = 32 and 64; 128 is above the largest pool."""
    choices = Choices(out / "choices.json")
    for record in coded(out):
        key = f'"{record.coupling}", {record.decoders}, {record.bins},'
        own = {name: score for name, score in choices._scores.items() if key in name}
        assert sum("32" in name.split("pool_size")[1] for name in own) == 2
        assert len(own) == 4
        best = min(own, key=lambda name: own[name])
        assert str(record.model) in best
        assert f'"pool_size", {record.pool_size}]' in best


def test_pools_are_tried_as_long_as_they_help(out: Path, tmp_path: Path) -> None:
    """A chain ends after the first that is no better."""
    choices = Choices(tmp_path / "choices.json")
    cell = OPTIONS.cells()[0]
    (folder, *_) = (out / "models").glob("*paper*")
    model = Model(folder, load_card(folder))
    settings = [Setting.of(model, {"pool_size": size}) for size in (32, 64, 128, 256)]
    tried = []
    scores = iter([0.3, 0.2, 0.2, 0.1])
    while (due := choices.due(cell, settings)) is not None:
        tried.append(due)
        choices.put(due, {cell: next(scores)})
    assert tried == settings[:3]


def test_goes_on_where_it_ended(out: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a run that was ended when half of its cells were there: the same records, and nothing trained or chosen."""
    monkeypatch.setattr(paper_recipe, "BETAS", (4.0, 8.0))
    monkeypatch.setattr(paper_recipe, "POOL_SIZES", (32, 64, 128))
    finished = Results.read(out)
    Results(finished.configuration, [*finished.records[3:9], *finished.records[11:]]).write(tmp_path)
    (tmp_path / "choices.json").write_bytes((out / "choices.json").read_bytes())
    (tmp_path / "errors").mkdir()
    for file in (out / "errors").iterdir():
        (tmp_path / "errors" / file.name).write_bytes(file.read_bytes())
    monkeypatch.setattr(image_training, "train_unit", None)
    monkeypatch.setattr(image_sweep, "CHOICE_SEED", None)
    found = ImageSweep(OPTIONS, data, tmp_path, models=out / "models").run(1)
    assert [same(record) for record in found.records] == [same(record) for record in finished.records]


def test_without_images_nothing_is_written(tmp_path: Path) -> None:
    """So that the folder is free for another run."""
    with refused("MNIST", f"no file {tmp_path}", "--data DIR"):
        ImageSweep(OPTIONS, tmp_path / "none", tmp_path / "out").run(1)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("part", ["train", "t10k"])
def test_other_images_are_another_run(out: Path, data: Path, tmp_path: Path, part: str) -> None:
    """References would be of one data set and cells of another."""
    with_another_pixel(data, tmp_path / "data", part)
    name = {"train": "training_images", "t10k": "test_images"}[part]
    with refused(name, "", f"as {out / 'results.json'} has"):
        ImageSweep(OPTIONS, tmp_path / "data", out)


def test_models_of_other_images(out: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of models that another sweep trained on other images."""
    monkeypatch.setattr(paper_recipe, "BETAS", (4.0, 8.0))
    with_another_pixel(data, tmp_path / "data")
    with refused("models", "trained on other images", "another folder"):
        ImageSweep(OPTIONS, tmp_path / "data", tmp_path / "out", models=out / "models").run(1)


def test_references_of_other_images(out: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Networks that get no message are in the same folder; a named model is not."""
    monkeypatch.setattr(paper_recipe, "BETAS", (4.0,))
    monkeypatch.setattr(paper_recipe, "POOL_SIZES", (32,))
    with_another_pixel(data, tmp_path / "data")
    models = tmp_path / "models"
    for folder in (out / "models").glob("*zero-bits*"):
        shutil.copytree(folder, models / folder.name)
    options = replace(OPTIONS, decoders=(1,), bins=(4,), messages=10, choose_messages=10, coding_seeds=1)
    with refused("models", f"{models}/mnist_zero-bits_decoders-1", "models of these, or another folder"):
        ImageSweep(options, tmp_path / "data", tmp_path / "out", models=models).run(1)
    (named, *_) = (out / "models").glob("*paper*")
    with refused("models", f"{named}, trained on other images", "models of these"):
        ImageSweep(options, tmp_path / "data", tmp_path / "named", named_models([str(named)], "mnist"))
    assert not (tmp_path / "named").exists()


def test_named_model_without_a_cell(data: Path, tmp_path: Path) -> None:
    """It would not be measured, and others trained instead."""
    named = named_models(["mnist-list-k4-l16"], "mnist")
    for options in (OPTIONS, replace(OPTIONS, recipes=("list",), decoders=(2, 4), bins=(4,))):
        with refused("model mnist-list-k4-l16", "of recipe list", "one that does"):
            ImageSweep(options, data, tmp_path / "out", named)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("errors/paper-gls-1-4.npy", b""),
        ("errors/paper-gls-1-4.npy", b"no"),
        ("errors/paper-gls-1-4.npy", array(np.float64(0.1))),
        ("errors/paper-gls-1-4.npy", array(np.zeros(59))),
        ("errors/paper-gls-1-4.npy", array(np.zeros((60, 1)))),
        ("errors/paper-gls-1-4.npy", array(np.full(60, "no"))),
        ("choices.json", b"{"),
        ("choices.json", b"[1]"),
        ("choices.json", b'{"a": "b"}'),
        ("choices.json", b'{"a": null}'),
    ],
)
def test_damaged_files(out: Path, data: Path, tmp_path: Path, name: str, damage: bytes) -> None:
    """Refused by name."""
    for part in ("errors", "results.json", "choices.json"):
        copy = shutil.copytree if (out / part).is_dir() else shutil.copy
        copy(out / part, tmp_path / part)
    (tmp_path / name).write_bytes(damage)
    with refused(str(tmp_path / name), "", "remove it"):
        ImageSweep(OPTIONS, data, tmp_path, models=out / "models").run(1)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("seconds", "seconds None"),
        ("mse_paper", "a record without mse_paper"),
        ("pool_size", "a record without pool_size"),
    ],
)
def test_incomplete_results(out: Path, data: Path, tmp_path: Path, name: str, given: str) -> None:
    """Of the schema, but without what every run has."""
    body = json.loads((out / "results.json").read_text())
    del (body["configuration"] if name in body["configuration"] else body["records"][0])[name]
    (tmp_path / "results.json").write_text(json.dumps(body))
    shutil.copytree(out / "errors", tmp_path / "errors")
    with refused(str(tmp_path / "results.json"), given, "remove the file to begin again"):
        ImageSweep(OPTIONS, data, tmp_path, models=out / "models")


def test_another_model_of_the_name(out: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Retrained meanwhile: cells and choices are of the old one. In the folder, and by name."""
    monkeypatch.setattr(paper_recipe, "BETAS", (4.0, 8.0))
    monkeypatch.setattr(paper_recipe, "POOL_SIZES", (32, 64, 128))
    done, models = tmp_path / "out", tmp_path / "models"
    shutil.copytree(out, done, ignore=shutil.ignore_patterns("models"))
    shutil.copytree(out / "models", models)
    ImageSweep(OPTIONS, data, done, models=models)
    folder = models / str(coded(out)[0].model)
    (other,) = set(models.glob("*paper*")) - {folder}
    named = named_models([str(folder)], "mnist")
    options = replace(OPTIONS, decoders=(1,), bins=(4,), coding_seeds=1)
    ImageSweep(options, data, tmp_path / "named", named).run(1)
    for name in ("card.json", "weights.safetensors"):
        shutil.copy(other / name, folder / name)
    with refused("models", f"{folder}, another model of that name", f"the one of which {done / 'results.json'} has"):
        ImageSweep(OPTIONS, data, done, models=models)
    with refused("model_digests", load_card(folder).digest.hex(), f"{named[0].card.digest.hex()}"):
        ImageSweep(options, data, tmp_path / "named", named_models([str(folder)], "mnist"))
    cell, pool = OPTIONS.cells()[0], {"pool_size": 32}
    choices = Choices(tmp_path / "choices.json")
    choices.put(Setting.of(named[0], pool), {cell: 0.1})
    assert choices.score(cell, Setting.of(named[0], pool)) == 0.1
    assert choices.score(cell, Setting.of(Model(folder, load_card(folder)), pool)) is None


def test_more_bins_than_the_smallest_pool(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The effect of N is measured where a pool has a candidate a bin, and the report is written."""
    monkeypatch.setattr(paper_recipe, "BETAS", (4.0,))
    monkeypatch.setattr(paper_recipe, "POOL_SIZES", (32, 64))
    options = replace(OPTIONS, decoders=(1,), bins=(64,), coding_seeds=1, messages=10, choose_messages=10)
    run = ImageSweep(options, data, tmp_path, description={"command": "sweep", "date": "today"})
    results = run.run(1)
    assert [record.pool_size for record in results.records if record.coupling != "none"] == [64, 64]
    assert [record.pool_size for record in Results.read(tmp_path / "pool_sizes").records] == [64]
    assert write_report(run, results).is_file()


def test_other_options_are_another_run(out: Path, data: Path) -> None:
    with refused("messages", "50", "60, as"):
        ImageSweep(replace(OPTIONS, messages=50), data, out)


def test_models_that_are_elsewhere(out: Path, data: Path, tmp_path: Path) -> None:
    """A finished run whose models are not in the folder says so before it trains others, and changes nothing."""
    before = (out / "results.json").read_bytes()
    name = str(coded(out)[0].model)
    with refused("models", f"{tmp_path} without {name}", f"the one of which {out / 'results.json'} has the cells"):
        ImageSweep(OPTIONS, data, out, models=tmp_path)
    assert (out / "results.json").read_bytes() == before
    assert list(tmp_path.iterdir()) == []


def test_models_of_one_name(out: Path, tmp_path: Path) -> None:
    """Choices and records tell models by the names of their folders."""
    folder = next((out / "models").iterdir())
    (tmp_path / folder.name).symlink_to(folder)
    with refused(f"model {tmp_path / folder.name}", f"another model of the name {folder.name}", "a name of its own"):
        named_models([str(folder), str(tmp_path / folder.name)], "mnist")


def test_named_model(out: Path, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Used for every cell, and nothing is trained."""
    folder = next((out / "models").iterdir())
    monkeypatch.setattr(image_training, "train_unit", None)
    monkeypatch.setattr(paper_recipe, "POOL_SIZES", (32,))
    named = named_models([str(folder)], "mnist")
    assert named == [Model(folder, load_card(folder))]
    options = replace(OPTIONS, decoders=(1,), bins=(4,), coding_seeds=1)
    records = ImageSweep(options, data, tmp_path, named, out / "models").run(1).records
    assert [record.model for record in records if record.coupling != "none"] == [folder.name] * 2
    with refused(f"model {folder}", "trained on mnist", "trained on cifar10"):
        named_models([str(folder)], "cifar10")


@pytest.mark.parametrize(
    ("name", "least"), [("messages", 2), ("coding_seeds", 1), ("choose_messages", 1), ("epochs", 1)]
)
def test_out_of_range(name: str, least: int) -> None:
    """One message would have no standard error."""
    with refused(name, str(least - 1), f"at least {least}"):
        replace(OPTIONS, **{name: least - 1})
    assert getattr(replace(OPTIONS, **{name: least}), name) == least


def test_cells_that_no_session_has() -> None:
    """Before anything is trained."""
    with refused("bins", "3", "a power of two"):
        replace(OPTIONS, bins=(4, 3))
    for recipe, bins, most in (("region", 512, 256), ("paper", 8192, 4096)):
        with refused("bins", f"{bins} with recipe {recipe}", f"at most {most}"):
            replace(OPTIONS, recipes=("quantiser", recipe), bins=(4, bins))
    with refused("recipes", "zero-bits", "recipes that take messages"):
        replace(OPTIONS, recipes=("paper", "zero-bits"))
    for decoders in (0, 65537):
        with refused("decoders", str(decoders), "an integer in 1 … 65536"):
            replace(OPTIONS, decoders=(1, decoders))


def test_unknown_recipe() -> None:
    with refused("recipe", "'best'", "one of: paper"):
        replace(OPTIONS, recipes=("best",))
