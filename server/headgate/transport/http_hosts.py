"""Host names by which an HTTP listener may be asked for what is not everybody's.

Somebody who owns a name can point it at any address, also at one that only his visitors' browsers reach; to the
browser both are then one site (DNS rebinding). Such a request names his host. Addresses are nobody's name, and neither
are names that no public DNS has.
"""

import socket
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from ipaddress import ip_address
from typing import Final

from headgate.errors import Forbidden

ANY: Final = "*"
_PRIVATE: Final = (".localhost", ".local", ".internal", ".svc")
"""Ends of names that stay within a machine, a network or a cluster: `headgate.edge.svc.cluster.local`."""
_MAX_SHOWN: Final = 60


@dataclass(frozen=True, slots=True)
class HostNames:
    """Names that are accepted beside addresses, this machine's own and those that no public DNS has."""

    more: frozenset[str] = frozenset()

    @staticmethod
    def of(names: Iterable[str]) -> "HostNames":
        return HostNames(frozenset(name.lower() for name in names))

    def check(self, header: str) -> None:
        """Raises Forbidden for a `Host` header with a name that is not known here."""
        name = header.strip().lower().partition(":")[0]
        # What has a bracket, or no dot, is an address or a name of this network.
        if "." not in name or name.endswith(_PRIVATE) or _is_address(name):
            return
        if name in self.more or ANY in self.more or name == _own_name():
            return
        raise Forbidden(
            f"the host {name[:_MAX_SHOWN]!r} is not known here: ask for an address of this server, or name the host in "
            "`http_host`"
        )


NO_MORE_NAMES: Final = HostNames()


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


@cache
def _own_name() -> str:
    return socket.gethostname().lower()
