"""Server that a command talks to, and proof that it shows there: address, TLS and token, the same flags for all."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headgate_client.tls_mistake import TlsMistake, tls_mistake

from headgate.console.parsers import accepting

_HINTS = {
    TlsMistake.NO_TLS: "it may want TLS: --tls-ca FILE",
    TlsMistake.NO_CERTIFICATE: "it may want a client certificate: --tls-cert FILE --tls-key FILE",
    TlsMistake.OTHER_CERTIFICATE: "it may not trust who signed the client certificate: --tls-cert FILE --tls-key FILE",
    TlsMistake.OTHER_AUTHORITY: "its certificate is signed by nobody that is trusted here: --tls-ca FILE",
    TlsMistake.OTHER_NAME: "its certificate has another name: --tls-server-name NAME",
    TlsMistake.NOT_SERVED: "it speaks no TLS at this address",
}
"""Flags that mend each mistake with TLS."""

HTTP_THERE = "http1.x server"
"""Part of what gRPC says where it is answered by HTTP/1."""

ADDR_HELP = "host:port or unix:/path (default: %(default)s)"


def add_target(
    parser: argparse.ArgumentParser, address: str, addr_help: str = ADDR_HELP, names: Sequence[str] = ("--addr",)
) -> None:
    """Add the flags; `address` is what is asked where nothing is said, `names` are those of the flag that says it."""
    parser.add_argument(*names, dest="addr", metavar="ADDR", default=address, help=addr_help)
    parser.add_argument(
        "--timeout", type=_seconds, default=2.0, metavar="S", help="seconds to wait (default: %(default)s)"
    )
    parser.add_argument("--tls", action="store_true", help="use TLS, trusting the system's authorities")
    parser.add_argument("--tls-ca", type=Path, metavar="FILE", help="use TLS, trusting these authorities")
    parser.add_argument("--tls-cert", type=Path, metavar="FILE", help="certificate to show, with --tls-key")
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="its private key")
    parser.add_argument("--tls-server-name", metavar="NAME", help="the name in the server's certificate")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="file with the bearer token to send")


def _seconds(text: str) -> float:
    with accepting("seconds, more than 0 and at most 3600", text):
        seconds = float(text)
        if not 0 < seconds <= 3600:
            raise ValueError
        return seconds


def wants_tls(args: argparse.Namespace) -> bool:
    """Return true if any flag is about TLS."""
    return bool(args.tls or args.tls_ca or args.tls_cert or args.tls_key)


def token_line(path: Path | None) -> str | None:
    """The first line of a file like the server's that holds a token. Raises OSError or ValueError."""
    if path is None:
        return None
    lines = (line.strip() for line in path.read_text("ascii").splitlines())
    token = next((line for line in lines if line and not line.startswith("#")), None)
    if token is None:
        raise ValueError(f"{path}: holds no token")
    return token


def why_closed(args: argparse.Namespace, status: Any, message: str) -> str:
    """Say what may be at the address, or which flag may be missing, where a connection failed; or nothing."""
    if HTTP_THERE in message:
        return " (an HTTP server is there: gRPC has a port of its own, 8081 unless set otherwise)"
    if status == "UNIMPLEMENTED":
        return " (this port does not serve it: operators' commands are for that of admin_grpc, others for that of grpc)"
    mistake = tls_mistake(message, tls=wants_tls(args), certificate=args.tls_cert is not None)
    return f" ({_HINTS[mistake]})" if status == "UNAVAILABLE" and mistake is not None else ""
