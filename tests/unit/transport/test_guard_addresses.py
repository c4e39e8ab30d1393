"""By what the guard counts callers: IPv6 by /64, in every bound of an address, and for whoever decides."""

import socket

import structlog
from headgate.endpoint.trust import Trust
from headgate.transport.guard.frames import PREFACE, SETTINGS, frame
from headgate.transport.guard.guard import Guard
from headgate.transport.guard.refusals import Refusals
from headgate.transport.interface import GuardLimits, GuardStats, Serving, TransportLimits

from tests.conformance.transport.harness import Script, eventually
from tests.support.ipv6_callers import Ipv6Listener


async def test_ipv6_is_counted_by_64s() -> None:
    """Everybody has one whole: else he has as many addresses as he likes."""
    limits = TransportLimits(guard=GuardLimits(max_connections_per_address=1))
    front, behind = socket.socketpair()
    front.setblocking(False)
    callers: dict[str, str] = {}
    stats = GuardStats()
    guard = Guard(
        [],
        lambda: (front, "unix:1"),
        Serving("127.0.0.1:0", Script(), limits, structlog.get_logger()),
        callers=callers,
        refusals=Refusals(),
        trust=Trust(["2001:db8:9::7/128"]),
        tls_context=None,
        stats=stats,
        pending=int,
    )
    guard.start()
    hosts = ("2001:db8:1:2::1", "2001:db8:1:2:ffff::2", "2001:db8:1:3::1", "2001:db8:9::7", "2001:db8:9::7")
    with behind, Ipv6Listener(*hosts) as listener:
        guard._accept(listener)  # type: ignore[arg-type]
        assert (stats.accepted, stats.refused) == (4, {"connections_per_address": 1})
        listener.callers[0].send(PREFACE + frame(SETTINGS, 0, 0, b""))
        await eventually(lambda: bool(callers))
        assert callers == {"unix:1": "2001:db8:1:2::/64"}
        await guard.stop()
