"""Command line of a decoder: ``python -m decoder serve`` (installed as ``gumbelcast-decoder``)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from decoder.model import load_decoder_model
from decoder.service import NAME, DecoderService
from decoder.store import read_side_information
from gumbelcast import lifeline, program
from gumbelcast.bind import BindError
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
from gumbelcast.v1.decoder_pb2_grpc import add_DecoderServiceServicer_to_server
from shared_rng import find_model, load_card

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    help="A decoder of a distributed lossy codec. Exit codes: 0 done, 2 usage, 3 refused input, 4 address in use.",
)


@app.callback()
def _commands() -> None:
    """Keep ``serve`` a command of its own."""


@app.command(context_settings=FROM_ENVIRONMENT)
def serve(
    context: typer.Context,
    model: ModelName = "mnist",
    prior_variance: PriorVariance = None,
    noise_variance: NoiseVariance = None,
    side_variance: SideVariance = None,
    bind: Bind = "127.0.0.1:0",
    side_information: Annotated[
        Path | None, typer.Option(help=".npy file, one row a message; without it, side information is put over gRPC.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for reconstructions; without it, they are read over gRPC.")
    ] = None,
    start: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="First message to decode; messages before it are given up. By default the one after the last that is "
            "in --out, else the oldest that the encoder holds.",
            show_default=False,
        ),
    ] = None,
    seed_file: Annotated[
        Path | None, typer.Option(help="File of 32 hex digits: a seed shared beforehand with the encoder.")
    ] = None,
    tls_cert: TlsCert = None,
    tls_key: TlsKey = None,
    tls_ca: TlsCa = None,
    insecure: Insecure = False,
    allow_encoder: Annotated[
        list[str] | None,
        typer.Option(
            help="Name (SAN) in the certificate of an encoder that may send messages; repeat it. All by default."
        ),
    ] = None,
    allow_reader: Annotated[
        list[str] | None,
        typer.Option(
            help="Name (SAN) in the certificate of a client that may put side information and read "
            "reconstructions; repeat it. All by default."
        ),
    ] = None,
    metrics_port: MetricsPort = None,
    log_level: LogLevelOption = program.LogLevel.info,
    log_format: LogFormatOption = program.LogFormat.text,
    config: Config = None,
    print_config: PrintConfig = False,
) -> None:
    """Serve one decoder; prints `READY decoder HOST:PORT`, stops gracefully on SIGTERM and SIGINT."""
    if print_config:
        print(*described(context), sep="\n")
        return
    lifeline.hold()
    program.set_up_logging("decoder", log_level, log_format)
    metrics = Metrics("decode")

    def load() -> DecoderService:
        card = load_card(find_model(model)).with_variances(
            prior_variance=prior_variance, noise_variance=noise_variance, side_variance=side_variance
        )
        loaded = load_decoder_model(card)
        rows = None if side_information is None else read_side_information(side_information, loaded.side_shape)
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        return DecoderService(
            loaded,
            pre_shared_seed=seed,
            side_rows=rows,
            out=out,
            start=start,
            encoders=allow_encoder or [],
            readers=allow_reader or [],
            metrics=metrics,
        )

    async def build() -> DecoderService:
        return await asyncio.to_thread(load)

    try:
        seed = program.read_seed(seed_file)
        security = Security(tls_cert, tls_key, tls_ca, insecure=insecure)
        security.require_service(bind, {"--allow-encoder": allow_encoder, "--allow-reader": allow_reader})
        register = add_DecoderServiceServicer_to_server
        serving = run("decoder", bind, build, register, [NAME], metrics, metrics_port=metrics_port, security=security)
        asyncio.run(serving)
    except BindError as error:
        program.fail(error, program.EXIT_BIND)
    except (ValueError, OSError) as error:
        program.fail(error, program.EXIT_INPUT)


def main() -> None:
    """Entry point."""
    app()


if __name__ == "__main__":
    main()
