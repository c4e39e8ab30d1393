"""The address of a client behind proxies, which the client can't choose.

`X-Forwarded-For` begins with whatever the client sent: who takes its first address lets everybody be everybody.
Only what proxies of one's own appended is true, and it stands at the end. So the list is read from the right, from the
address that is connected: as long as an address is a proxy of ours, the one to its left was seen by it.
"""

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any, Final

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

MAX_HOPS: Final = 32
"""Addresses that are looked at, from the right: no chain of proxies is longer, and a header may be."""
UNKNOWN: Final = "unknown"
"""Of a connection without an address, as on a Unix socket that is not trusted."""


class ClientAddress:
    """A function of a request that returns the client's address as text; for keys.

    Give the networks of the proxies (`trusted=["10.0.0.0/8"]`; `"unix"` for Unix sockets), or, where their
    addresses are not known, how many of them append to the header (`hops=1` behind one load balancer). Of an
    IPv6 address the first `ipv6_prefix` bits count: one customer has a whole /64.
    """

    def __init__(
        self,
        *,
        trusted: Iterable[str] = (),
        hops: int | None = None,
        header: str = "x-forwarded-for",
        ipv6_prefix: int = 64,
    ) -> None:
        if isinstance(trusted, str):
            raise TypeError(f"trusted: a list of networks, got one that is not in a list: write [{trusted!r}]")
        networks = list(trusted)
        if networks and hops is not None:
            raise ValueError("hops: give either the trusted networks or the number of hops")
        if hops is not None and not 0 <= hops <= MAX_HOPS:
            raise ValueError(f"hops: 0 to {MAX_HOPS}, got {hops}")
        if not 0 < ipv6_prefix <= 128:
            raise ValueError(f"ipv6_prefix: 1 to 128 bits, got {ipv6_prefix}")
        self._trusts_unix = "unix" in networks
        self._trusted = [_network(number, text) for number, text in enumerate(networks) if text != "unix"]
        self._hops = hops
        self._header = header.lower()
        self._ipv6_prefix = ipv6_prefix

    def __call__(self, request: Any) -> str:
        """`request` has `client` and `headers`, as Starlette's and this package's have."""
        peer = request.client
        return self.of(None if peer is None else peer.host, request.headers.get(self._header) or "")

    def of(self, peer: str | None, forwarded: str) -> str:
        """For the address that is connected, and the header's text."""
        hops = [part.strip() for part in forwarded.split(",")[-MAX_HOPS:]] if forwarded else []
        if self._hops is not None:
            # The last is the one that our outermost-but-none saw: each of our proxies appended one.
            chosen = hops[-self._hops] if 0 < self._hops <= len(hops) else (peer if self._hops == 0 else None)
            return self._text(_parse(chosen or peer or ""))
        current = _parse(peer or "")
        trusted = self._trusts_unix if not peer else self._is_trusted(current)
        for hop in reversed(hops):
            if not trusted:
                break
            seen = _parse(hop)
            if seen is None:
                # Garbage that a proxy of ours let through: what is to its left is the client's invention.
                break
            current, trusted = seen, self._is_trusted(seen)
        return self._text(current)

    def _is_trusted(self, address: Address | None) -> bool:
        return address is not None and any(
            address.version == network.version and address in network for network in self._trusted
        )

    def _text(self, address: Address | None) -> str:
        if address is None:
            return UNKNOWN
        if address.version == 4 or self._ipv6_prefix == 128:
            return str(address)
        return str(ipaddress.ip_network((address, self._ipv6_prefix), strict=False))


def by_address(entry: str = "remote_address", **options: Any) -> Callable[[Any], dict[str, str]]:
    """Return a key function: `{"remote_address": …}` of each request, which is Envoy's name for it. Options are those
    of `ClientAddress`; without any it is the address that is connected, which behind a proxy is the proxy's.
    """
    address = ClientAddress(**options)

    def key(request: Any) -> dict[str, str]:
        return {entry: address(request)}

    return key


def _network(number: int, text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network:
    try:
        return ipaddress.ip_network(text)
    except ValueError as error:
        raise ValueError(f"trusted[{number}]: a network such as 10.0.0.0/8, or 'unix': {error}") from error


def _parse(text: str) -> Address | None:
    """`1.2.3.4`, `1.2.3.4:567`, `::1` or `[::1]:567`; an IPv4 address in IPv6's clothes is an IPv4 address."""
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address
