"""End of a certificate's validity, read from its file: for a metric that warns before a handshake fails.

Only the path to the two times is read from the X.509 structure (RFC 5280, section 4.1): the standard library has no
public function for it, and a library for one number is too much to serve with.
"""

import ssl
from datetime import UTC, datetime
from typing import Final

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"


def expires_at(path: str) -> float:
    """End of the first certificate in a PEM file, in unix seconds. Raises OSError or ValueError."""
    with open(path, encoding="ascii") as file:
        text = file.read()
    start = text.index(_BEGIN)
    der = ssl.PEM_cert_to_DER_cert(text[start : text.index(_END, start) + len(_END)])
    return _not_after(der).timestamp()


def _not_after(der: bytes) -> datetime:
    _, certificate, _ = _element(der)
    _, rest, _ = _element(certificate)  # what is signed
    tag, _, after = _element(rest)
    if tag == _VERSION:
        rest = after
    for _ in range(3):  # serial number, algorithm, issuer
        rest = _element(rest)[2]
    tag, validity, _ = _element(rest)
    if tag != _SEQUENCE:
        raise ValueError("no validity where it must be")
    tag, text, _ = _element(_element(validity)[2])
    # Two digits of a year: those of 1950 to 2049 (RFC 5280). strptime's are of 1969 to 2068, which is as good here.
    form = "%y%m%d%H%M%SZ" if tag == _UTC_TIME else "%Y%m%d%H%M%SZ"
    return datetime.strptime(text.decode("ascii"), form).replace(tzinfo=UTC)


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """One DER element: its tag, its content, and what follows it."""
    if len(data) < 2:
        raise ValueError("the certificate ends too early")
    tag, length, start = data[0], data[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(data[2:start])
    if start + length > len(data):
        raise ValueError("the certificate ends too early")
    return tag, data[start : start + length], data[start + length :]
