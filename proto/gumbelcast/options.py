"""Command line options that both services and their clients have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gumbelcast.program import LogFormat, LogLevel

TlsCert = Annotated[
    Path | None, typer.Option(help="PEM file: certificate of this program, for clients and servers alike.")
]
TlsKey = Annotated[Path | None, typer.Option(help="PEM file: private key of the certificate.")]
TlsCa = Annotated[
    Path | None,
    typer.Option(help="PEM file: authority that the certificates of all others must come from. A service then demands "
                 "one of every client."),
]  # fmt: skip
Insecure = Annotated[bool, typer.Option("--insecure", help="Plain text beyond loopback, for anyone on the network.")]
LogLevelOption = Annotated[LogLevel, typer.Option("--log-level", help="How much to log.")]
LogFormatOption = Annotated[LogFormat, typer.Option("--log-format", help="Lines of text, or of JSON.")]
MetricsPort = Annotated[
    int | None,
    typer.Option(min=0, max=65535, help="Port for Prometheus (/metrics) and probes (/ready, /live), in plain HTTP."),
]
ModelName = Annotated[str, typer.Option(help="Model folder, or the name of a shipped model.")]
PriorVariance = Annotated[float | None, typer.Option(help="Variance of a Gaussian source, instead of the model's.")]
NoiseVariance = Annotated[
    float | None,
    typer.Option(help="s² of p_{W|A} of a Gaussian source, instead of the model's; no lattice needs it."),
]
SideVariance = Annotated[
    float | None, typer.Option(help="Variance of side information less a Gaussian source, instead of the model's.")
]
Bind = Annotated[str, typer.Option(help="host:port to serve on; port 0 takes a free one.")]
