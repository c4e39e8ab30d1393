"""Origin URLs that name Redis: parsed once, refused with the reason, never shown with a password.

    redis://[user:password@]host[:port][,host[:port]…][/db]
    redis+cluster://[user:password@]host[:port][,…]
    redis+sentinel://[user:password@]host[:port][,…]/service[,service…][/db]

`rediss` instead of `redis` is TLS; then `ca`, `cert` and `key` (files) and
`verify=hostname|chain|none` may follow as query parameters. User name and password are
those of the servers that count; Sentinels get `sentinel_user` and `sentinel_password`.
`password_file` and `sentinel_password_file` name files instead, which are read when a
connection is made (secrets.py).

What is refused is named by its place, never repeated: in a URL with a slip in it (an `@`
that is missing, a `?` that is not escaped) any part may be the password.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final
from urllib.parse import parse_qsl, unquote

from headgate.errors import ConfigError

ACCEPTED: Final = (
    "redis://[user:password@]host[:port][,host[:port]…][/db]",
    "redis+cluster://[user:password@]host[:port][,…]",
    "redis+sentinel://[user:password@]host[:port][,…]/service[,service…][/db]",
    "rediss for TLS in each",
    "file:/path of a file that holds one of these",
)
REDIS_PORT: Final = 6379
SENTINEL_PORT: Final = 26379
MOST_SHARDS: Final = 256
"""More is a slip: a node keeps two connections to each, and asks each every second."""


class Topology(StrEnum):
    """Kind of what a URL names: independent servers, a Cluster, or primaries that Sentinels know."""

    SHARDS = ""
    CLUSTER = "cluster"
    SENTINEL = "sentinel"


class Verify(StrEnum):
    """Strictness about the server's certificate."""

    HOSTNAME = "hostname"
    CHAIN = "chain"
    NONE = "none"


TLS_PARAMETERS: Final = ("ca", "cert", "key", "verify")
SENTINEL_PARAMETERS: Final = ("sentinel_user", "sentinel_password", "sentinel_password_file")
PARAMETERS: Final = ("password_file",)


@dataclass(frozen=True, slots=True)
class RedisAddress:
    """Host and port of one server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Credentials:
    """Whom to log in as; without a password, nobody."""

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    password_file: str | None = None
    """File that has the password, when it is not here."""


@dataclass(frozen=True, slots=True)
class RedisTls:
    """Files and strictness of TLS; paths are as the URL has them."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    verify: Verify = Verify.HOSTNAME


@dataclass(frozen=True, slots=True)
class RedisUrl:
    """An origin's URL, taken apart and checked."""

    kind: Topology
    addresses: tuple[RedisAddress, ...]
    db: int = 0
    services: tuple[str, ...] = ()
    """Names of what the Sentinels watch, each a shard."""
    credentials: Credentials = Credentials()
    sentinel_credentials: Credentials = Credentials()
    tls: RedisTls | None = None

    @property
    def listed(self) -> tuple[str, ...]:
        """Names of the shards by which keys are placed; a Cluster has none."""
        if self.kind is Topology.CLUSTER:
            return ()
        return self.services or tuple(map(str, self.addresses))


def parse_address(name: str) -> RedisAddress:
    """Read a server's name in a list. Raises ConfigError."""
    return _address(name, "a server of the region's list", REDIS_PORT)


def is_redis_url(url: str) -> bool:
    """Say if the URL's scheme is one of ours; this says nothing of the rest."""
    return url.partition("://")[0].partition("+")[0] in ("redis", "rediss")


def parse_redis_url(url: str) -> RedisUrl:
    """Raises ConfigError that says what is wrong, without the password."""
    if not _is_utf8(url):
        raise _refuse("it is not text in UTF-8")
    scheme, _, rest = url.partition("://")
    secure, kind = _scheme(scheme)
    rest, _, query = rest.partition("?")
    # The last @, because a password may hold one that was not escaped.
    userinfo, _, location = rest.rpartition("@")
    hosts, _, path = location.partition("/")
    parameters = _parameters(query, secure=secure, kind=kind)
    services, db = _path(path, kind)
    return RedisUrl(
        kind,
        _addresses(hosts, SENTINEL_PORT if kind is Topology.SENTINEL else REDIS_PORT),
        db,
        services,
        _credentials(userinfo, parameters.get("password_file")),
        _sentinel_credentials(parameters),
        _tls(parameters) if secure else None,
    )


