"""How a client reaches a server: the address, TLS, and the bounds of its channel."""

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


def target(addr: str) -> str:
    """`host:port` or `unix:/path`, as gRPC writes it."""
    if not addr:
        raise ValueError("an address is host:port or unix:/path")
    return addr if addr.startswith("unix:") else f"dns:///{addr}"


def credentials(tls: Tls) -> grpc.ChannelCredentials:
    """TLS credentials for gRPC. Reads the files, and raises OSError for one that can't be read."""
    return grpc.ssl_channel_credentials(_read(tls.ca), _read(tls.key), _read(tls.cert))


def options(tls: Tls | None) -> list[tuple[str, str | int]]:
    """The channel's options for gRPC."""
    given: list[tuple[str, str | int]] = list(OPTIONS)
    if tls is not None and tls.server_name is not None:
        given.append(("grpc.ssl_target_name_override", tls.server_name))
    return given


def _read(path: Path | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
