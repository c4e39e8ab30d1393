"""Callers by their address: who is trusted by it alone (this machine, and the networks that the operator names), and
whose connections count as one caller's."""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

from headgate.address import UnixAddress, parse_address

EVERYBODY = {4: ip_network("0.0.0.0/0"), 6: ip_network("::/0")}
_MAX_KNOWN = 4096


class Trust:
    """The networks whose callers are trusted by their address alone."""

    def __init__(self, networks: Iterable[str] = ()) -> None:
        self._networks = tuple(ip_network(network) for network in networks)
        # Callers come again and again from the same few addresses.
        self._known = lru_cache(_MAX_KNOWN)(self._covers)

    def trusts_caller(self, host: str) -> bool:
        """Return true if a caller's address is in one of the networks."""
        return self._known(host)

    def trusts_listener(self, address: str) -> bool:
        """Return true if only trusted callers can connect to a listener.

        That is so on this machine's own addresses, or if every network is trusted. An address in a trusted network is
        not enough: any machine with a route to it can connect.
        """
        if is_this_machine(address):
            return True
        parsed = parse_address(address)
        host = None if isinstance(parsed, UnixAddress) else _ip(parsed.host)
        if host is None:
            return False
        # The IPv6 wildcard takes IPv4 too.
        versions = {4, 6} if host == ip_address("::") else {host.version}
        return all(EVERYBODY[version] in self._networks for version in versions)

    def _covers(self, host: str) -> bool:
        address = _ip(host)
        return address is not None and any(address in network for network in self._networks)


def is_this_machine(address: str) -> bool:
    """Return true for loopback and Unix sockets, which only this machine reaches."""
    parsed = parse_address(address)
    if isinstance(parsed, UnixAddress) or parsed.host == "localhost":
        return True
    host = _ip(parsed.host)
    return host is not None and host.is_loopback


@lru_cache(_MAX_KNOWN)
def network_of(host: str) -> str:
    """Name the network that one caller has: an IPv4 address, of IPv6 the /64, which everybody gets whole."""
    address = _ip(host)
    if address is None:
        return host
    return str(ip_network((address, 64), strict=False)) if address.version == 6 else str(address)


def _ip(host: str) -> IPv4Address | IPv6Address | None:
    """None for a name; an IPv4 address that came over IPv6 is what it is."""
    try:
        address = ip_address(host.partition("%")[0])
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
