"""A call as key functions of both kinds of gRPC servers see it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from headgate_client.middleware.http import Peer


@dataclass(frozen=True)
class RpcCall:
    """One call of a gRPC method."""

    method: str
    """`/package.Service/Method`."""
    metadata: Iterable[tuple[str, str | bytes]]
    context: Any
    """gRPC's own; for who is behind a certificate (`context.auth_context()`), for example."""

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """The metadata that is text, by key; several of one key are joined with commas."""
        joined: dict[str, str] = {}
        for key, value in self.metadata:
            if isinstance(value, str):
                joined[key] = f"{joined[key]}, {value}" if key in joined else value
        return joined

    @property
    def client(self) -> Peer | None:
        """Who is connected; None on a Unix socket."""
        scheme, _, address = str(self.context.peer()).partition(":")
        if scheme not in ("ipv4", "ipv6"):
            return None
        host, _, port = address.replace("%5B", "[").replace("%5D", "]").rpartition(":")
        return Peer(host.strip("[]"), int(port))
