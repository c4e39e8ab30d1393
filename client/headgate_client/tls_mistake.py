"""Mistakes with TLS, told by what gRPC says of a connection that failed: its own words name none of them."""

from enum import Enum
from typing import Final


class TlsMistake(Enum):
    """One mistake, with what a caller of this client can do about it."""

    NO_TLS = "the server may want TLS: tls=Tls(ca=FILE)"
    NO_CERTIFICATE = "the server may want a client certificate: Tls(cert=FILE, key=FILE)"
    OTHER_CERTIFICATE = "the server may not trust who signed the client certificate: Tls(cert=FILE, key=FILE)"
    OTHER_AUTHORITY = "the server's certificate is signed by nobody that is trusted here: Tls(ca=FILE)"
    OTHER_NAME = "the server's certificate has another name: Tls(server_name=NAME)"
    NOT_SERVED = "the server speaks no TLS at this address"


_SAID: Final = (
    ("CERTIFICATE_VERIFY_FAILED", TlsMistake.OTHER_AUTHORITY),
    ("Hostname Verification Check failed", TlsMistake.OTHER_NAME),
    ("WRONG_VERSION_NUMBER", TlsMistake.NOT_SERVED),
)
_CLOSED: Final = ("Socket closed", "Connection reset", "Broken pipe", "handshake", "Unwrap failed")
"""Words for a connection that was made and did not last: a server that wants TLS, or a certificate, closes it without a
word."""


def tls_mistake(message: str, *, tls: bool, certificate: bool) -> TlsMistake | None:
    """Tell the mistake that gRPC's message is a sign of. `certificate`: this side shows one."""
    for sign, mistake in _SAID:
        if sign in message:
            return mistake
    if not any(sign in message for sign in _CLOSED):
        return None
    if not tls:
        return TlsMistake.NO_TLS
    return TlsMistake.OTHER_CERTIFICATE if certificate else TlsMistake.NO_CERTIFICATE
