"""Certificates for tests: authorities, and what they sign, as PEM files of a folder."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAY = datetime.timedelta(days=1)


class Authority:
    """An authority and the files of what it signs: ``NAME.pem``, ``NAME.key`` and, of itself, ``NAME.pem``."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder = folder
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._key = ec.generate_private_key(ec.SECP256R1())
        basic = x509.BasicConstraints(ca=True, path_length=None)
        certificate = self._builder(self._name, self._key, 1).add_extension(basic, critical=True)
        self.file = self._write(f"{name}.pem", certificate.sign(self._key, hashes.SHA256()))

    def sign(self, name: str, file: str | None = None, days: int = 1) -> list[str]:
        """Certificate and key of a name, good on loopback, and expired where ``days`` is negative: options of both."""
        file = file or name
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName(
            [x509.DNSName(name), x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._builder(subject, key, days).add_extension(names, critical=False)
        path = self._write(f"{file}.pem", certificate.sign(self._key, hashes.SHA256()))
        secret = self._folder / f"{file}.key"
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return ["--tls-cert", str(path), "--tls-key", str(secret)]

    @property
    def trusted(self) -> list[str]:
        """The option by which others trust what it signs."""
        return ["--tls-ca", str(self.file)]

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, days: int) -> x509.CertificateBuilder:
        now = datetime.datetime.now(datetime.UTC)
        return x509.CertificateBuilder(
            issuer_name=self._name,
            subject_name=subject,
            public_key=key.public_key(),
            serial_number=x509.random_serial_number(),
            not_valid_before=now - 9 * DAY,
            not_valid_after=now + days * DAY,
        )

    def _write(self, name: str, certificate: x509.Certificate) -> Path:
        path = self._folder / name
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return path


def paths(options: Sequence[str]) -> dict[str, Path]:
    """Arguments of ``Security`` for options of a command line."""
    names = {"--tls-cert": "certificate", "--tls-key": "key", "--tls-ca": "authority"}
    return {names[option]: Path(path) for option, path in zip(options[::2], options[1::2], strict=True)}
