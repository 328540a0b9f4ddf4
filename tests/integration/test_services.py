"""Services from start to stop: readiness, health, reflection, exit codes, and what a stop waits for."""

from __future__ import annotations

import os
import re
import select
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

from encoder.client import EncoderClient
from experiments.processes import ServiceProcess
from gumbelcast.channels import SESSION_KEY
from gumbelcast.checksum import batch_checksum
from gumbelcast.convert import to_session, to_tensor
from gumbelcast.v1 import decoder_pb2 as pb
from gumbelcast.v1.decoder_pb2_grpc import DecoderServiceStub
from shared_rng import Session, packed_size
from tests.integration.services import (
    WAIT_SECONDS,
    Fleet,
    answered_with,
    channel_to,
    fresh_session,
    gaussian_data,
    in_process_models,
    lacking,
    until,
)

SERVICES = {"encoder": "gumbelcast.v1.EncoderService", "decoder": "gumbelcast.v1.DecoderService"}
OPTIONS = {"encoder": ["--decoder", "127.0.0.1:9"], "decoder": []}
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING


def health_of(channel: grpc.Channel, name: str = "") -> int:
    request = health_pb2.HealthCheckRequest(service=name)
    return int(health_pb2_grpc.HealthStub(channel).Check(request, timeout=WAIT_SECONDS).status)


@pytest.mark.parametrize("program", SERVICES)
@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_start_to_stop(fleet: Fleet, program: str, stop: signal.Signals) -> None:
    """One readiness line, health and reflection under the right names, and exit code 0 on either signal."""
    service = fleet.launch(program, *OPTIONS[program])
    output = service.process.stdout
    assert output is not None
    assert select.select([output], [], [], WAIT_SECONDS)[0]
    ready = re.fullmatch(rf"READY {program} (127\.0\.0\.1:[1-9]\d*)\n", output.readline())
    assert ready
    with channel_to(ready[1]) as channel:
        assert [health_of(channel, name) for name in ("", SERVICES[program])] == [SERVING, SERVING]
        with answered_with(grpc.StatusCode.NOT_FOUND):
            health_of(channel, "gumbelcast.v1.Other")
        names = set(ProtoReflectionDescriptorDatabase(channel).get_services())
        others = {"grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"}
        assert names == {SERVICES[program], *others}
        (described,) = ProtoReflectionDescriptorDatabase(channel).FindFileContainingSymbol(SERVICES[program]).service
        assert {"encoder": "Encode", "decoder": "ReceiveMessages"}[program] in {m.name for m in described.method}
        service.process.send_signal(stop)
        assert service.process.wait(WAIT_SECONDS) == 0
        assert output.read() == ""
        with answered_with(grpc.StatusCode.UNAVAILABLE):
            health_of(channel)
    log = service.log.read_text()
    assert (log.count("INFO serving on"), log.count("INFO stopped")) == (1, 1)
    assert "Traceback" not in log


def test_watcher_does_not_hold_a_stop_up(fleet: Fleet) -> None:
    """Whoever watches health is no batch in flight: the service does not wait out its grace for him."""
    service = fleet.start("decoder")
    with channel_to(service.address) as channel:
        request = health_pb2.HealthCheckRequest(service=SERVICES["decoder"])
        watching = health_pb2_grpc.HealthStub(channel).Watch(request, timeout=WAIT_SECONDS)
        try:
            assert next(watching).status == SERVING
        except grpc.RpcError as error:  # The health protocol leaves it to the server whether to offer this.
            assert error.code() is grpc.StatusCode.UNIMPLEMENTED, error  # noqa: PT017
        service.process.terminate()
        assert service.process.wait(10) == 0


class LongDecode:
    """A stream with one short and one long batch, and the long one under way."""

    def __init__(self, service: ServiceProcess, channel: grpc.Channel) -> None:
        _, model = in_process_models()
        variance = {"model_digest": model.digest, "pool_variance": model.pool_variance}
        self.count = 24
        session = Session(seed=9, pool_size=2**18, bins=2, decoders=1, **variance)
        stub = DecoderServiceStub(channel)
        wire = to_session(session.wire_fields(share_seed=True))
        stub.OpenDecoderSession(pb.OpenDecoderSessionRequest(session=wire), timeout=WAIT_SECONDS)
        side = to_tensor(gaussian_data(1 + self.count, 1)[1][0])
        put = pb.PutSideInformationRequest(session_digest=session.digest, side_information=side)
        stub.PutSideInformation(put, timeout=WAIT_SECONDS)
        self.done = threading.Event()
        batches = [(0, 1), (1, self.count)]
        requests = [
            pb.ReceiveMessagesRequest(
                first_message=first,
                count=count,
                payload=payload,
                checksum=batch_checksum(session.digest, first, count, payload),
            )
            for first, count in batches
            for payload in [bytes(packed_size(count, 1))]
        ]

        def send() -> Iterator[pb.ReceiveMessagesRequest]:
            yield from requests
            self.done.wait(WAIT_SECONDS)

        metadata = ((SESSION_KEY, session.digest),)
        self.call = stub.ReceiveMessages(send(), metadata=metadata, timeout=WAIT_SECONDS)
        before = processor_seconds(service)
        assert next(self.call).next_message == 1
        # The event loop alone uses next to none.
        until(lambda: processor_seconds(service) > before + 0.25, "the decoder computes")


def processor_seconds(service: ServiceProcess) -> float:
    fields = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_health_answers_during_a_decode(fleet: Fleet) -> None:
    """Numeric work does not hold the event loop."""
    service = fleet.start("decoder")
    with channel_to(service.address) as channel:
        work = LongDecode(service, channel)
        answer: list[pb.ReceiveMessagesResponse] = []
        reading = threading.Thread(target=lambda: answer.append(next(work.call)))
        reading.start()
        checks = 0
        try:
            while reading.is_alive() and checks < 10:
                assert health_of(channel, SERVICES["decoder"]) == SERVING
                checks += not answer
        finally:
            reading.join(WAIT_SECONDS)
            work.done.set()
        assert answer[0].next_message == 1 + work.count
        assert checks == 10


def test_stop_lets_the_batch_in_flight_finish(fleet: Fleet) -> None:
    """It is acknowledged, the stream ends with what is due, and health says no meanwhile."""
    service = fleet.start("decoder")
    with channel_to(service.address) as channel, channel_to(service.address) as other:
        assert health_of(other) == SERVING
        work = LongDecode(service, channel)
        service.process.terminate()
        until(lambda: "INFO stopping" in service.log.read_text(), "the stop has begun")
        try:
            assert health_of(other) == NOT_SERVING
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.UNAVAILABLE, error  # noqa: PT017
        assert service.process.poll() is None
        assert next(work.call).next_message == 1 + work.count
        with answered_with(grpc.StatusCode.UNAVAILABLE, f"decoder is stopping; the next message is {1 + work.count}"):
            next(work.call)
        work.done.set()
        assert service.process.wait(WAIT_SECONDS) == 0
    assert "INFO stopped" in service.log.read_text()


def test_proxy_does_not_capture_loopback(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither between the services nor to them."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "no_grpc_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    sources, sides = gaussian_data(4, 1)
    encoder = fleet.encoder(fleet.decoders(sides), "--decoder-wait", "5")
    with EncoderClient(encoder.address) as client:
        session = fresh_session(client, decoders=1)
        client.open(session)
        (answer,) = client.encode(session, sources)
        assert answer.count == 4
        assert lacking(client, session, 4) == []
