"""Certificates made on the spot: authorities, and what they sign, as PEM files of a folder."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from gumbelcast.security import Security

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

    def sign(self, name: str, file: str | None = None, days: int = 1, host: str = "127.0.0.1") -> list[str]:
        """Certificate and key of a program, as options of its command line.

        Args:
            name: its first name.
            file: name of the files, by default the same.
            days: how long it is good; negative where it has expired.
            host: address that it is good for, besides ``localhost``.
        """
        file = file or name
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName(
            [x509.DNSName(name), x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(host))]
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


def secured(options: Sequence[str], *, insecure: bool = False) -> Security:
    """What a program makes of such options."""
    files = {option: Path(path) for option, path in zip(options[::2], options[1::2], strict=True)}
    return Security(*map(files.get, ("--tls-cert", "--tls-key", "--tls-ca")), insecure=insecure)
