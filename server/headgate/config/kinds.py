"""Kinds of values that settings have, each with one parser for all sources.

A kind turns text into a value or raises `ValueError`; the reason names what is
accepted. Flags, environment variables and the config file's scalars all go through
the same parser, so a value that is good in one place is good in all. Nothing here
touches the disk or the network: whether a file exists is found out when it is opened.
"""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_network
from itertools import pairwise
from pathlib import Path
from typing import Protocol, TypeVar
from urllib.parse import urlsplit

from headgate.address import parse_address
from headgate.errors import ConfigError
from headgate.percentages import ACCEPTS as SHARE_ACCEPTS
from headgate.percentages import MILLION, millionths, percent

ORIGIN_SCHEMES = (
    "memory",
    "redis",
    "rediss",
    "redis+cluster",
    "rediss+cluster",
    "redis+sentinel",
    "rediss+sentinel",
)


class SettingKind(Protocol):
    """A parser, and how to say in words what it takes."""

    @property
    def accepts(self) -> str:
        """Description for messages and the documentation: `a whole number from 1 to 1024`."""

    @property
    def metavar(self) -> str: ...

    def parse(self, text: str, /) -> object:
        """The value, or ValueError; with an empty message `accepts` says it all."""


@dataclass(frozen=True, slots=True)
class Text:
    """A name made of harmless characters, so that it can go into logs, keys and headers as it is."""

    accepts: str
    pattern: str
    metavar: str = "NAME"

    def parse(self, text: str) -> str:
        if not re.fullmatch(self.pattern, text):
            raise ValueError
        return text


