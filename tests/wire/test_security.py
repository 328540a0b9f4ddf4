"""What is loopback, what gRPC's core says, and the gate."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from experiments.certificates import Authority, secured
from gumbelcast.core_log import explain
from gumbelcast.security import CALLS_A_CLIENT, Gate, NotAllowed, Security, TooMany, is_loopback


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:7000", True),
        ("127.9.9.9:7000", True),
        ("localhost:7000", True),
        ("[::1]:7000", True),
        ("0.0.0.0:7000", False),
        ("[::]:7000", False),
        ("10.0.0.1:7000", False),
        ("127.0.0.1.example.org:7000", False),
        ("localhost.example.org:7000", False),
        ("dns:///127.0.0.1:7000", False),
        ("7000", False),
    ],
)
def test_loopback(address: str, expected: bool) -> None:
    assert is_loopback(address) is expected


PREFIX = (
    "I1129 21:55:43.332266   18567 ssl_transport_security.cc:2563] Handshake failed with error SSL_ERROR_SSL: error:"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "1:SSL routines:OPENSSL_internal:PEER_DID_NOT_RETURN_A_CERTIFICATE: Invalid",
            "came without a certificate",
        ),
        (
            "1:SSL routines:OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: it is old",
            "is not trusted: it is old",
        ),
        ("1:SSL routines:OPENSSL_internal:WRONG_VERSION_NUMBER: Invalid", "a peer does not use TLS"),
        ("1:SSL routines:OPENSSL_internal:BAD_PACKET_LENGTH: Invalid", "broke the handshake off"),
    ],
)
def test_lines_of_the_core(text: str, expected: str) -> None:
    assert expected in (explain(PREFIX + text) or "")


def test_other_lines_of_the_core() -> None:
    assert explain("I1129 21:55:43.332266 18567 fork.cc:1] something else") is None


class Context:
    """What the gate looks at of a call."""

    def __init__(self, *names: str, peer: str = "ipv4:10.0.0.1:5000") -> None:
        self._names, self._peer = names, peer

    def auth_context(self) -> dict[str, Any]:
        return {"x509_subject_alternative_name": [name.encode() for name in self._names]} if self._names else {}

    def peer(self) -> str:
        return self._peer


def test_gate_by_name() -> None:
    """Any name of the certificate counts; a method without a list is open."""
    gate = Gate({"Encode": ["camera"], "Read": []})
    for method, context in (("Encode", Context("host", "camera")), ("Read", Context()), ("Status", Context("x"))):
        with gate.admit(method, context):
            pass
    for context in (Context("host"), Context(), Context("camera2"), Context("Camera")):
        with pytest.raises(NotAllowed), gate.admit("Encode", context):
            raise AssertionError


def test_gate_by_number() -> None:
    """A client's calls are bounded, whatever connections they come by; others are not held up, and places come back."""
    gate = Gate()
    with ExitStack() as running:
        for n in range(CALLS_A_CLIENT):
            running.enter_context(gate.admit("Encode", Context(peer=f"ipv4:10.0.0.1:{n}")))
        with pytest.raises(TooMany, match=r"10\.0\.0\.1"), gate.admit("Encode", Context()):
            raise AssertionError
        with gate.admit("Encode", Context(peer="ipv6:%5B::1%5D:5000")), gate.admit("Encode", Context("camera")):
            pass
    with gate.admit("Encode", Context()):
        pass


def test_security_options(tmp_path: Path) -> None:
    authority = Authority(tmp_path, "authority")
    pair, trusted = authority.sign("one"), authority.trusted
    authority.sign("two")
    other = str(tmp_path / "two.key")
    with pytest.raises(ValueError, match="--insecure: got certificate options with it"):
        secured(trusted, insecure=True)
    with pytest.raises(ValueError, match="--tls-cert and --tls-key: got one of them"):
        secured(pair[:2])
    with pytest.raises(ValueError, match=r"--tls-cert .*one.pem, --tls-key .*two.key: got key values mismatch"):
        secured([*pair[:3], other])
    with pytest.raises(ValueError, match=r"--tls-ca .*two.key: got .*, expected certificates in PEM"):
        secured(["--tls-ca", other])
    with pytest.raises(FileNotFoundError):
        secured(["--tls-ca", str(tmp_path / "nowhere.pem")])
    with pytest.raises(ValueError, match=r"--bind: got 0\.0\.0\.0:1 for plain text, expected certificates"):
        Security().require_service("0.0.0.0:1", {})
    Security(insecure=True).require_service("0.0.0.0:1", {})
    with pytest.raises(ValueError, match="--allow-client: got names without certificates to find them in"):
        secured(pair).require_service("0.0.0.0:1", {"--allow-client": ["a"]})
    with pytest.raises(ValueError, match="--tls-ca: got no certificate of the service"):
        secured(trusted).require_service("127.0.0.1:1", {})
    secured([*pair, *trusted]).require_service("0.0.0.0:1", {"--allow-client": ["a"]})
