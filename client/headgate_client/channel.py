"""How a client reaches a server: the address, TLS, and the bounds of its channel."""

import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"

OPTIONS: Sequence[tuple[str, int]] = (
    # A rate-limit service is inside the network: a proxy for the web is not the way to it.
    ("grpc.enable_http_proxy", 0),
    # Decisions are small: whatever is larger is not one.
    ("grpc.max_receive_message_length", 4 * 1024 * 1024),
    # A server that restarts is back in seconds: don't wait for minutes to try it again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files; with none the system's authorities are trusted and no certificate is shown."""

    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    server_name: str | None = None
    """The name in the server's certificate, when it is not the one that is dialled."""

    def __post_init__(self) -> None:
        # gRPC ends the whole process where it gets the one without the other.
        if (self.cert is None) != (self.key is None):
            given, missing = ("cert", "key") if self.key is None else ("key", "cert")
            raise ValueError(f"a client certificate is a pair: {given} is given and {missing} is not")


def target(addr: str) -> str:
    """`host:port` or `unix:/path`, as gRPC writes it."""
    if not addr:
        raise ValueError("an address is host:port or unix:/path")
    return addr if addr.startswith("unix:") else f"dns:///{addr}"


def credentials(tls: Tls) -> grpc.ChannelCredentials:
    """TLS credentials for gRPC. Raises OSError or ValueError naming the file that can't be used."""
    ca, cert, key = _read(tls.ca), _read(tls.cert), _read(tls.key)
    if tls.cert is not None and tls.key is not None:
        _check_pair(tls.cert, tls.key)
    return grpc.ssl_channel_credentials(ca, key, cert)


def _check_pair(cert: Path, key: Path) -> None:
    """gRPC says nothing of a pair that doesn't fit: it only never connects."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_cert_chain(cert, key, password=_no_password)
    except (ssl.SSLError, ValueError) as error:
        raise ValueError(f"{cert} and {key} are no certificate and its key: {_reason(error)}") from error


def _reason(error: Exception) -> str:
    return getattr(error, "reason", None) or str(error)


def _no_password() -> str:
    # Without this OpenSSL asks on the terminal.
    raise ValueError("the key is encrypted")


def metadata(token: str | None) -> tuple[tuple[str, str | bytes], ...]:
    """What a call carries beside its message."""
    return () if token is None else (("authorization", f"Bearer {token}"),)


def options(tls: Tls | None) -> list[tuple[str, str | int]]:
    """The channel's options for gRPC."""
    given: list[tuple[str, str | int]] = list(OPTIONS)
    if tls is not None and tls.server_name is not None:
        given.append(("grpc.ssl_target_name_override", tls.server_name))
    return given


def _read(path: Path | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
