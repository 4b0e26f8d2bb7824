"""Certificates for servers of tests: an authority that a test trusts or not, and what it issues."""

from __future__ import annotations

import datetime
import subprocess
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from lakehold import artifacts
from lakehold.servers import HOST

_DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class Issued:
    """PEM files of one certificate.

    Attributes:
        certificate: The certificate, and that of its authority.
        key: The private key.
        both: Certificate and key in one file, as Kafka's clients take them.
    """

    certificate: Path
    key: Path
    both: Path


class Authority:
    """A certificate authority whose files are in `directory`."""

    def __init__(self, directory: Path, name: str = "ca") -> None:
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        signed = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self._pem = signed.public_bytes(serialization.Encoding.PEM)
        self.file = directory / f"{name}.pem"
        self.file.write_bytes(self._pem)

    def issue(self, name: str, *, host: str = HOST, days_left: int = 1) -> Issued:
        """Issue a certificate for a host; one with no days left expired yesterday."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        certificate = (
            _builder(subject, self._name, key, days_left=days_left)
            .add_extension(x509.SubjectAlternativeName([_alternative_name(host)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        chain = certificate.public_bytes(serialization.Encoding.PEM) + self._pem
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        issued = Issued(*(self._directory / f"{name}.{ending}" for ending in ("crt", "key", "both.pem")))
        for path, content in ((issued.certificate, chain), (issued.key, private), (issued.both, private + chain)):
            path.write_bytes(content)
        # PostgreSQL refuses a key that other users may read.
        issued.key.chmod(0o600)
        return issued

    def truststore(self, password: str) -> Path:
        """Write a keystore of Java with the authority, encrypted with a password."""
        file = self.file.with_suffix(".p12")
        keytool = artifacts.java_executable().with_name("keytool")
        arguments = ["-importcert", "-noprompt", "-alias", "ca", "-file", str(self.file), "-keystore", str(file)]
        subprocess.run([str(keytool), *arguments, "-storepass", password], check=True, capture_output=True)
        return file


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days_left: int = 1
) -> x509.CertificateBuilder:
    ends = datetime.datetime.now(datetime.UTC) + _DAY * (days_left or -1)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(ends - 3 * _DAY)
        .not_valid_after(ends)
    )


def _alternative_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(host))
    except ValueError:
        return x509.DNSName(host)
