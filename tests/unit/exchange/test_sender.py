"""What a region tells its peer, and what it must not believe that the peer knows."""

import pytest
from headgate.exchange import sender as sender_module
from headgate.exchange.messages import Batch, LinkError
from headgate.exchange.sender import SWEEPER, sweep
from headgate.origin.exchange_protocol import Priority
from headgate.origin.operations.read_changes import ReadChanges
from headgate.origin.outbox import Outbox

from tests.unit.exchange.two_origins import WINDOW_MS, Handover, Region


async def test_what_is_counted_here_is_known_there_and_sent_once() -> None:
    eu, us = Region("eu", "us"), Region("us", "eu")
    link = Handover(eu, us)
    sender = eu.sender_to(us, link)
    eu.count(7)
    await sender.exchange(Priority.NORMAL)
    assert (us.known().foreign, us.known().region_total) == (7, 0)
    await sender.exchange(Priority.NORMAL)
    assert [len(batch.entries) for batch in link.batches] == [1, 0], "and a sign of life"


async def test_what_was_not_acknowledged_is_sent_again_and_counts_once() -> None:
    eu, us = Region("eu", "us"), Region("us", "eu")
    link = Handover(eu, us)
    link.lose_acks = True
    eu.count(7)
    for _ in range(3):
        with pytest.raises(LinkError):
            await eu.sender_to(us, link).exchange(Priority.NORMAL)
    assert (len(link.batches), us.known().foreign) == (3, 7)


async def test_a_failover_between_reading_and_acknowledging_hides_nothing() -> None:
    """The new server's changes have the numbers of those that the old one had and it never saw."""
    eu, us = Region("eu", "us"), Region("us", "eu")
    link = Handover(eu, us)
    sender = eu.sender_to(us, link)
    eu.count(1, b"before")
    await sender.exchange(Priority.NORMAL)
    replica = eu.origin.memory.part(Outbox).indexes[Priority.NORMAL].latest
    for number in range(5):
        eu.count(1 + number, b"lost")

    def fail_over(batch: Batch) -> None:
        link.on_send = lambda batch: None
        index = eu.origin.memory.part(Outbox).indexes[Priority.NORMAL]
        index.changed.pop(next(name for name in index.changed if name.endswith(b"lost")))
        index.latest = replica
        eu.origin.memory.epoch = b"another life"
        eu.count(9, b"after")

    link.on_send = fail_over
    await sender.exchange(Priority.NORMAL)
    await sender.exchange(Priority.NORMAL)
    assert us.known(b"after").foreign == 9


async def test_a_region_that_lost_everything_gets_its_own_counts_back() -> None:
    eu, us = Region("eu", "us"), Region("us", "eu")
    there, back = eu.sender_to(us), us.sender_to(eu)
    eu.count(7)
    for _ in range(3):  # both are filled: neither knew the other when they began
        await there.exchange(Priority.NORMAL)
        await there.exchange(Priority.URGENT)
        await back.exchange(Priority.NORMAL)
        await back.exchange(Priority.URGENT)
    assert not eu.peers["us"].filling
    eu.origin.wipe(b"another life")
    assert eu.known().region_total == 0
    await there.exchange(Priority.NORMAL)
    assert eu.peers["us"].filling
    for _ in range(3):
        await back.exchange(Priority.NORMAL)
        await back.exchange(Priority.URGENT)
        await there.exchange(Priority.NORMAL)
        await there.exchange(Priority.URGENT)
    assert (eu.known().region_total, eu.known().foreign) == (7, 0)
    assert not eu.peers["us"].filling
    assert us.known().foreign == 7


async def test_everything_goes_in_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "PAGE", 3)
    eu, us = Region("eu", "us"), Region("us", "eu")
    link = Handover(eu, us)
    for number in range(10):
        eu.count(1 + number, b"k%d" % number)
    await eu.sender_to(us, link).exchange(Priority.NORMAL)
    assert [len(batch.entries) for batch in link.batches] == [3, 3, 3, 1]
    assert [us.known(b"k%d" % number).foreign for number in range(10)] == list(range(1, 11))


async def test_a_batch_stays_within_its_bytes_however_long_keys_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """A peer refuses more for good, and nothing after it would ever be told."""
    monkeypatch.setattr(sender_module, "MAX_BYTES", 10_000)
    eu, us = Region("eu", "us"), Region("us", "eu")
    link = Handover(eu, us)
    for number in range(20):
        eu.count(1, b"%02d" % number * 600)
    await eu.sender_to(us, link).exchange(Priority.NORMAL)
    assert sum(len(batch.entries) for batch in link.batches) == 20
    assert max(sum(len(entry.key) for entry in batch.entries) for batch in link.batches) <= 5_000
    assert us.known(b"19" * 600).foreign == 1