NAME = Text("1 to 63 letters, digits, `.`, `_` or `-`, beginning with a letter or digit", r"[A-Za-z0-9][\w.-]{0,62}")
BODY = Text("text of at most 4096 characters", r"(?s:.{0,4096})", "TEXT")
PREFIX = Text("1 to 128 letters, digits, `.`, `_`, `-` or `:`", r"[A-Za-z0-9._:-]{1,128}", "TEXT")
"""Prefix of keys without braces, which choose a Cluster's slot, without the wildcards of Redis' patterns, and without
the character that follows it in keys. Every key in Redis is that much longer.
"""
MODE = Text("an octal mode from `0600` to `0777`", r"0?[67][0-7]{2}", "MODE")
SAN = Text(
    "a name in a certificate: a DNS name (`*.` stands for one label), a URI (`*` at its end for any rest), an address",
    r"(\*\.)?[^*,\s]{1,253}|[a-z][a-z0-9+.-]*://[^*,\s]{0,2000}\*?",
)
XDS_NODE = Text("1 to 256 printable characters without blanks", r"[\x21-\x7e]{1,256}")
HOST = Text("a host name, or `*` for any", r"\*|[A-Za-z0-9][A-Za-z0-9.-]{0,252}", "NAME")
HEADER = Text("an HTTP header name", r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    values: tuple[str, ...]

    @property
    def accepts(self) -> str:
        return "one of " + ", ".join(f"`{value}`" for value in self.values)

    @property
    def metavar(self) -> str:
        return "|".join(self.values)

    def parse(self, text: str) -> str:
        if text not in self.values:
            raise ValueError
        return text


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number between two bounds."""

    low: int
    high: int
    metavar: str = "N"

    @property
    def accepts(self) -> str:
        return f"a whole number from {self.low} to {self.high}"

    def parse(self, text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9][0-9_]{0,18}", text):
            raise ValueError
        return _within(int(text), self.low, self.high)


@dataclass(frozen=True, slots=True)
class Number:
    """A number, with or without a fraction, between two bounds."""

    low: float
    high: float
    metavar: str = "N"

    @property
    def accepts(self) -> str:
        return f"a number from {self.low:g} to {self.high:g}"

    def parse(self, text: str) -> float:
        if not re.fullmatch(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)", text):
            raise ValueError
        return _within(float(text), self.low, self.high)


_N = TypeVar("_N", int, float)


def _within(value: _N, low: float, high: float) -> _N:
    if not low <= value <= high:
        raise ValueError
    return value


@dataclass(frozen=True, slots=True)
class Boolean:
    """True or false, in the words that people use for them. A flag without a value is true."""

    accepts: str = "`true` or `false`"
    metavar: str = "true|false"

    def parse(self, text: str) -> bool:
        match text.lower():
            case "true" | "yes" | "on" | "1":
                return True
            case "false" | "no" | "off" | "0":
                return False
        raise ValueError


@dataclass(frozen=True, slots=True)
class FilePath:
    """A path. Whether there is something at it is found out when it is opened."""

    accepts: str
    metavar: str = "FILE"

    def parse(self, text: str) -> Path:
        if not text or "\0" in text:
            raise ValueError
        return Path(text)


DIRECTORY = FilePath("a directory", "DIR")
XDS_SCHEME = "xds://"
PLANE_SCHEME = "plane://"


@dataclass(frozen=True, slots=True)
class RulesFrom:
    """Source of rules: a directory, as a path, or an xDS server or a plane, as the text of its URL."""

    accepts: str = "a directory, `xds://host:port` of an xDS server, or `plane://host:port,host:port` of a plane"
    metavar: str = "DIR|URL"

    def parse(self, text: str) -> Path | str:
        if text.startswith(XDS_SCHEME):
            return XDS_SCHEME + _address(text.removeprefix(XDS_SCHEME))
        if text.startswith(PLANE_SCHEME):
            return PLANE_SCHEME + _addresses(text.removeprefix(PLANE_SCHEME))
        return DIRECTORY.parse(text)


RULES_FROM = RulesFrom()
PEM_FILE = FilePath("a PEM file")
TEXT_FILE = FilePath("a text file")


@dataclass(frozen=True, slots=True)
class Parsed:
    """A kind that is a function: it turns text into the value, or raises ValueError."""

    accepts: str
    metavar: str
    parse: Callable[[str], object]


def _address(text: str) -> str:
    """`host:port`, `:port` or `unix:/path`, however it is spelled."""
    try:
        return str(parse_address(text))
    except ConfigError as error:
        raise ValueError(f"{error}; expected {ADDRESS.accepts}") from None


ADDRESS = Parsed("`host:port`, `[ipv6]:port`, `:port` (every address) or `unix:/path`", "ADDR", _address)
"""Address to listen on or to dial."""


def _addresses(text: str) -> str:
    """One address or several, separated by commas, however they are spelled."""
    return ",".join(map(_address, text.split(",")))


ADDRESSES = Parsed("`host:port` or `unix:/path`, or several of them with commas between", "ADDR,…", _addresses)
"""Addresses to dial, the first that answers."""


def _share(text: str) -> str:
    """A percentage, in its one spelling."""
    return percent(millionths(text))


SHARE = Parsed(SHARE_ACCEPTS, "N%", _share)


def _stages(text: str) -> str:
    """Shares that rise, each above 0% and below 100%, in their one spelling."""
    shares = [millionths(part) for part in text.split(",")]
    if len(shares) > MOST_STAGES or not all(low < high for low, high in pairwise([0, *shares, MILLION])):
        raise ValueError(f"expected {STAGES.accepts}, found {text!r}")
    return ",".join(map(percent, shares))


MOST_STAGES = 20
STAGES = Parsed(f"up to {MOST_STAGES} percentages that rise, with commas between, like `1%,10%,50%`", "N%,…", _stages)
"""Stages of a rollout; behind the last one comes everybody."""


def _origin_url(text: str) -> str:
    """The URL of an origin, checked for its shape only. Messages never repeat it: it may hold a password."""
    if text.startswith("file:"):
        return _url_file(text)
    scheme, separator, rest = text.partition("://")
    if not separator or scheme not in ORIGIN_SCHEMES:
        raise ValueError(f"expected {ORIGIN_URL.accepts}")
    if scheme == "memory" and rest:
        raise ValueError("`memory://` takes nothing after it")
    if scheme != "memory" and not _hosts(rest):
        raise ValueError(f"`{scheme}://` needs at least one host: `{scheme}://host:port,host:port`")
    return text


ORIGIN_URL = Parsed(
    "`memory://`, or hosts after `redis://`, `redis+cluster://` or `redis+sentinel://` (`rediss…`: TLS), "
    "or `file:/path` of a file that holds such a URL",
    "URL",
    _origin_url,
)


def _store_url(text: str) -> str:
    """The URL of a store, checked for its shape only. Messages never repeat it: it may hold a password."""
    if text.startswith("file:"):
        return _url_file(text)
    if not text.startswith(("postgresql://", "postgres://")):
        raise ValueError(f"expected {STORE_URL.accepts}")
    return text


STORE_URL = Parsed(
    "`postgresql://user@host:port/database`, as PostgreSQL's libpq reads it, "
    "or `file:/path` of a file that holds such a URL",
    "URL",
    _store_url,
)


def _http_url(text: str) -> str:
    """An `http://` or `https://` URL, checked for its shape only. Messages never repeat it: it may hold a password."""
    try:
        parts = urlsplit(text)
        right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:  # a port that is none, a bracket too many
        right = False
    if not right or parts.query or parts.fragment:
        raise ValueError(f"expected {HTTP_URL.accepts}")
    return text


HTTP_URL = Parsed("`http://host:port` or `https://host:port`", "URL", _http_url)


def _hosts(rest: str) -> str:
    # Not with urlsplit, whose errors repeat what they are about.
    return rest.partition("?")[0].rpartition("@")[2].partition("/")[0]


def holds_password(origin: str) -> bool:
    """Return true if an origin URL has a password in it, rather than in a file."""
    userinfo, at, _ = origin.partition("://")[2].rpartition("@")
    return bool(at and ":" in userinfo) or "sentinel_password=" in origin


def _url_file(text: str) -> str:
    path = text.removeprefix("file:").removeprefix("//")
    if not path or "\0" in path:
        raise ValueError("`file:` needs the path of a file that holds the URL: `file:/run/secrets/url`")
    # Absolute from here on: it is read again for every connection.
    return f"file:{os.path.abspath(path)}"


@dataclass(frozen=True, slots=True)
class Peer:
    """Another region, and where its exchange listens."""

    region: str
    address: str


def parse_peer(text: str) -> Peer:
    """Read `REGION=ADDR`. Raises ValueError."""
    region, equals, address = text.partition("=")
    if not equals:
        raise ValueError
    try:
        return Peer(NAME.parse(region), _address(address))
    except ValueError as error:
        raise ValueError(str(error) or f"expected {PEER.accepts} with ADDR {ADDRESS.accepts}") from None


PEER = Parsed("`REGION=ADDR`", "REGION=ADDR", parse_peer)


PAIRS_BYTES = 8192
"""Length of all pairs of one setting: they go into every stream's first message or header block."""


def _pairs(accepts: str, separator: str, name: str) -> Parsed:
    """Pairs with commas between them, each a name and a value: kept as text, whose parts `pairs_of` gives."""
    pair = re.compile(rf"({name}){separator}([\x20-\x7e]*)")

    def parse(text: str) -> str:
        parts = [part.strip() for part in text.split(",") if part.strip()]
        if len(text) > PAIRS_BYTES or not all(pair.fullmatch(part) for part in parts):
            raise ValueError(f"expected {accepts}")  # without what was given: it may be a secret
        return ",".join(parts)

    return Parsed(accepts, f"K{separator}V,…", parse)


def pairs_of(text: str, separator: str) -> dict[str, str]:
    """Names and values of a setting that holds pairs."""
    split = (part.partition(separator) for part in text.split(",") if part)
    return {name.strip(): value.strip() for name, _, value in split}


EQUALS_PAIRS = _pairs("`name=value`, with commas between them", "=", "[A-Za-z0-9_.-]{1,128}")
HEADER_PAIRS = _pairs("`header:value`, with commas between them; headers in small letters", ":", "[a-z0-9_.-]{1,128}")


def _network(text: str) -> str:
    """A network in the usual spelling, so that equal networks are equal text."""
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise ValueError(f"expected {NETWORK.accepts}: {error}") from None


NETWORK = Parsed("a network as in `10.0.0.0/8` or `fd00::/8`, or one address", "CIDR", _network)


@dataclass(frozen=True, slots=True)
class ListOf:
    """Several values of another kind: a flag that is repeated, a list in the file, comma separated in the
    environment.
    """

    item: SettingKind

    @property
    def accepts(self) -> str:
        return f"any number of {self.item.accepts}"

    @property
    def metavar(self) -> str:
        return self.item.metavar

    def parse(self, text: str) -> object:
        """Parse one entry; the reader of each source knows how that source separates them."""
        return self.item.parse(text)
