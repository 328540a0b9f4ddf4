"""What can be seen from outside: metrics, readiness, health, and the status table."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from prometheus_client.parser import text_string_to_metric_families

from encoder.client import EncoderClient
from experiments.processes import ServiceProcess
from gumbelcast.metrics import Metrics
from gumbelcast.security import Gate
from gumbelcast.transport import Service, refusing, run
from gumbelcast.v1 import decoder_pb2, decoder_pb2_grpc
from shared_rng import CodecError
from tests.integration.services import Fleet, answered_with, end, fresh_session, gaussian_data, kill, run_program, until

SOURCES, SIDES = gaussian_data(64, 2)


@dataclass
class World:
    """An encoder with two decoders, all with metrics."""

    encoder: ServiceProcess
    decoders: list[ServiceProcess]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        fleet = stack.enter_context(Fleet(tmp_path_factory.mktemp("metrics")))
        decoders = fleet.decoders(SIDES, "--metrics-port", "0")
        yield World(fleet.encoder(decoders, "--metrics-port", "0"), decoders)


def url(service: ServiceProcess) -> str:
    found = re.search(r"metrics on (http://127\.0\.0\.1:\d+)/metrics", service.log.read_text())
    assert found is not None
    return found[1]


def get(service: ServiceProcess, path: str) -> str:
    with urllib.request.urlopen(url(service) + path, timeout=10) as answer:
        text: str = answer.read().decode()
        return text


def figures(service: ServiceProcess) -> dict[str, float]:
    """Every figure, by name and labels but the session's."""
    found = {}
    for family in text_string_to_metric_families(get(service, "/metrics")):
        for sample in family.samples:
            labels = ",".join(f"{k}={v}" for k, v in sorted(sample.labels.items()) if k != "session")
            found[sample.name.removeprefix("gumbelcast_") + (f"{{{labels}}}" if labels else "")] = sample.value
    return found


def test_what_is_counted(world: World) -> None:
    """Messages, bits, bytes, times, refusals; lags that fall to zero; and nothing of what is coded."""
    with EncoderClient(world.encoder.address) as client:
        session = fresh_session(client)
        client.open(session)
        list(client.encode(session, SOURCES, batch=16))
        with answered_with(grpc.StatusCode.OUT_OF_RANGE):
            list(client.encode(session, SOURCES[:1], 1000))
    at_encoder = until(
        lambda: (
            (found := figures(world.encoder))["lag_messages{decoder=1}"] == 0
            and found["lag_messages{decoder=0}"] == 0
            and found
        ),
        "both decoders have all",
    )
    expected = {"messages_total": 64, "bits_total": 256, "payload_bytes_total": 32}
    assert {name: at_encoder[name] for name in expected} == expected
    assert at_encoder["encode_seconds_count"] == 4
    assert 0 < at_encoder["encode_seconds_sum"] < 60
    assert at_encoder["refused_total{reason=OUT_OF_RANGE}"] == 1
    assert (at_encoder["ready"], at_encoder["sessions"], at_encoder["journal_queue_batches"]) == (1, 1, 0)
    assert at_encoder["decoder_ready{decoder=0}"] == 1
    for service in world.decoders:
        at_decoder = figures(service)
        assert {name: at_decoder[name] for name in expected} == expected
        assert (at_decoder["decode_seconds_count"], at_decoder["failed_messages_total"]) == (4, 0)
        assert (at_decoder["next_message"], at_decoder["sessions"]) == (64, 1)


def test_probes(world: World) -> None:
    assert get(world.encoder, "/ready") == "ready\n"
    assert get(world.encoder, "/live") == "live\n"
    with pytest.raises(urllib.error.HTTPError, match="404"):
        get(world.encoder, "/elsewhere")


