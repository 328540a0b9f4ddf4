"""Certificates on every link, and who is refused: at once, with one line at each end, and the service goes on."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import grpc
import numpy as np
import pytest

from decoder.client import DecoderClient
from encoder.client import EncoderClient
from experiments.certificates import Authority, secured
from experiments.fault_relay import FaultyRelays
from experiments.processes import ServiceProcess
from gumbelcast.probe import NotTrusted
from gumbelcast.security import PLAIN, Security
from tests.integration.services import Fleet, answered_with, fresh_session, gaussian_data, lacking, run_program, until

SOURCES, SIDES = gaussian_data(8, 1)
AT_ONCE = 10.0
"""Seconds; far below the minute that a client waits for a service, and the patience of an encoder here."""


@dataclass
class World:
    """One decoder and an encoder that demand certificates and have lists, and certificates for whoever comes."""

    folder: Path
    decoder: ServiceProcess
    encoder: ServiceProcess
    authority: Authority
    other: Authority

    def security(self, name: str) -> Security:
        """Of a client: by the name of its certificate, or by what is wrong with it."""
        trusted = self.authority.trusted
        match name:
            case "plain":
                return PLAIN
            case "no certificate":
                return secured(trusted)
            case "wrong authority":
                return secured(self.other.sign("camera", "false") + trusted)
            case "expired":
                return secured(self.authority.sign("camera", "old", days=-1) + trusted)
            case "trusts another":
                return secured(self.authority.sign("camera") + self.other.trusted)
        return secured(self.authority.sign(name) + trusted)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("security")
        fleet = stack.enter_context(Fleet(folder))
        authority, other = Authority(folder, "authority"), Authority(folder, "other")
        lists = ["--allow-encoder", "encoder", "--allow-reader", "reader", "--allow-reader", "second"]
        (decoder,) = fleet.decoders(SIDES, *authority.sign("decoder"), *authority.trusted, *lists)
        options = [*authority.sign("encoder"), *authority.trusted, "--allow-client", "camera"]
        yield World(folder, decoder, fleet.encoder([decoder], *options), authority, other)
        for service in (decoder, fleet.services[1]):
            assert "Traceback" not in service.log.read_text()


def refusals(service: ServiceProcess) -> list[str]:
    """What a service's log says of those it refused."""
    return [line for line in service.log.read_text().splitlines() if "refused" in line]


def test_all_links_are_encrypted(world: World) -> None:
    """Sources in from a client on the list, messages across, reconstructions out to a reader on the list."""
    with EncoderClient(world.encoder.address, world.security("camera")) as client:
        session = fresh_session(client, decoders=1)
        client.open(session)
        (answer,) = client.encode(session, SOURCES)
        assert answer.count == len(SOURCES)
        assert lacking(client, session, len(SOURCES)) == []
    with DecoderClient(world.decoder.address, world.security("second")) as reader:
        picks, _ = reader.read(session.digest, len(SOURCES))
    assert len(picks) == len(SOURCES)
    for service in (world.decoder, world.encoder):
        assert f"serving on {service.address}: TLS, clients need a certificate" in service.log.read_text()


HANDSHAKES = [
    # The client, what it is told, and what the service's log says.
    ("plain", "it wants TLS, and this program has no certificates", "refused: a peer does not use TLS"),
    ("no certificate", "it refused a client without a certificate", "refused: a client came without a certificate"),
    (
        "wrong authority",
        "it refused the certificate of this program",
        "refused: a certificate is not trusted: unable to get local issuer certificate",
    ),
    (
        "expired",
        "it refused the certificate of this program",
        "refused: a certificate is not trusted: certificate has expired",
    ),
    ("trusts another", "its certificate is not trusted: unable to get local issuer", "refused: a peer broke"),
]


@pytest.mark.parametrize(("name", "told", "logged"), HANDSHAKES, ids=[case[0] for case in HANDSHAKES])
@pytest.mark.parametrize("service", ["encoder", "decoder"])
def test_handshakes(world: World, service: str, name: str, told: str, logged: str) -> None:
    """Neither side waits, each has one line."""
    target: ServiceProcess = getattr(world, service)
    before = len(refusals(target))
    started = time.monotonic()
    client = EncoderClient if service == "encoder" else DecoderClient
    with pytest.raises(NotTrusted, match=f"^{service} at {target.address}: {told}"):
        client(target.address, world.security(name))
    assert time.monotonic() - started < AT_ONCE
    (line,) = until(lambda: refusals(target)[before:], "the refusal is logged")
    assert logged in line


