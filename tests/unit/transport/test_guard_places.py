"""Addresses and places: what callers are counted by, how fast they may come, and who has room for calls. No clock."""

import pytest
from headgate.endpoint.trust import network_of
from headgate.transport.guard.addresses import Addresses, counted_as_peer
from headgate.transport.guard.open_calls import (
    ASKED,
    BEGUN,
    FRONT_CALLS,
    PLACES_AT_ONCE,
    SILENT,
    TOLD,
    OpenCalls,
    Places,
)


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::7", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::1", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::1", "2001:db8:1:3::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("", ""),
    ],
)
def test_what_a_caller_is_counted_by(host: str, counted: str) -> None:
    assert network_of(host) == counted


@pytest.mark.parametrize(
    ("peer", "counted"),
    [
        ("ipv4:192.0.2.7:4711", "192.0.2.7"),
        ("ipv6:[2001:db8:1:2:3::7]:4711", "2001:db8:1:2::/64"),
        ("ipv6:%5B::1%5D:47416", "::/64"),
        ("unix:7", "unix:7"),
        ("unix:", "unix:"),
    ],
)
def test_what_a_peer_is_counted_by(peer: str, counted: str) -> None:
    assert counted_as_peer(peer) == counted


def test_an_address_may_make_all_its_connections_at_once_and_then_few() -> None:
    addresses, now = Addresses(3, per_s=2.0), 100.0
    for _ in range(3):
        assert addresses.why_not("a", now) is None
        addresses.add("a", now)
    assert addresses.why_not("a", now) == "connections_per_address"
    for _ in range(3):
        addresses.remove("a")
    assert addresses.why_not("a", now + 0.4) == "connection_rate"
    assert addresses.why_not("b", now + 0.4) is None
    assert addresses.why_not("a", now + 0.5) is None
    addresses.add("a", now + 0.5)
    assert addresses.why_not("a", now + 0.5) == "connection_rate"
    # After a pause all of them again.
    for _ in range(2):
        assert addresses.why_not("a", now + 10) is None
        addresses.add("a", now + 10)


def test_addresses_are_forgotten_when_nothing_is_held_against_them() -> None:
    addresses = Addresses(3, per_s=2.0)
    addresses.add("a", 100.0)
    addresses.remove("a")
    addresses.tick(100.4)
    assert addresses._due_at == {"a": 100.5}
    addresses.tick(100.5)
    assert not addresses._due_at
    assert not addresses._live


def opened(calls: OpenCalls, count: int) -> int:
    """How many calls of so many had a place."""
    had = 0
    for _ in range(count):
        if calls.has_place():
            calls.states[len(calls.states)] = ASKED
            had += 1
    return had


def test_places_are_shared_by_all_and_who_has_few_gets_one() -> None:
    places = Places(100)
    greedy, second, third = (OpenCalls(places) for _ in range(3))
    assert opened(greedy, 1_000) == 100
    assert places.refused == 900
    # A third each, though there are none.
    assert opened(second, 1_000) == 33
    assert opened(third, 10) == 10
    assert opened(greedy, 1) == 0
    assert places.taken == 143
    for calls in (greedy, second, third):
        calls.close()
    assert places.taken == 0


def test_an_address_has_its_share_of_places_however_many_connections_others_have() -> None:
    places = Places(100)
    greedy = [OpenCalls(places, "greedy") for _ in range(50)]
    assert sum(opened(calls, 100) for calls in greedy) == 100 + 49 * 2, "all, and a fiftieth each"
    honest = [OpenCalls(places, "honest") for _ in range(2)]
    assert [opened(calls, 40) for calls in honest] == [40, 10]
    for calls in (*greedy, *honest):
        calls.close()
    assert (places.taken, places._connections, places._taken) == (0, {}, {})


def test_places_that_are_not_needed_are_given_back() -> None:
    places = Places(100)
    calls = OpenCalls(places)
    assert opened(calls, 1) == 1
    assert places.taken == PLACES_AT_ONCE
    calls.late(100.0, 10.0)
    assert places.taken == 1
    calls.states.clear()
    calls.late(100.5, 10.0)
    assert places.taken == 0


def test_there_is_room_in_the_front_for_so_many_and_for_who_has_less_than_its_share() -> None:
    pending = 0
    places = Places(1_000, lambda: pending)
    flood, other = [OpenCalls(places, "flood") for _ in range(2)], OpenCalls(places, "other")
    assert flood[0].room == other.room == FRONT_CALLS
    for calls, count in zip(flood, (FRONT_CALLS - 28, 28), strict=True):
        calls.states.update(dict.fromkeys(range(count), ASKED))
        calls.states.update(dict.fromkeys(range(1_000, 1_500), TOLD))
        calls.count(0)
    assert flood[0].room <= 0
    assert flood[1].room <= 0, "of its address it has no less"
    assert other.room == FRONT_CALLS // 2
    pending = 5
    assert flood[0].room == 5, "those have left the front"
    flood[1].close()
    pending = 0
    assert flood[0].room == 28
    flood[0].count(20)
    assert flood[0].room == 8, "the front answers those without a place as well"
    flood[0].close()
    other.close()
    assert (places.asked, places._asked) == (0, {})


def test_calls_that_do_not_get_on_are_late_and_others_are_not() -> None:
    calls = OpenCalls(Places(100))
    calls.places = 8
    calls.states.update({1: SILENT, 3: ASKED, 5: BEGUN, 7: TOLD, 9: SILENT})
    assert calls.late(100.0, 10.0) == []
    calls.states[9] = BEGUN
    assert calls.late(105.0, 10.0) == []
    assert calls.late(110.5, 10.0) == [1, 5]
    assert calls.late(115.5, 10.0) == [1, 5, 9]
