"""Membership: who is connected, who is lost, and when a region goes by its slice."""

import pytest
from headgate.quota.membership import FOR_EVER_MS, Mark, Membership

START_MS = 1_000_000
RUN = 7


class Three:
    """Region 0 of so many, with what it hears and what is acknowledged, in seconds from its start."""

    def __init__(self, regions: int = 3) -> None:
        self.members = Membership(0, regions, RUN, START_MS)
        self.heard = 0

    def exchange(self, peer: int, at_s: int) -> None:
        """A message each way, acknowledged and heard at once."""
        now_ms = START_MS + at_s * 1_000
        mark = self.members.send(peer, now_ms)
        self.members.acknowledge(peer, mark.number, now_ms)
        self.hear(peer, at_s)

    def hear(self, peer: int, at_s: int) -> None:
        self.heard += 1
        assert self.members.hear(peer, Mark(1, self.heard), START_MS + at_s * 1_000)

    def state(self, peer: int, at_s: int, silent_s: dict[int, int], *, complete: bool = True) -> None:
        """The peer says whom it has not heard, and has heard by then what was sent at that time."""
        echo = self.members.send(peer, START_MS + at_s * 1_000)
        silent_ms = {region: age_s * 1_000 for region, age_s in silent_s.items()}
        self.members.take_statement(peer, echo, silent_ms, complete=complete)


def at(second: float) -> int:
    return START_MS + int(second * 1_000)


def test_a_peer_is_connected_for_20_s_after_sending_what_it_acknowledged() -> None:
    members = Three().members
    mark = members.send(1, at(0))
    assert not members.is_connected(1, at(0))
    members.acknowledge(1, mark.number, at(15))
    assert members.is_connected(1, at(20))
    assert not members.is_connected(1, at(20.001))


def test_hearing_a_peer_does_not_make_it_connected() -> None:
    three = Three()
    three.hear(1, 5)
    assert not three.members.is_connected(1, at(5))
    assert not three.members.takes_part(at(30))


@pytest.mark.parametrize(
    ("regions", "connected_to", "takes_part"),
    [(1, 0, True), (2, 0, True), (3, 0, False), (3, 1, True), (4, 0, False), (4, 1, True), (5, 1, False), (5, 2, True)],
)
def test_connected_to_fewer_than_half_it_keeps_to_its_floor(regions: int, connected_to: int, takes_part: bool) -> None:
    three = Three(regions)
    for second in (0, 15):
        for peer in range(1, connected_to + 1):
            three.exchange(peer, second)
    assert three.members.takes_part(at(20)) is takes_part
    assert (three.members.connected_until_ms() >= at(20)) is takes_part


def test_a_returning_region_stays_at_its_floor_for_10_s() -> None:
    three = Three()
    for second in (0, 10, 20):
        three.exchange(1, second)
    assert not three.members.takes_part(at(9.999))
    assert three.members.takes_part(at(10))
    assert three.members.takes_part(at(40))
    assert not three.members.takes_part(at(40.001))
    three.exchange(2, 60)
    assert three.members.returned_ms() == at(60)
    assert not three.members.takes_part(at(69.999))
    assert three.members.takes_part(at(70))


def test_two_regions_always_take_part_and_never_share_out() -> None:
    pair = Three(2)
    assert pair.members.takes_part(at(1_000))
    assert pair.members.connected_until_ms() == FOR_EVER_MS
    assert pair.members.silent(at(1_000)) == {1: 1_000_000}
    assert pair.members.lost(at(1_000)) == {}
    assert pair.members.taken_from(at(1_000)) == {}


def test_lost_is_who_is_silent_to_more_than_half() -> None:
    three = Three()
    three.exchange(1, 50)
    assert three.members.silent(at(52)) == {2: 52_000}
    assert three.members.lost(at(52)) == {}, "one of three says so"
    three.state(1, 50, {2: 35})
    assert three.members.lost(at(52)) == {2: 35_000}, "for so long neither has heard it"
    assert three.members.taken_from(at(52)) == {2: 35_000}
    assert three.members.statements_until_ms(at(52)) == at(55)
    assert three.members.taken_from(at(55)) == {2: 35_000}
    assert three.members.taken_from(at(55.001)) == {}, "that was said too long ago"


