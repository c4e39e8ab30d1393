"""A peer in the wrong hands: what its proof lets it say, and nothing that it says goes any further than that."""

from dataclasses import dataclass
from typing import Any

import pytest
from headgate.errors import BadRequest, Forbidden, NotReady
from headgate.exchange import codec
from headgate.exchange.cut_off import CutRegions
from headgate.exchange.fill import MAX_FILL_BYTES, mark_of
from headgate.exchange.judging import (
    FUTURE_MS,
    MOST,
    MOST_COUNTED,
    RESET_AGAIN_S,
    RESETS_AT_ONCE,
    RESETS_PER_S,
    ResetPace,
)
from headgate.exchange.messages import Ack, Batch, Entry
from headgate.exchange.receiver import LONGEST_FILL_MS, MOST_WALKS, WALKS_MS, OriginReceiver
from headgate.origin.cut_regions import Cut, entry_of, removal_of
from headgate.origin.exchange_protocol import Priority
from headgate.origin.operations.import_counts import DAY_S, NEW_KEY_BYTES
from headgate.origin.operations.mark_filled import MarkFilled
from headgate.origin.operations.read_changes import ReadChanges
from headgate.origin.operations.read_map import ReadMap
from headgate.origin.operations.read_mark import ReadMark
from headgate.origin.operations.write_map import WriteMap
from headgate.origin.region_map import MapEntry
from headgate.v1 import exchange_pb2 as wire
from structlog.testing import capture_logs

from tests.unit.exchange.two_origins import SEQUENCE, START_MS, WINDOW_MS, Region

SHARED = Entry(b":k", WINDOW_MS, SEQUENCE, 5, 3)
PRIVATE = Entry(b":own", WINDOW_MS, SEQUENCE, 5, 3)


def batch(*entries: Entry, **other: Any) -> Batch:
    return Batch(1, START_MS, entries)._replace(**other)


async def asks_for_a_fill(region: Region, peer: bytes = b"us") -> bytes:
    """Read the outbox as its sender does; the mark that the shard is to have."""
    found = await region.origin.run(0, ReadChanges(peer, Priority.NORMAL, b"x", b"g", 9), 1.0)
    return mark_of(found.generation, found.epoch)


# Keys of other scopes


async def test_keys_that_are_not_shared_here_are_not_touched() -> None:
    eu = Region("eu", "us")
    eu.count(6, b"own", publish_at=0, reset=4)
    with capture_logs() as logs:
        for entry in (PRIVATE._replace(current=2**40), PRIVATE._replace(reset=START_MS), PRIVATE):
            assert (await eu.receiver.receive("us", batch(entry, SHARED))).refused == 0
    assert (eu.known(b"own").region_total, eu.known(b"own").foreign, eu.known().foreign) == (6, 0, 5)
    assert (eu.peers["us"].unshared_entries, eu.peers["us"].refused_entries) == (3, 0)
    assert [log["event"] for log in logs] == ["peer_entries_unshared"], "and not a line per batch"
    assert eu.origin.apply(ReadMap(0, 100)).entries == (), "nodes are told of no reset"


async def test_a_key_that_becomes_shared_is_asked_for_again() -> None:
    """Else one that is full there, and changes no more, would never be told."""
    eu, us = Region("eu", "us"), Region("us", "eu")
    us.count(9, b"own")
    there, back = eu.sender_to(us), us.sender_to(eu)

    async def exchange(times: int = 4) -> None:
        for _ in range(times):
            for sender in (there, back):
                await sender.exchange(Priority.NORMAL)
                await sender.exchange(Priority.URGENT)

    await exchange()
    assert not eu.peers["us"].filling
    assert eu.known(b"own").foreign == 0
    eu.scopes.shared.add(b"own")
    await exchange()
    assert eu.known(b"own").foreign == 0, "as before: nothing has said that the rules are others"
    eu.scopes.version = "second"
    us.count(1, b"another")
    await exchange()
    assert (eu.known(b"own").foreign, eu.peers["us"].filling) == (9, False)
    walked = eu.peers["us"].received_entries
    eu.scopes.version = "third"
    await exchange()
    assert eu.peers["us"].received_entries == walked, "nothing was left out since"


# Counts of this region


async def test_own_counts_are_taken_back_only_while_they_were_asked_for() -> None:
    eu = Region("eu", "us", "ap")
    eu.count(6)
    lies = batch(returned=(SHARED._replace(current=99),))
    await eu.receiver.receive("us", lies)
    assert eu.known().region_total == 6, "before anybody has looked at the shard, nobody was asked"
    right = await asks_for_a_fill(eu)
    await eu.origin.run(0, MarkFilled(b"us", right), 1.0)
    await eu.receiver.receive("us", lies)
    assert (eu.known().region_total, eu.peers["us"].unasked_entries) == (6, 2)
    await asks_for_a_fill(eu, b"ap")
    await eu.receiver.receive("us", lies)
    assert eu.known().region_total == 6, "another peer was asked"
    await eu.receiver.receive("ap", lies)
    assert eu.known().region_total == 99


