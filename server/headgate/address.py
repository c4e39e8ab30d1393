"""Addresses as users write them: `host:port`, `[v6]:port`, `:port`, `unix:/path`, `unix:///path`.

Parsing has no side effects; what can't be an address raises ConfigError naming it.
"""

import os
from dataclasses import dataclass

from headgate.errors import ConfigError

# sockaddr_un holds 108 bytes on Linux and 104 on macOS, with a final NUL.
MAX_UNIX_PATH_BYTES = 103
MAX_PORT = 65535
ALL_ADDRESSES = "::"
"""Every address of this machine, IPv4 and IPv6: `:port` is short for it."""


@dataclass(frozen=True, slots=True)
class TcpAddress:
    """A host and a port; port 0 lets the system choose one when it is bound."""

    host: str
    """Host without the brackets of an IPv6 address."""
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class UnixAddress:
    """The path of a Unix socket."""

    path: str

    def __str__(self) -> str:
        return f"unix:{self.path}"


Address = TcpAddress | UnixAddress


def parse_address(text: str) -> Address:
    """The address that a user wrote. Raises ConfigError, with the text and what is accepted."""
    if text.startswith("unix:"):
        return _parse_unix(text)
    return _parse_tcp(text)


def _parse_unix(text: str) -> UnixAddress:
    path = text.removeprefix("unix:")
    if path.startswith("//"):
        # The URL form has an authority, which must be empty: unix:///path.
        path = path.removeprefix("//")
        if not path.startswith("/"):
            raise ConfigError(f"address {text!r}: write unix:/path or unix:///path")
    if not path or "\0" in path:
        raise ConfigError(f"address {text!r}: no path of a Unix socket")
    # Absolute from here on: a later chdir must not change what we unlink.
    path = os.path.abspath(path)
    if len(os.fsencode(path)) > MAX_UNIX_PATH_BYTES:
        raise ConfigError(f"address {text!r}: a Unix socket's path has at most {MAX_UNIX_PATH_BYTES} bytes")
    return UnixAddress(path)


def _parse_tcp(text: str) -> TcpAddress:
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ConfigError(f"address {text!r}: write an IPv6 address in brackets, as in [::1]:8081")
    if not colon or (not host and text.startswith("[")):
        raise ConfigError(f"address {text!r}: write host:port or unix:/path")
    if not (port.isascii() and port.isdigit() and int(port) <= MAX_PORT):
        raise ConfigError(f"address {text!r}: the port is a number from 0 to {MAX_PORT}")
    return TcpAddress(host or ALL_ADDRESSES, int(port))
