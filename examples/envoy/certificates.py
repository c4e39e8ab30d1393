"""Certificates for the TLS demo: an authority, and one certificate each for Headgate and Envoy.

    python certificates.py certs

They last for a day, and the authority's key is thrown away: for trying things out only.
"""

import datetime
import os
import sys
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

VALID = datetime.timedelta(days=1)
HEADGATE_NAME = "headgate.demo"
ENVOY_NAME = "envoy.demo"


def write_certificates(directory: Path) -> None:
    """`ca.crt`, and `.crt` and `.key` of `headgate` and `envoy`."""
    directory.mkdir(parents=True, exist_ok=True)
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _certificate("Headgate demo CA", ca_key.public_key(), None, ca_key)
    _write(directory / "ca.crt", ca.public_bytes(serialization.Encoding.PEM))
    for file, name in (("headgate", HEADGATE_NAME), ("envoy", ENVOY_NAME)):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(name, key.public_key(), ca, ca_key)
        _write(directory / f"{file}.crt", certificate.public_bytes(serialization.Encoding.PEM))
        _write(directory / f"{file}.key", _pem(key))


def _certificate(
    name: str, key: ec.EllipticCurvePublicKey, ca: x509.Certificate | None, signer: ec.EllipticCurvePrivateKey
) -> x509.Certificate:
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(ca.subject if ca else subject)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        # A little in the past, for clocks that differ a little.
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + VALID)
    )
    builder = verifiable(builder, key, signer.public_key(), authority=ca is None)
    if ca is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    return builder.sign(signer, hashes.SHA256())


def verifiable(
    builder: x509.CertificateBuilder,
    key: ec.EllipticCurvePublicKey,
    signer: ec.EllipticCurvePublicKey,
    *,
    authority: bool,
) -> x509.CertificateBuilder:
    """Add what strict verification asks for, such as Python's from 3.13 on."""
    # An authority signs certificates, all others sign what they say.
    usage = x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
    return (
        builder.add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer), critical=False)
    )


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(data)


if __name__ == "__main__":
    write_certificates(Path(sys.argv[1] if len(sys.argv) > 1 else "certs"))
