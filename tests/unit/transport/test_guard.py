"""What the guard decides of connections: by what they are counted, how long they may last, and who goes first."""

import math
import socket
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import structlog
from headgate.endpoint.trust import Trust
from headgate.transport.guard.frames import PREFACE, SETTINGS, frame
from headgate.transport.guard.guard import TRIMMED_FROM, Guard
from headgate.transport.guard.refusals import Refusals
from headgate.transport.guard.surroundings import GuardTimeouts
from headgate.transport.interface import GuardLimits, GuardStats, Serving, TransportLimits

from tests.conformance.transport.harness import Script, eventually
from tests.support.ipv6_callers import Ipv6Listener

Dial = Callable[[], tuple[socket.socket, str]]


def nowhere() -> tuple[socket.socket, str]:
    raise OSError


class Guarding:
    """A guard without listeners of its own."""

    def __init__(self, dial: Dial = nowhere, *trusted: str, max_message_bytes: int = 65_536, **limits: Any) -> None:
        self.callers: dict[str, str] = {}
        self.stats = GuardStats()
        all_limits = TransportLimits(max_message_bytes=max_message_bytes, guard=GuardLimits(**limits))
        self.guard = Guard(
            [],
            dial,
            Serving("127.0.0.1:0", Script(), all_limits, structlog.get_logger()),
            callers=self.callers,
            refusals=Refusals(),
            trust=Trust(trusted),
            tls_context=None,
            stats=self.stats,
            pending=int,
        )


async def test_ipv6_is_counted_by_64s() -> None:
    """Everybody has one whole: else he has as many addresses as he likes."""
    front, behind = socket.socketpair()
    front.setblocking(False)
    it = Guarding(lambda: (front, "unix:1"), "2001:db8:9::7/128", max_connections_per_address=1)
    it.guard.start()
    hosts = ("2001:db8:1:2::1", "2001:db8:1:2:ffff::2", "2001:db8:1:3::1", "2001:db8:9::7", "2001:db8:9::7")
    with behind, Ipv6Listener(*hosts) as listener:
        it.guard._accept(listener)  # type: ignore[arg-type]
        assert (it.stats.accepted, it.stats.refused) == (4, {"connections_per_address": 1})
        listener.callers[0].send(PREFACE + frame(SETTINGS, 0, 0, b""))
        await eventually(lambda: bool(it.callers))
        assert it.callers == {"unix:1": "2001:db8:1:2::/64"}
        await it.guard.stop()


async def test_connections_that_began_together_do_not_end_together() -> None:
    it = Guarding(max_connection_age_s=1_000.0, handshake_timeout_s=3.0, message_timeout_s=4.0, idle_timeout_s=5.0)
    all_of_them = [it.guard._timeouts(trusted=False) for _ in range(500)]
    assert {(each.handshake_s, each.message_s, each.idle_s) for each in all_of_them} == {(3.0, 4.0, 5.0)}
    ages = [each.age_s for each in all_of_them]
    assert 900 <= min(ages) < 930
    assert 1_070 < max(ages) <= 1_100


async def test_who_is_trusted_is_never_told_to_go_and_has_the_same_time_otherwise() -> None:
    it = Guarding(handshake_timeout_s=3.0, message_timeout_s=4.0)
    assert it.guard._timeouts(trusted=True) == GuardTimeouts(3.0, 4.0, math.inf, math.inf)


async def test_one_connection_holds_a_sixteenth_of_what_is_unfinished_or_two_messages() -> None:
    assert Guarding(max_unfinished_bytes=1_600_000).guard._budget.max_bytes_each == 2 * 65_536
    assert Guarding(max_unfinished_bytes=16_000_000).guard._budget.max_bytes_each == 1_000_000


class Stalled:
    """A connection whose caller has not read since then."""

    def __init__(self, since: float, ended: list[str]) -> None:
        self.stalled_since = since
        self._ended = ended

    def close(self, reason: str) -> None:
        self._ended.append(f"{reason} {self.stalled_since}")


async def test_when_too_much_is_not_read_whoever_has_not_read_for_longest_goes() -> None:
    guard, ended = Guarding().guard, list[str]()
    for since in (0.0, 7.0, 3.0, 9.0):
        guard._relays[Stalled(since, ended)] = "a"  # type: ignore[index]
    guard._relieve()
    assert ended == ["stalled 3.0"]


async def test_memory_is_given_back_once_half_of_many_have_gone() -> None:
    guard, half = Guarding().guard, TRIMMED_FROM // 2
    for most, held, given in (
        (TRIMMED_FROM - 1, 0, False),
        (TRIMMED_FROM, half + 1, False),
        (TRIMMED_FROM, half, True),
    ):
        noted: list[float] = []
        guard._trimmer = SimpleNamespace(note=noted.append, due_at=math.inf, run=lambda: None)  # type: ignore[assignment]
        guard._most_connections, guard._places.most_taken, guard._places.taken = 0, most, held
        guard._trim_if_due(5.0)
        assert noted == [5.0] * given
