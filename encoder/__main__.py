"""Command line of the encoder: ``python -m encoder serve | send | estimate`` (installed as ``gumbelcast-encoder``)."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path
from typing import Annotated

import grpc
import numpy as np
import typer

from encoder.client import EncoderClient, Pool
from encoder.estimate import estimate as estimate_variances
from encoder.files import read_sources
from encoder.journal import MEMORY_BYTES, Journal, Retention
from encoder.model import EncoderModel, load_encoder_model
from encoder.service import NAME, EncoderService
from encoder.similar import read_search_images
from gumbelcast import lifeline, program
from gumbelcast.bind import BindError
from gumbelcast.channels import MAX_BATCH
from gumbelcast.configuration import FROM_ENVIRONMENT, Config, PrintConfig, described
from gumbelcast.metrics import Metrics
from gumbelcast.options import (
    Bind,
    Insecure,
    LogFormatOption,
    LogLevelOption,
    MetricsPort,
    ModelName,
    NoiseVariance,
    PriorVariance,
    SideVariance,
    TlsCa,
    TlsCert,
    TlsKey,
)
from gumbelcast.security import Security
from gumbelcast.transport import run
from gumbelcast.v1.encoder_pb2_grpc import add_EncoderServiceServicer_to_server
from shared_rng import Binning, Coupling, find_model, load_card

log = logging.getLogger("gumbelcast.encoder")
app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="The encoder of a distributed lossy codec. Exit codes: 0 done, 2 usage, 3 refused input, "
    "4 address in use, 5 peer out of reach or a decoder that missed messages.",
)

SeedFile = Annotated[
    Path | None,
    typer.Option(help="File of 32 hex digits: a seed shared beforehand, of which only a digest then travels."),
]


@app.command(context_settings=FROM_ENVIRONMENT)
def serve(
    context: typer.Context,
    decoder: Annotated[list[str], typer.Option(help="host:port of a decoder; repeat it, in the order of k.")],
    model: ModelName = "mnist",
    prior_variance: PriorVariance = None,
    noise_variance: NoiseVariance = None,
    side_variance: SideVariance = None,
    bind: Bind = "127.0.0.1:0",
    seed_file: SeedFile = None,
    decoder_wait: Annotated[float, typer.Option(min=0.1, help="Seconds to wait for a missing decoder.")] = 30.0,
    journal: Annotated[
        Path | None, typer.Option(help="File that keeps accepted messages; without it they are kept in memory.")
    ] = None,
    journal_mib: Annotated[
        float | None,
        typer.Option(min=0, help="Size from which the oldest messages go; without a file 64, with one no limit."),
    ] = None,
    journal_hours: Annotated[
        float | None, typer.Option(min=0, help="Age from which messages go; no limit by default.")
    ] = None,
    search: Annotated[
        int,
        typer.Option(
            min=0,
            help="Searching encoder: nodes of side information for lattice sessions, similar images for image models; "
            "0 for GLS alone.",
        ),
    ] = 0,
    search_images: Annotated[
        Path | None,
        typer.Option(help="Whole images to search with: a folder of pictures, or a .npz, .npy or IDX file."),
    ] = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    insecure: Insecure = False,
    allow_client: Annotated[
        list[str] | None,
        typer.Option(
            help="Name (SAN) in the certificate of a client that may send sources; repeat it. All by default."
        ),
    ] = None,
    metrics_port: MetricsPort = None,
    log_level: LogLevelOption = program.LogLevel.info,
    log_format: LogFormatOption = program.LogFormat.text,
    config: Config = None,
    print_config: PrintConfig = False,
) -> None:
    """Serve the encoder; prints `READY encoder HOST:PORT`, stops gracefully on SIGTERM and SIGINT."""
    if print_config:
        print(*described(context), sep="\n")
        return
    lifeline.hold()
    program.set_up_logging("encoder", log_level, log_format)
    metrics = Metrics("encode")

    def load() -> tuple[EncoderModel, Journal]:
        card = load_card(find_model(model)).with_variances(
            prior_variance=prior_variance, noise_variance=noise_variance, side_variance=side_variance
        )
        loaded = load_encoder_model(card, read_search_images(card, search_images, search))
        size = MEMORY_BYTES if journal is None else None
        retention = Retention(
            size if journal_mib is None else round(journal_mib * 2**20),
            None if journal_hours is None else journal_hours * 3600.0,
        )
        return loaded, Journal(journal, retention)

    async def build() -> EncoderService:
        loaded, opened = await asyncio.to_thread(load)
        if journal is None:
            log.warning("journal in memory: what is not delivered ends with this process; --journal keeps it")
        else:
            log.info("journal %s", journal)
        service = EncoderService(
            loaded,
            decoder,
            opened,
            patience=decoder_wait,
            search=search,
            pre_shared_seed=seed,
            security=security,
            clients=allow_client or [],
            metrics=metrics,
        )
        await service.begin()
        return service

    try:
        seed = program.read_seed(seed_file)
        security = Security(tls_cert, tls_key, tls_ca, insecure=insecure)
        security.require_service(bind, {"--allow-client": allow_client})
        for address in decoder:
            security.require("--decoder", address)
        register = add_EncoderServiceServicer_to_server
        serving = run("encoder", bind, build, register, [NAME], metrics, metrics_port=metrics_port, security=security)
        asyncio.run(serving)
    except BindError as error:
        program.fail(error, program.EXIT_BIND)
    except (ValueError, OSError) as error:
        program.fail(error, program.EXIT_INPUT)


@app.command()
def send(
    files: Annotated[list[Path], typer.Argument(help=".npy (one sample a row), IDX or image files.")],
    to: Annotated[str, typer.Option(help="host:port of the encoder.")],
    bins: Annotated[
        int | None,
        typer.Option(help="L_max: a message is log2(L_max) bits; by default that of a codebook, else 16."),
    ] = None,
    decoders: Annotated[
        int | None, typer.Option(help="K; by default that of a list codebook, else all decoders of the encoder.")
    ] = None,
    pool: Annotated[
        Pool | None,
        typer.Option(help="lattice or iid; by default lattice for a Gaussian model, iid for a VAE."),
    ] = None,
    pool_size: Annotated[
        int | None,
        typer.Option(help="N, candidates a message of an iid pool; by default 32768 (Gaussian model) or 1024 (VAE)."),
    ] = None,
    binning: Annotated[
        Binning | None, typer.Option(help="random, modulo or region; by default what suits the model.")
    ] = None,
    coupling: Annotated[
        Coupling | None, typer.Option(help="gls, baseline or list; by default what a codebook is made for, else gls.")
    ] = None,
    seed: Annotated[str | None, typer.Option(help="Seed, 32 hex digits; random by default.")] = None,
    seed_file: SeedFile = None,
    batch: Annotated[int, typer.Option(min=1, max=MAX_BATCH, help="Messages a batch.")] = 64,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    insecure: Insecure = False,
) -> None:
    """Send source samples to a running encoder, which broadcasts them to its decoders."""
    try:
        if seed is not None and seed_file is not None:
            raise ValueError("seed: got --seed and --seed-file, expected one of them")
        pre_shared = program.read_seed(seed_file)
        if seed is not None and pre_shared is not None:
            raise ValueError(f"seed: got --seed and {program.SEED_VARIABLE}, expected one of them")
        chosen = pre_shared if seed is None else program.seed_from_hex("--seed", seed)
        security = Security(tls_cert, tls_key, tls_ca, insecure=insecure)
        security.require("--to", to)
        with EncoderClient(to, security) as client:
            status = client.status()
            samples = [read_sources(path, tuple(status.source_shape), status.side) for path in files]
            session = client.session(
                bins=bins,
                pool=pool,
                pool_size=pool_size,
                binning=binning,
                decoders=decoders,
                coupling=coupling,
                seed=chosen,
            )
            opened = client.open(session, share_seed=pre_shared is None)
            sources = np.concatenate(samples)
            print(f"session {session.digest.hex()}, {len(sources)} messages from {opened.next_message} on")
            print(f"{session.pool_kind} pool of {session.pool_size} candidates")
            first, end = opened.next_message, opened.next_message + len(sources)
            payload = sum(answer.payload_bytes for answer in client.send(session, sources, first, batch))
            states = client.await_delivery(session, end)
    except (ValueError, OSError) as error:
        program.fail(error, program.EXIT_INPUT)
    except grpc.RpcError as error:
        refused = error.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        text = f"encoder at {to}: {error.code().name}: {error.details()}"
        program.fail(text, program.EXIT_INPUT if refused else program.EXIT_PEER)
    print(f"{len(sources)} messages of {session.bits} bits, {payload} payload bytes")
    for state in states:
        note = "" if state.next_message >= end else f": {state.reason or 'it is slow'}; the encoder goes on trying"
        count = min(max(state.next_message - first, 0), len(sources))
        print(f"decoder {state.index} at {state.address}: {count} acknowledged{note}")
    if any(state.next_message < end for state in states):
        raise SystemExit(program.EXIT_PEER)


@app.command()
def estimate(
    readings: Annotated[Path, typer.Argument(help=".npy file of readings of the source, float32 or float64.")],
    side_information: Annotated[
        list[Path] | None, typer.Option(help=".npy file of side information of the same moments; repeat it.")
    ] = None,
) -> None:
    """Estimate a Gaussian source from a sample; prints the options for `serve` of both programs, and nothing else."""
    try:
        card = load_card(find_model("gaussian"))
        sides = {str(path): read_sources(path, ()) for path in side_information or []}
        found = estimate_variances(read_sources(readings, ()), sides)
    except (ValueError, OSError) as error:
        program.fail(error, program.EXIT_INPUT)
    for name, variance in found.side_variances.items():
        print(f"{name}: variance {variance:.6g} of side information less readings", file=sys.stderr)
    noise = found.prior_variance * card.number("noise_variance") / card.number("prior_variance")
    options = f"--prior-variance {found.prior_variance:.6g} --noise-variance {noise:.6g}"
    if found.side_variance is None:
        print("side variance: not estimated, since no --side-information is given", file=sys.stderr)
    else:
        options += f" --side-variance {found.side_variance:.6g}"
    print(options)


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