async def test_cells_that_no_longer_matter_are_not_sent() -> None:
    eu, us = Region("eu", "us"), Region("us", "eu")
    link = Handover(eu, us)
    eu.count(7)
    eu.clock.step(WINDOW_MS)
    eu.count(2)
    eu.clock.step(WINDOW_MS)
    await eu.sender_to(us, link).exchange(Priority.NORMAL)
    (entry,) = link.batches[0].entries
    assert (entry.current, entry.previous) == (2, 0), "what is two windows old counts nowhere"


async def test_one_exchanger_sends_and_another_one_waits_for_its_lease() -> None:
    eu, us = Region("eu", "us"), Region("us", "eu")
    eu.count(7)
    await eu.origin.run(0, ReadChanges(b"us", Priority.NORMAL, b"another", b"g", 1), 1.0)
    link = Handover(eu, us)
    sender = eu.sender_to(us, link)
    await sender.exchange(Priority.NORMAL)
    assert (link.batches, eu.peers["us"].serving) == ([], False)
    eu.clock.step(5_000)
    await sender.exchange(Priority.NORMAL)
    assert (us.known().foreign, eu.peers["us"].serving) == (7, True)


async def test_a_beat_comes_back_as_the_age_of_what_the_peer_knows() -> None:
    eu, us = Region("eu", "us"), Region("us", "eu")
    there, back = eu.sender_to(us), us.sender_to(eu)
    await there.exchange(Priority.NORMAL)
    eu.clock.step(1_234)
    await back.exchange(Priority.NORMAL)
    assert eu.peers["us"].lag_ms == 1_234


async def test_names_of_keys_that_are_gone_are_swept_though_the_peer_is_away() -> None:
    eu = Region("eu", "us")
    for number in range(5):
        eu.count(1, b"k%d" % number)
    eu.clock.step(3 * WINDOW_MS)
    eu.count(1, b"live")
    for _ in range(6):
        await sweep(eu.site, 0, Priority.NORMAL, 2)
    assert list(eu.origin.memory.part(Outbox).indexes[Priority.NORMAL].changed) == [b"ea60::live"]
    assert SWEEPER not in {peer.encode() for peer in eu.peers}


async def test_a_reset_here_empties_the_key_there_and_nothing_from_before_comes_back() -> None:
    eu, us = Region("eu", "us"), Region("us", "eu")
    there, back = eu.sender_to(us), us.sender_to(eu)

    async def exchange() -> None:
        for sender in (there, back, there, back):
            await sender.exchange(Priority.NORMAL)

    eu.count(7, reset=0)
    us.count(5, reset=0)
    await exchange()
    assert (eu.known()[1:3], us.known()[1:3]) == ((7, 5), (5, 7))
    eu.count(0, reset=9)
    us.count(6, reset=0)  # counted there before anybody heard
    await exchange()
    assert (eu.known()[1:3], us.known()[1:3]) == ((0, 0), (0, 0))
    us.count(6, reset=0)  # a node of the other region that has not heard of it either
    await exchange()
    assert (eu.known()[1:3], us.known()[1:3]) == ((0, 0), (0, 0))
    us.count(2, reset=9)
    await exchange()
    assert (eu.known()[1:3], us.known()[1:3]) == ((0, 2), (2, 0))


async def test_a_region_that_lost_everything_hears_of_resets_with_its_counts() -> None:
    eu, us = Region("eu", "us"), Region("us", "eu")
    there, back = eu.sender_to(us), us.sender_to(eu)
    eu.count(7, reset=0)
    eu.count(3, reset=9)
    for _ in range(3):
        for sender in (there, back):
            await sender.exchange(Priority.NORMAL)
            await sender.exchange(Priority.URGENT)
    eu.origin.wipe(b"another life")
    eu.count(7, reset=0)  # by a node that was cut off
    for _ in range(4):
        for sender in (there, back):
            await sender.exchange(Priority.NORMAL)
            await sender.exchange(Priority.URGENT)
    assert eu.known()[1:3] == (3, 0)
    assert us.known()[1:3] == (0, 3)


async def test_what_is_given_back_here_makes_room_there_and_comes_back_from_nodes_alone() -> None:
    eu, us = Region("eu", "us"), Region("us", "eu")
    there, back = eu.sender_to(us), us.sender_to(eu)

    async def exchange() -> None:
        for sender in (there, back, there, back):
            await sender.exchange(Priority.NORMAL)
            await sender.exchange(Priority.URGENT)

    eu.count(70)
    us.count(20)
    await exchange()
    assert (eu.used(), us.used()) == (90, 90)
    eu.count(70, back=30)
    await exchange()
    assert (eu.used(), us.used()) == (60, 60)
    us.count(20, back=500)
    await exchange()
    assert (eu.used(), us.used()) == (40, 40), "no more than that region itself had charged"
    eu.origin.wipe(b"another life")
    await exchange()
    assert eu.used() == 70, "its total comes back from the peer, what was given back of it does not"
    assert us.used() == 40
    eu.count(70, back=30, told=30)  # its node lives, and brings that back
    await exchange()
    assert (eu.used(), us.used()) == (40, 40)