def _is_utf8(text: str) -> bool:
    """Not so when bytes of the environment or the command line were none."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _refuse(reason: str) -> ConfigError:
    return ConfigError(f"origin: {reason}; accepted is {', '.join(ACCEPTED)}")


def _scheme(scheme: str) -> tuple[bool, Topology]:
    name, plus, kind = scheme.partition("+")
    if name not in ("redis", "rediss") or (plus and kind not in ("cluster", "sentinel")):
        raise _refuse("the scheme is not known")
    return name == "rediss", Topology(kind)


def _credentials(userinfo: str, password_file: str | None) -> Credentials:
    user, _, password = userinfo.partition(":")
    if password and password_file:
        raise _refuse("there is a password and a password_file: give one of them")
    if userinfo and not password and not password_file:
        raise _refuse(
            "there is a user name and no password (user:password@, :password@ for the default user, or password_file=)"
        )
    return Credentials(unquote(user) or None, unquote(password) or None, password_file)


def _sentinel_credentials(parameters: dict[str, str]) -> Credentials:
    credentials = Credentials(*map(parameters.get, SENTINEL_PARAMETERS))
    if credentials.password and credentials.password_file:
        raise _refuse("there is a sentinel_password and a sentinel_password_file: give one of them")
    return credentials


def _addresses(hosts: str, default_port: int) -> tuple[RedisAddress, ...]:
    if not hosts:
        raise _refuse("there is no host")
    parts = hosts.split(",")
    if len(parts) > MOST_SHARDS:
        raise _refuse(f"there are {len(parts)} hosts, and at most {MOST_SHARDS} are allowed")
    addresses = tuple(_address(part, f"host {number}", default_port) for number, part in enumerate(parts, 1))
    doubled = {str(address) for address in addresses if addresses.count(address) > 1}
    if doubled:
        raise _refuse(f"{', '.join(sorted(doubled))} is there twice")
    return addresses


def _address(text: str, which: str, default_port: int) -> RedisAddress:
    host, port = _split_port(text, which)
    if not host or any(character in host for character in " []/?#@"):
        raise _refuse(f"{which} is not host or host:port (escape `?` in a password as %3F)")
    if not port:
        return RedisAddress(host.lower(), default_port)
    if not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
        raise _refuse(f"{which}: its port is not a number from 1 to 65535")
    return RedisAddress(host.lower(), int(port))


def _split_port(text: str, which: str) -> tuple[str, str]:
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        if rest and not rest.startswith(":"):
            raise _refuse(f"{which} is not [address]:port")
        return host, rest[1:]
    if text.count(":") > 1:
        raise _refuse(f"{which}: an IPv6 address goes in brackets")
    host, colon, port = text.partition(":")
    if colon and not port:
        raise _refuse(f"{which} has no port after the colon")
    return host, port


def _path(path: str, kind: Topology) -> tuple[tuple[str, ...], int]:
    parts = path.split("/") if path else []
    services: tuple[str, ...] = ()
    if kind is Topology.SENTINEL:
        services = _services(parts.pop(0) if parts else "")
    if len(parts) > 1:
        raise _refuse("the path has one part too many")
    db = _db(parts[0]) if parts and parts[0] else 0
    if db and kind is Topology.CLUSTER:
        raise _refuse("a Cluster has no databases but 0")
    return services, db


def _services(text: str) -> tuple[str, ...]:
    services = tuple(unquote(name) for name in text.split(","))
    if "" in services:
        raise _refuse("the Sentinels' service name is missing (redis+sentinel://host/service)")
    if len(services) > MOST_SHARDS:
        raise _refuse(f"there are {len(services)} services, and at most {MOST_SHARDS} are allowed")
    doubled = [number for number, name in enumerate(services, 1) if name in services[: number - 1]]
    if doubled:
        raise _refuse(f"service {doubled[0]} is there twice")
    return services


def _db(text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise _refuse("the database is not a number")
    return int(text)


def _parameters(query: str, *, secure: bool, kind: Topology) -> dict[str, str]:
    accepted = PARAMETERS + (TLS_PARAMETERS if secure else ())
    accepted += SENTINEL_PARAMETERS if kind is Topology.SENTINEL else ()
    parameters: dict[str, str] = {}
    for number, (name, value) in enumerate(parse_qsl(query, keep_blank_values=True), 1):
        if name in TLS_PARAMETERS and not secure:
            raise _refuse(f"parameter {name!r} needs rediss")
        if name not in accepted:
            raise _refuse(f"parameter {number} is not known ({', '.join(accepted)} accepted here)")
        if name in parameters or not value:
            raise _refuse(f"parameter {name!r} is {'empty' if not value else 'there twice'}")
        parameters[name] = value
    return parameters


def _tls(parameters: dict[str, str]) -> RedisTls:
    verify = parameters.get("verify", Verify.HOSTNAME)
    if verify not in list(Verify):
        raise _refuse(f"verify is none of {', '.join(Verify)}")
    if "key" in parameters and "cert" not in parameters:
        raise _refuse("there is a key and no cert")
    return RedisTls(parameters.get("ca"), parameters.get("cert"), parameters.get("key"), Verify(verify))
