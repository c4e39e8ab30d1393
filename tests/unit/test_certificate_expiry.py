"""Until when a certificate is valid, read from its file; compared with what a library for certificates says."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from headgate.endpoint.expiry import expires_at


def certificate(ends: datetime) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "n" * 60)])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(ends - timedelta(days=30)).not_valid_after(ends)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.mark.parametrize("year", [2027, 2049, 2051])
def test_its_end_is_read(year: int, tmp_path: Path) -> None:
    """Until 2049 years have two digits, later ones four."""
    ends = datetime(year, 3, 4, 5, 6, 7, tzinfo=UTC)
    path = tmp_path / "cert.pem"
    path.write_bytes(b"some text before\n" + certificate(ends) + certificate(ends - timedelta(days=1)))
    assert expires_at(str(path)) == ends.timestamp()


@pytest.mark.parametrize("content", ["", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n"])
def test_what_is_no_certificate_is_an_error(content: str, tmp_path: Path) -> None:
    path = tmp_path / "cert.pem"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"too early|not found"):
        expires_at(str(path))
