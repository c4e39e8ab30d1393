"""Callers' addresses: how many connections each has, and how fast it makes new ones. Pure: `now` is an argument."""

from collections import Counter
from urllib.parse import unquote

from headgate.endpoint.trust import network_of


def counted_as_peer(peer: str) -> str:
    """Return the network of a peer as gRPC names it: `ipv4:ADDRESS:PORT`, `ipv6:[ADDRESS]:PORT` or `unix:…`."""
    family, _, rest = unquote(peer).partition(":")
    return peer if family == "unix" else network_of(rest.rpartition(":")[0].strip("[]"))


class Addresses:
    """Bounds the connections of each address, in number and per second."""

    def __init__(self, max_connections: int, per_s: float) -> None:
        """After a pause an address may make all its connections at once, then `per_s` in a second."""
        self._max_connections = max_connections
        self._interval_s = 1 / per_s
        self._burst_s = max_connections * self._interval_s
        self._live: Counter[str] = Counter()
        self._due_at: dict[str, float] = {}
        """Time at which an address has as many connections to make as after a pause. No entry: now."""

    def why_not(self, address: str, now: float) -> str | None:
        """Return the bound that keeps it from one more connection; None: none does."""
        if self._live[address] >= self._max_connections:
            return "connections_per_address"
        if self._due_at.get(address, now) + self._interval_s > now + self._burst_s:
            return "connection_rate"
        return None

    def add(self, address: str, now: float) -> None:
        """Count a connection that was made."""
        self._live[address] += 1
        self._due_at[address] = max(self._due_at.get(address, now), now) + self._interval_s

    def remove(self, address: str) -> None:
        """Stop counting a connection that has ended."""
        self._live[address] -= 1
        if not self._live[address]:
            del self._live[address]

    def tick(self, now: float) -> None:
        """Forget the addresses that may make all their connections again."""
        self._due_at = {address: due_at for address, due_at in self._due_at.items() if due_at > now}