def test_names_that_are_not_on_the_list(world: World) -> None:
    """A good certificate is not enough; the line names the call and the client."""
    with EncoderClient(world.encoder.address, world.security("reader")) as client:
        session = fresh_session(client, decoders=1)
        for call in (lambda: client.open(session), lambda: list(client.encode(session, SOURCES))):
            before = len(refusals(world.encoder))
            with answered_with(grpc.StatusCode.PERMISSION_DENIED, "got client reader", "on the service's list"):
                call()
            (line,) = until(lambda before=before: refusals(world.encoder)[before:], "the refusal is logged")
            assert "refused reader: " in line
    with DecoderClient(world.decoder.address, world.security("camera")) as reader:
        with answered_with(grpc.StatusCode.PERMISSION_DENIED, "ReadReconstructions: got client camera"):
            reader.read(session.digest, 1)
        with answered_with(grpc.StatusCode.PERMISSION_DENIED, "PutSideInformation: got client camera"):
            reader.put_side_information(session.digest, SIDES[0])


def test_send_says_it_in_one_line(world: World) -> None:
    """The command line's exit code is that of refused input."""
    np.save(world.folder / "sources.npy", SOURCES)
    options = [*world.other.sign("camera", "wrong"), *world.authority.trusted]
    done, _ = run_program("encoder", "send", "sources.npy", "--to", world.encoder.address, *options, cwd=world.folder)
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr == f"error: encoder at {world.encoder.address}: it refused the certificate of this program\n"


@pytest.mark.parametrize("wrong", ["authority", "name", "plain"])
def test_encoder_that_a_decoder_does_not_let_in(world: World, fleet: Fleet, wrong: str) -> None:
    """The session is refused at once, with the reason, although the encoder would wait for a missing decoder."""
    options = {
        "authority": [*world.other.sign("encoder", "imitation"), *world.authority.trusted],
        "name": [*world.authority.sign("camera"), *world.authority.trusted],
        "plain": [],
    }[wrong]
    reason = {
        "authority": "it refused the certificate of this program",
        "name": "PERMISSION_DENIED: OpenDecoderSession: got client camera",
        "plain": "it wants TLS",
    }[wrong]
    encoder = fleet.encoder([world.decoder], "--decoder-wait", "60", *options)
    trust = world.other if wrong == "authority" else world.authority
    security = PLAIN if wrong == "plain" else secured([*world.authority.sign("camera"), *trust.trusted])
    if wrong == "authority":  # what an encoder trusts and whom it shows itself to are the same
        security = secured([*world.authority.sign("camera"), *world.other.trusted])
    with EncoderClient(encoder.address, security) as client:
        session = fresh_session(client, decoders=1)
        started = time.monotonic()
        with answered_with(grpc.StatusCode.FAILED_PRECONDITION, "no decoder took the session", reason):
            client.open(session)
        assert time.monotonic() - started < AT_ONCE
    log = encoder.log.read_text()
    assert log.count(reason) == 2  # the decoder's refusal, and the session's
    assert "Traceback" not in log


def test_certificates_are_read_again(fleet: Fleet, tmp_path: Path) -> None:
    """A new authority and new certificates take the place of the old ones while services run, both ways."""
    old = Authority(tmp_path, "authority")
    served = [*old.sign("service"), *old.trusted]
    (decoder,) = fleet.decoders(SIDES, *served)
    encoder = fleet.encoder([decoder], *served)
    before = secured([*old.sign("camera", "old"), *old.trusted])
    with EncoderClient(encoder.address, before) as client:
        session = fresh_session(client, decoders=1)
        client.open(session)
        list(client.encode(session, SOURCES[:4]))
        assert lacking(client, session, 4) == []
    (tmp_path / "authority.pem").rename(tmp_path / "before.pem")
    before = secured(["--tls-ca", str(tmp_path / "before.pem")])
    new = Authority(tmp_path, "authority")
    new.sign("service")
    with pytest.raises(NotTrusted, match="its certificate is not trusted"):
        EncoderClient(encoder.address, before)
    after = secured([*new.sign("camera"), *new.trusted])
    with EncoderClient(encoder.address, after) as client:
        second = fresh_session(client, decoders=1)
        client.open(second)
        for used, sources in ((session, SOURCES[4:]), (second, SOURCES[:4])):
            first = 4 if used is session else 0
            list(client.encode(used, sources, first))
            assert lacking(client, used, first + len(sources)) == []
    # Half of a pair is no pair: what was there before goes on.
    new.sign("service", "half")
    (tmp_path / "half.key").rename(tmp_path / "service.key")
    with EncoderClient(encoder.address, after) as client:
        assert len(client.status().sessions) == 2
    assert "changed certificates are not used" in encoder.log.read_text()


def test_a_slow_link(world: World) -> None:
    """Seconds until a connection stands are no reason to begin again and again."""
    with FaultyRelays([world.encoder.address]) as relays:
        relays.delay(0, 0.6)
        with EncoderClient(relays.addresses[0], world.security("camera")) as client:
            assert client.status().decoder_addresses == [world.decoder.address]
