"""How a client reaches a server: addresses, TLS, tokens, and the bounds of its channels."""

import ipaddress
import re
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
RESERVE = "/headgate.v1.Limits/Reserve"
SETTLE = "/headgate.v1.Limits/Settle"
PROBE = "/grpc.health.v1.Health/Check"
"""Waits for a connection and no longer, charges nothing, and needs no token."""

Address = str | Sequence[str]
"""`host:port`, `unix:/path` or `dns:///name:port`; or a list of them, which are asked in turn."""
Token = str | Callable[[], str]
"""A bearer token, or what returns one: it is called for every call, so tokens can change."""
Metadata = tuple[tuple[str, str | bytes], ...]

Options = Sequence[tuple[str, str | int]]
PLAIN_OPTIONS: Options = (
    # A rate-limit service is inside the network: a proxy for the web is not the way to it.
    ("grpc.enable_http_proxy", 0),
    # Decisions are small: whatever is larger is not one.
    ("grpc.max_receive_message_length", 4 * 1024 * 1024),
    # A server that restarts is back in seconds: don't wait for minutes to try it again.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 5_000),
)
OPTIONS: Options = (
    *PLAIN_OPTIONS[:-1],
    ("grpc.max_reconnect_backoff_ms", 1_000),
    # Over all addresses that a name has. It also connects again by itself: nobody's 30 ms pay for that.
    ("grpc.lb_policy_name", "round_robin"),
    # A name is looked up again when a connection ends, at most once in that time.
    ("grpc.dns_min_time_between_resolutions_ms", 1_000),
    # There are no service configs in anybody's DNS for this; each lookup would be one more that can be slow.
    ("grpc.service_config_disable_resolution", 1),
    # A connection that a gateway has forgotten is noticed while nobody needs it.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 5_000),
    # What ends a connection whose ping nobody answers is this one, by itself a minute.
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
    # A quiet service has its connection when the first call comes after a quiet night.
    ("grpc.client_idle_timeout_ms", 2**31 - 1),
    # Connections of its own: a child process must not go on with its parent's.
    ("grpc.use_local_subchannel_pool", 1),
)
_SCHEMES: Final = ("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:")
_PORT: Final = re.compile(r":(\d{1,5})$")


@dataclass(frozen=True, slots=True)
class Tls:
    """PEM files; with none the system's authorities are trusted and no certificate is shown."""

    ca: Path | str | None = None
    cert: Path | str | None = None
    key: Path | str | None = None
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


def targets(addr: Address) -> tuple[str, ...]:
    """What gRPC dials, each with a channel of its own. Raises TypeError or ValueError that name the address."""
    if isinstance(addr, str):
        return (_checked_target("addr", addr),)
    if not isinstance(addr, Sequence) or isinstance(addr, bytes):
        raise TypeError(f"addr: a str or a list of them, got {type(addr).__name__} {addr!r}")
    if not addr:
        raise ValueError("addr: the list is empty")
    checked = tuple(_checked_target(f"addr[{number}]", one) for number, one in enumerate(addr))
    # gRPC goes round numeric addresses of one kind by itself, and skips those that are not connected.
    for version, scheme in ((4, "ipv4:"), (6, "ipv6:")):
        if all(_ip_version(one) == version for one in addr):
            return (scheme + ",".join(addr),)
    return checked


def authority(dialled: Sequence[str]) -> Options:
    """A list of numeric addresses is no name of a server: calls carry the first one's, as it would be alone."""
    first, comma, _ = dialled[0].partition(",")
    return [("grpc.default_authority", first.partition(":")[2])] if comma else []


def _checked_target(name: str, addr: object) -> str:
    if not isinstance(addr, str):
        raise TypeError(f"{name}: a str, got {type(addr).__name__} {addr!r}")
    if addr.startswith(("unix:", "unix-abstract:")):
        if not addr.partition(":")[2].strip("/"):
            raise ValueError(f"{name}: {addr!r} names no socket")
        return addr
    if "," in addr:
        raise ValueError(f"{name}: {addr!r} has a comma in it; several addresses are a list")
    if "://" in addr and not addr.startswith(_SCHEMES):
        raise ValueError(f"{name}: {addr!r} is a URL; an address is host:port, unix:/path or dns:///name:port")
    port = _PORT.search(addr)
    host = "" if port is None else addr[: port.start()].removeprefix("dns:").rpartition("/")[2]
    if port is None or not 0 < int(port[1]) < 65536:
        raise ValueError(f"{name}: {addr!r} names no port; an address is host:port, unix:/path or dns:///name:port")
    if not host or (":" in host and not host.startswith(("[", *_SCHEMES))):
        raise ValueError(f"{name}: {addr!r} names no host; with IPv6 it is [address]:port")
    return addr if addr.startswith(_SCHEMES) else f"dns:///{addr}"


def _ip_version(addr: str) -> int | None:
    try:
        return ipaddress.ip_address(addr.rpartition(":")[0].strip("[]")).version
    except ValueError:
        return None


def credentials(tls: Tls) -> grpc.ChannelCredentials:
    """TLS credentials for gRPC. Raises OSError or ValueError naming the file that can't be used."""
    ca, cert, key = _read(tls.ca), _read(tls.cert), _read(tls.key)
    if tls.ca is not None:
        _check_authorities(tls.ca)
    if tls.cert is not None and tls.key is not None:
        _check_pair(tls.cert, tls.key)
    return grpc.ssl_channel_credentials(ca, key, cert)


def _check_authorities(ca: Path | str) -> None:
    """Raises ValueError: gRPC takes what is no certificate without a word, and never connects."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(ca)
    except ssl.SSLError as error:
        raise ValueError(f"{ca} holds no certificate of an authority, in PEM form: {_reason(error)}") from error


def _check_pair(cert: Path | str, key: Path | str) -> None:
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


def check_token(token: object) -> None:
    """Raises TypeError or ValueError, which don't repeat it."""
    if token is None or callable(token):
        return
    if not isinstance(token, str):
        raise TypeError(f"token: a str or a function that returns one, got {type(token).__name__}")
    if not token or not token.isascii() or any(not sign.isprintable() or sign.isspace() for sign in token):
        raise ValueError("token: printable ASCII without spaces; did it come with the end of its line?")


def metadata(token: Token | None) -> Metadata:
    """What a call carries beside its message."""
    if token is None:
        return ()
    return (("authorization", f"Bearer {token() if callable(token) else token}"),)


def options(tls: Tls | None, given: Options = PLAIN_OPTIONS) -> list[tuple[str, str | int]]:
    """The channel's options for gRPC."""
    if tls is None or tls.server_name is None:
        return list(given)
    return [*given, ("grpc.ssl_target_name_override", tls.server_name)]


def _read(path: Path | str | None) -> bytes | None:
    return None if path is None else Path(path).read_bytes()
