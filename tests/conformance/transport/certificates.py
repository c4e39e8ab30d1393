"""Certificates for tests, made on the spot."""

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from examples.envoy.certificates import verifiable

_PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Certificate:
    cert: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def cert_pem(self) -> bytes:
        return self.cert.public_bytes(_PEM)

    @property
    def key_pem(self) -> bytes:
        return self._key_pem(serialization.NoEncryption())

    @property
    def encrypted_key_pem(self) -> bytes:
        return self._key_pem(serialization.BestAvailableEncryption(b"secret"))

    def _key_pem(self, encryption: serialization.KeySerializationEncryption) -> bytes:
        return self.key.private_bytes(_PEM, serialization.PrivateFormat.PKCS8, encryption)

    def write(self, directory: Path, name: str) -> tuple[str, str]:
        """Paths of the certificate and the key."""
        cert, key = directory / f"{name}.crt", directory / f"{name}.key"
        cert.write_bytes(self.cert_pem)
        key.write_bytes(self.key_pem)
        return str(cert), str(key)


def authority(name: str) -> Certificate:
    return _issue(name, None)


def issued_by(issuer: Certificate, name: str, *alternative_names: str) -> Certificate:
    """With these names (SANs), or else for localhost."""
    return _issue(name, issuer, alternative_names or ("localhost",))


def _issue(name: str, issuer: Certificate | None, alternative_names: tuple[str, ...] = ("localhost",)) -> Certificate:
    key = ec.generate_private_key(ec.SECP256R1())
    signer = issuer.key if issuer else key
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.cert.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in alternative_names]), critical=False)
    )
    builder = verifiable(builder, key.public_key(), signer.public_key(), authority=issuer is None)
    return Certificate(builder.sign(signer, hashes.SHA256()), key)


def _general_name(name: str) -> x509.GeneralName:
    """A DNS name or a URI, or of the kind that stands before it."""
    kind, colon, rest = name.partition(":")
    if colon and kind in _KINDS:
        return _KINDS[kind](rest)
    return x509.UniformResourceIdentifier(name) if "://" in name else x509.DNSName(name)


_KINDS: Final[Mapping[str, Callable[[str], x509.GeneralName]]] = {
    "email": x509.RFC822Name,
    "URI": x509.UniformResourceIdentifier,
    "DNS": x509.DNSName,
}