async def test_a_peer_can_not_make_itself_be_asked() -> None:
    """By saying that it is done with a fill that nobody wanted: then the shard would have the wrong mark."""
    eu = Region("eu", "us")
    right = await asks_for_a_fill(eu)
    await eu.receiver.receive("us", batch(filled=right))
    await eu.receiver.receive("us", batch(filled=bytes(range(8))))
    await eu.receiver.receive("us", batch(returned=(SHARED,)))
    assert (await eu.origin.run(0, ReadMark(b"us"), 1.0)).mark == right
    assert eu.known().region_total == 0


async def test_own_counts_of_keys_that_are_not_shared_never_come_back() -> None:
    eu = Region("eu", "us")
    await asks_for_a_fill(eu)
    await eu.receiver.receive("us", batch(returned=(PRIVATE,)))
    assert eu.known(b"own").region_total == 0


async def test_a_peer_that_is_never_done_brings_nothing_back_for_ever() -> None:
    eu = Region("eu", "us")
    await asks_for_a_fill(eu)
    await eu.receiver.receive("us", batch(returned=(SHARED,)))
    eu.clock.advance(LONGEST_FILL_MS)
    later = SHARED._replace(sequence=eu.clock.now_ms() // WINDOW_MS, current=50)
    await eu.receiver.receive("us", batch(returned=(later,)))
    assert eu.known().region_total == 0
    eu.origin.wipe(b"another life")
    await asks_for_a_fill(eu)
    await eu.receiver.receive("us", batch(returned=(later,)))
    assert eu.known().region_total == 50, "after another loss the time begins anew"


async def test_asking_again_because_of_the_rules_takes_no_own_counts_back() -> None:
    eu = Region("eu", "us")
    await eu.origin.run(0, MarkFilled(b"us", await asks_for_a_fill(eu)), 1.0)
    await eu.receiver.receive("us", batch(PRIVATE))
    eu.scopes.version = "second"
    await eu.receiver.receive("us", batch(returned=(SHARED,)))
    assert (eu.known().region_total, eu.peers["us"].unasked_entries) == (0, 1)


# Numbers


async def test_no_sum_of_regions_becomes_unreadable() -> None:
    eu = Region("eu", "us", "ap")
    for peer in ("us", "ap"):
        await eu.receiver.receive(peer, batch(SHARED._replace(current=MOST, previous=MOST, current_refunded=MOST)))
    assert eu.known().foreign == 2 * MOST_COUNTED
    assert 500 * MOST_COUNTED < 2**53


@pytest.mark.parametrize("number", [START_MS + FUTURE_MS + 1, 2**53])
async def test_a_reset_from_far_ahead_makes_no_sense(number: int) -> None:
    """It would keep the operators of this region from resetting the key."""
    eu = Region("eu", "us")
    eu.count(6)
    assert (await eu.receiver.receive("us", batch(SHARED._replace(reset=number)))).refused == 1
    assert eu.known().region_total == 6
    assert (await eu.receiver.receive("us", batch(SHARED._replace(reset=START_MS + FUTURE_MS)))).refused == 0


# How much, how often


async def test_a_key_is_reset_by_a_peer_once_in_ten_seconds_and_nothing_else_waits_for_it() -> None:
    eu = Region("eu", "us")
    await eu.receiver.receive("us", batch(SHARED._replace(reset=START_MS - 9)))
    again = batch(SHARED._replace(reset=START_MS - 8), SHARED._replace(key=b":other"), number=2)
    with capture_logs() as logs:
        for _ in range(3):
            with pytest.raises(NotReady, match="0 counts of new keys and 1 resets are left"):
                await eu.receiver.receive("us", again)
    assert eu.known(b"other").foreign == 5
    assert eu.peers["us"].over_budget == 3
    assert [(log["event"], log["resets"]) for log in logs] == [("peer_over_budget", 1)]
    eu.clock.advance(round(RESET_AGAIN_S * 1000))
    assert await eu.receiver.receive("us", again) == Ack(2, 0)


def test_a_peer_has_so_many_resets_at_once_and_so_many_per_second() -> None:
    pace = ResetPace()
    taken = [pace.take(b"%d" % number, 1, 100.0) for number in range(2 * RESETS_AT_ONCE)]
    assert sum(taken) == RESETS_AT_ONCE
    assert sum(pace.take(b"later %d" % number, 1, 102.0) for number in range(1_000)) == 2 * RESETS_PER_S
    assert pace.take(b"0", 1, 102.0), "the same one again is none"
    assert not pace.take(b"0", 2, 102.0)


async def test_a_peer_makes_this_region_keep_no_more_new_keys_than_it_has_room_for_and_that_heals() -> None:
    size = NEW_KEY_BYTES + 2 * len(b"ea60::k00")
    eu = Region("eu", "us", "ap", new_keys_bytes=max(3 * size, DAY_S))
    room = eu.site.new_keys_bytes // size
    keys = [SHARED._replace(key=b":k%02d" % number, previous=0) for number in range(room + 2)]
    with pytest.raises(NotReady, match="2 counts of new keys"):
        await eu.receiver.receive("us", batch(*keys))
    assert eu.known(b"k00").foreign == 5
    assert await eu.receiver.receive("us", batch(*keys[:room])) == Ack(1, 0), "what is known needs no room"
    assert await eu.receiver.receive("ap", batch(*keys[room:])) == Ack(1, 0), "others have their own"
    eu.clock.advance(1_000 * DAY_S)
    assert await eu.receiver.receive("us", batch(keys[-1]._replace(sequence=SEQUENCE + 1_440))) == Ack(1, 0)


async def test_a_peer_begins_no_walk_after_walk() -> None:
    eu = Region("eu", "us")
    eu.count(6)

    async def walk(name: bytes) -> bytes:
        await eu.receiver.receive("us", batch(fill_wanted=name))
        return (await eu.origin.run(0, ReadChanges(b"us", Priority.NORMAL, b"x", b"g", 9), 1.0)).walk

    names = [b"%d" % number for number in range(MOST_WALKS + 1)]
    assert [await walk(name) for name in names] == [*names[:-1], names[-2]]
    eu.clock.advance(WALKS_MS)
    assert await walk(names[-1]) == names[-1]


@pytest.mark.parametrize("field", ["fill_wanted", "filled"])
def test_what_asks_for_a_fill_is_short(field: str) -> None:
    """A region keeps it, on each of its shards."""
    message: Any = wire.FromSender()
    setattr(message.batch, field, bytes(MAX_FILL_BYTES))
    assert isinstance(codec.decode_from_sender(message.SerializeToString()), Batch)
    setattr(message.batch, field, bytes(MAX_FILL_BYTES + 1))
    more = message.SerializeToString()
    with pytest.raises(BadRequest, match="marks of a fill of 8193 bytes"):
        codec.decode_from_sender(more)


# Cut off


@dataclass
class CutFrom:
    """A region whose operators can cut others off."""

    region: Region

    def __post_init__(self) -> None:
        self.cut = CutRegions(self.region.origin)
        self.receiver = OriginReceiver(self.region.site, self.region.peers, None, self.cut)

    def write(self, *entries: MapEntry) -> None:
        self.region.origin.apply(WriteMap(entries, b"drawn"))


async def test_a_region_that_is_cut_off_is_not_heard_until_that_is_undone() -> None:
    eu = CutFrom(Region("eu", "us", "ap"))
    assert await eu.receiver.receive("us", batch(SHARED)) == Ack(1, 0)
    many = [MapEntry(b"o:%d" % number, b"override", START_MS + 9_000, 0) for number in range(1_200)]
    eu.write(*many, entry_of(Cut("us", "alice", "stolen", START_MS)), *many[:3])
    await eu.cut.refresh()
    with pytest.raises(Forbidden, match="region 'us'"):
        await eu.receiver.receive("us", batch(SHARED))
    with pytest.raises(Forbidden):
        await eu.receiver.check("us")
    assert await eu.receiver.receive("ap", batch(SHARED)) == Ack(1, 0)
    eu.region.origin.wipe(b"another life")
    await eu.cut.refresh()
    assert eu.cut.names == {"us"}, "a shard that has lost the map has undone nothing"
    eu.write(entry_of(Cut("us", "alice", "stolen", START_MS)))
    eu.write(removal_of("us"))
    await eu.cut.refresh()
    assert await eu.receiver.receive("us", batch(SHARED)) == Ack(1, 0)


async def test_a_receiver_that_has_just_begun_knows_who_is_cut_off_before_it_hears_anybody() -> None:
    eu = CutFrom(Region("eu", "us"))
    eu.write(entry_of(Cut("us", "alice", "stolen", START_MS)))
    with pytest.raises(Forbidden):
        await eu.receiver.receive("us", batch(SHARED))
    eu.write(MapEntry(b"x:us", b"of a later version", 0, 0))
    await eu.cut.refresh()
    assert eu.cut.names == {"us"}, "what can't be read is a cut all the same"