def test_who_is_heard_here_is_not_lost_whatever_others_say() -> None:
    three = Three()
    three.exchange(1, 50)
    three.hear(2, 25)
    three.state(1, 50, {2: 35})
    assert three.members.lost(at(52)) == {}


def test_nothing_is_taken_by_a_region_that_is_not_connected_to_more_than_half() -> None:
    three = Three()
    three.hear(1, 50)
    three.state(1, 50, {2: 35})
    assert three.members.lost(at(52)) == {2: 35_000}
    assert three.members.taken_from(at(52)) == {}


def test_nothing_is_taken_by_what_a_peer_says_that_does_not_know_or_tell_all() -> None:
    three = Three()
    three.exchange(1, 50)
    three.state(1, 50, {2: 35}, complete=False)
    assert three.members.lost(at(52)) == {2: 35_000}
    assert three.members.taken_from(at(52)) == {}


def test_a_statement_is_as_old_as_the_message_that_it_echoes() -> None:
    """However late it comes, and whatever the peer's clock says."""
    three = Three()
    echo = three.members.send(1, at(30))
    three.exchange(1, 50)
    three.members.take_statement(1, echo, {2: 31_000}, complete=True)
    assert three.members.lost(at(52)) == {}
    three.members.take_statement(1, Mark(RUN - 1, echo.number), {2: 31_000}, complete=True)
    assert three.members.lost(at(52)) == {}, "of another run nothing is known"


def test_a_message_that_was_overtaken_is_a_sign_of_life_and_says_nothing_of_now() -> None:
    """Its sender takes itself for connected, because it is acknowledged."""
    members = Three().members
    assert members.hear(1, Mark(5, 9), at(1))
    assert not members.hear(1, Mark(5, 8), at(40))
    assert members.silent(at(42)) == {2: 42_000}
    assert members.hear(1, Mark(6, 1), at(41)), "a new run counts from 1"
    assert members.echo(1) == Mark(6, 1)


def test_of_two_runs_the_later_one_speaks_for_a_region_until_it_is_quiet() -> None:
    members = Three().members
    assert members.hear(1, Mark(6, 1), at(1))
    assert not members.hear(1, Mark(5, 100), at(6))
    assert members.hear(1, Mark(5, 101), at(6.001))
    assert not members.hear(1, Mark(5, 101), at(20))


def test_a_late_acknowledgement_says_when_it_was_sent() -> None:
    members = Three().members
    first, second = members.send(1, at(0)), members.send(1, at(10))
    members.acknowledge(1, second.number, at(12))
    members.acknowledge(1, first.number, at(25))
    assert members.is_connected(1, at(30))
    assert not members.is_connected(1, at(31))
    members.acknowledge(1, 999, at(31))
    assert not members.is_connected(1, at(31)), "nobody knows when that was sent"


def test_a_clock_that_goes_back_begins_anew() -> None:
    three = Three()
    for second in (0, 10, 20):
        three.exchange(1, second)
    three.members.pass_time(at(25))
    assert three.members.takes_part(at(25))
    three.members.pass_time(at(13))
    assert not three.members.takes_part(at(13)), "how old the last acknowledgement is can't be known"
    assert three.members.silent(at(42)) == {}


def test_a_ledger_that_follows_goes_on_where_the_other_was() -> None:
    three = Three()
    for second in (0, 10, 20):
        three.exchange(1, second)
    after = Membership(0, 3, RUN + 1, at(22))
    after.remember(three.members.memory(), at(22))
    assert after.takes_part(at(40))
    assert not after.takes_part(at(41))
    assert after.silent(at(51)) == {}, "it has listened for 29 s only"
    assert not after.hear(1, Mark(1, 1), at(23)), "that was heard before"
    wrong = Membership(0, 3, RUN + 1, at(-100))
    wrong.remember(three.members.memory(), at(-100))
    assert not wrong.takes_part(at(-90)), "it was written by a clock that was ahead"