def test_status_of_services(world: World, tmp_path: Path) -> None:
    """A line a session; a service that is not there fails the command, and does not hide the others."""
    addresses = [world.encoder.address, *(service.address for service in world.decoders)]
    done, _ = run_program("experiments", "status", "--seconds", "0.1", *addresses, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    for address, role in zip(addresses, ("encoder", "decoder", "decoder"), strict=True):
        (line,) = [line for line in done.stdout.splitlines() if address in line]
        assert f"{address} ({role})" in line
        assert "serving" in line
        assert " 64 " in line
        assert " 0.0 " in line
    done, _ = run_program("experiments", "status", "--seconds", "0", "127.0.0.1:9", addresses[0], cwd=tmp_path)
    assert done.returncode == 5
    assert "unavailable" in done.stdout
    assert f"{addresses[0]} (encoder)" in done.stdout


def test_a_decoder_that_is_away(fleet: Fleet) -> None:
    """Its lag grows, and the status says why."""
    decoders = fleet.decoders(SIDES)
    encoder = fleet.encoder(decoders, "--metrics-port", "0", "--decoder-wait", "1")
    with EncoderClient(encoder.address) as client:
        session = fresh_session(client)
        client.open(session)
        kill(decoders[0])
        list(client.encode(session, SOURCES, batch=16))
    until(lambda: figures(encoder)["lag_messages{decoder=1}"] == 0, "the other decoder has all")
    until(lambda: figures(encoder)["decoder_ready{decoder=0}"] == 0, "the decoder is missed")
    assert figures(encoder)["lag_messages{decoder=0}"] == 64
    done, _ = run_program("experiments", "status", "--seconds", "0", encoder.address, cwd=fleet.folder)
    assert "64, 0" in done.stdout
    assert f"decoder 0 at {decoders[0].address}: " in done.stdout


def test_metrics_port_that_is_taken(world: World, tmp_path: Path) -> None:
    port = url(world.encoder).rpartition(":")[2]
    done, _ = run_program("decoder", "serve", "--model", "gaussian", "--metrics-port", port, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (4, "")
    assert done.stderr == f"error: cannot bind 127.0.0.1:{port}: Address already in use\n"


@pytest.fixture
def unused_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
    return port


class SlowService(Service, decoder_pb2_grpc.DecoderServiceServicer):
    """Answers one call, and stops only when it is told to."""

    def __init__(self, metrics: Metrics) -> None:
        super().__init__(Gate(), metrics)

    @refusing(CodecError)
    async def GetDecoderStatus(
        self, request: decoder_pb2.GetDecoderStatusRequest, context: object
    ) -> decoder_pb2.GetDecoderStatusResponse:
        return decoder_pb2.GetDecoderStatusResponse(latent_dimension=7)


def test_health_follows_readiness(capsys: pytest.CaptureFixture[str], unused_port: int) -> None:
    """NOT_SERVING and not ready until the service is built, while calls wait; and again once it is told to stop."""
    address = f"127.0.0.1:{unused_port}"
    statuses = health_pb2.HealthCheckResponse

    async def main() -> None:
        built, metrics = asyncio.Event(), Metrics("decode")

        async def build() -> SlowService:
            await built.wait()
            return SlowService(metrics)

        name = "gumbelcast.v1.DecoderService"
        register = decoder_pb2_grpc.add_DecoderServiceServicer_to_server
        running = asyncio.create_task(run("decoder", address, build, register, [name], metrics))
        async with grpc.aio.insecure_channel(address) as channel:
            health = health_pb2_grpc.HealthStub(channel)

            async def state() -> int:
                answer = await health.Check(
                    health_pb2.HealthCheckRequest(service=name), timeout=60, wait_for_ready=True
                )
                return int(answer.status)

            assert await state() == statuses.NOT_SERVING
            assert metrics.registry.get_sample_value("gumbelcast_ready") == 0
            stub = decoder_pb2_grpc.DecoderServiceStub(channel)
            call = stub.GetDecoderStatus(decoder_pb2.GetDecoderStatusRequest(), timeout=60)
            assert await state() == statuses.NOT_SERVING
            assert not call.done()
            built.set()
            assert (await call).latent_dimension == 7
            assert await state() == statuses.SERVING
            assert metrics.registry.get_sample_value("gumbelcast_ready") == 1
            watching = health.Watch(health_pb2.HealthCheckRequest(service=name), timeout=60)
            assert (await watching.read()).status == statuses.SERVING
            signal.raise_signal(signal.SIGTERM)
            assert (await watching.read()).status == statuses.NOT_SERVING
            assert metrics.registry.get_sample_value("gumbelcast_ready") == 0
        await asyncio.wait_for(running, 60)

    asyncio.run(main())
    assert capsys.readouterr().out == f"READY decoder {address}\n"


def test_both_end_well(world: World) -> None:
    """The last test of the module: the HTTP threads hold nobody back."""
    assert [end(service) for service in (world.encoder, *world.decoders)] == [0, 0, 0]
