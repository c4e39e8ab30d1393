"""The ledger, driven by hand: what is saved, sent, refused, forgotten, and what happens after a loss."""

import itertools
from typing import Any

import pytest
from headgate.quota import key_table
from headgate.quota.key_plan import Enforced
from headgate.quota.key_state import UnreadableKey, unpack
from headgate.quota.ledger import QuotaLedger
from headgate.quota.message import QuotaEntry, QuotaMessage, set_tag
from headgate.quota.pending import ENTRIES_PER_MESSAGE

KEY = b"key"
START_MS = 500_000 * 3_600_000 + 1_800_000
"""In the middle of epoch 500,000."""
EPOCH = 500_000
LIMIT, WINDOW_MS = 1_000, 10_000
EVEN, FLOOR = Enforced(500_000, 500_000), Enforced(100_000, 100_000)


def start(
    region: str, *, regions: tuple[str, ...] = ("a", "b"), at_ms: int = START_MS, mark: bytes = b""
) -> QuotaLedger:
    return QuotaLedger(region, regions, run=at_ms, now_ms=at_ms, mark=mark)


def save(ledger: QuotaLedger) -> dict[bytes, bytes]:
    saved = {}
    for item in ledger.table.unsaved():
        saved[item.key] = item.packed
        ledger.table.saved(item)
    return saved


def tell(sender: QuotaLedger, name: str, receiver: QuotaLedger, to: str, now_ms: int) -> QuotaMessage:
    """A message that arrives, is saved and acknowledged at once."""
    message = sender.outgoing(to, now_ms)
    receiver.incoming(name, message, now_ms)
    save(receiver)
    sender.acknowledged(to, message.mark.number, now_ms)
    return message


def observe(ledger: QuotaLedger, now_ms: int, *, used: int, offered: int, key: bytes = KEY) -> None:
    share = ledger.enforced(key, WINDOW_MS, now_ms).share
    ledger.observe(key, limit=LIMIT, window_ms=WINDOW_MS, enforced=share, used=used, offered=offered, now_ms=now_ms)


def pair() -> tuple[QuotaLedger, QuotaLedger]:
    """Two regions that know all of each other."""
    a, b = start("a"), start("b")
    for second in range(6):
        now_ms = START_MS + second * 1_000
        for ledger in (a, b):
            ledger.tick(now_ms)
        tell(a, "a", b, "b", now_ms)
        tell(b, "b", a, "a", now_ms)
    assert a.filled
    assert b.filled
    return a, b


def moved() -> tuple[QuotaLedger, QuotaLedger, int]:
    """Region a has given all that it can to b."""
    a, b = pair()
    now_ms = START_MS + 10_000
    for _ in range(4):
        now_ms += 1_000
        observe(a, now_ms, used=10, offered=10)
        observe(b, now_ms, used=400, offered=3_000)
        for ledger in (a, b):
            ledger.tick(now_ms)
            save(ledger)
        tell(a, "a", b, "b", now_ms)
        tell(b, "b", a, "a", now_ms)
    assert a.enforced(KEY, WINDOW_MS, now_ms) == FLOOR
    assert b.enforced(KEY, WINDOW_MS, now_ms) == Enforced(900_000, 900_000)
    return a, b, now_ms


def message(**fields: Any) -> QuotaMessage:
    """Of b to a, that says nothing else."""
    return start("b").outgoing("a", START_MS)._replace(**fields)


def test_a_region_without_its_mark_is_at_its_floor_until_the_others_have_answered() -> None:
    a, b = start("a"), start("b")
    assert a.mark == b""
    assert a.enforced(KEY, WINDOW_MS, START_MS) == FLOOR
    tell(a, "a", b, "b", START_MS)
    a.tick(START_MS)
    assert not a.filled
    tell(b, "b", a, "a", START_MS + 1_000)
    a.tick(START_MS + 1_000)
    assert a.filled
    assert a.enforced(KEY, WINDOW_MS, START_MS + 1_000) == FLOOR, "b may use what all have forgotten"
    tell(a, "a", b, "b", START_MS + 2_000)
    b.tick(START_MS + 2_000)
    tell(b, "b", a, "a", START_MS + 2_000)
    assert a.enforced(KEY, WINDOW_MS, START_MS + 2_000) == EVEN, "it does not"


def test_a_part_of_an_answer_is_none() -> None:
    a, b = start("a"), start("b")
    tell(a, "a", b, "b", START_MS)
    answer = b.outgoing("a", START_MS)
    a.incoming("b", answer._replace(whole=False), START_MS)
    a.tick(START_MS)
    assert not a.filled
    a.incoming("b", b.outgoing("a", START_MS), START_MS)
    a.tick(START_MS)
    assert a.filled


def test_with_its_mark_a_region_goes_on_where_it_was() -> None:
    a, _, now_ms = moved()
    again = start("a", at_ms=now_ms, mark=a.mark)
    assert again.filled
    again.table.load(KEY, a.table.dump(KEY), now_ms)
    assert again.table.dump(KEY) == a.table.dump(KEY)
    assert again.enforced(KEY, WINDOW_MS, now_ms) == FLOOR
    assert again.enforced(b"other", WINDOW_MS, now_ms) == EVEN


@pytest.mark.parametrize("mark", [b"\xc1", b"\x01", b"\x93\xa1t"])
def test_a_mark_that_can_not_be_read_is_none(mark: bytes) -> None:
    assert not start("a", mark=mark).filled


def test_a_region_that_lost_its_store_is_told_what_it_gave() -> None:
    a, b, now_ms = moved()
    again = start("a", at_ms=now_ms + 1_000)
    assert again.enforced(KEY, WINDOW_MS, now_ms + 1_000) == FLOOR
    tell(again, "a", b, "b", now_ms + 1_000)
    tell(b, "b", again, "a", now_ms + 2_000)
    again.tick(now_ms + 2_000)
    assert again.filled
    assert again.table.dump(KEY) == a.table.dump(KEY)
    assert again.enforced(KEY, WINDOW_MS, now_ms + 2_000) == FLOOR


def test_a_store_that_is_lost_under_a_ledger_that_lives_is_written_again() -> None:
    a, b, now_ms = moved()
    assert a.table.unsaved() == []
    packed = a.table.dump(KEY)
    a.wiped(now_ms)
    assert (a.filled, a.mark) == (False, b"")
    assert save(a) == {KEY: packed}
    tell(a, "a", b, "b", now_ms)
    tell(b, "b", a, "a", now_ms)
    a.tick(now_ms)
    assert a.filled


def test_what_was_sent_before_a_loss_is_not_taken_in_after_it() -> None:
    """The giver asks, and is told that it gave nothing. The message that says otherwise comes after that."""
    a, b = pair()
    now_ms = START_MS + 10_000
    for second in range(3):
        now_ms += 1_000
        observe(a, now_ms, used=10, offered=10)
        if not second:
            observe(b, now_ms, used=400, offered=3_000)
            b.tick(now_ms)
            tell(b, "b", a, "a", now_ms)
        a.tick(now_ms)
        save(a)
    late = a.outgoing("b", now_ms)
    assert late.entries[0].rows
    again = start("a", at_ms=now_ms + 1_000)
    tell(again, "a", b, "b", now_ms + 1_000)
    tell(b, "b", again, "a", now_ms + 1_000)
    again.tick(now_ms + 1_000)
    assert again.filled
    b.incoming("a", late, now_ms + 2_000)
    assert b.counts.from_lost_store == 1
    assert b.table.dump(KEY) == b""


def test_an_answer_counts_when_its_sender_knows_of_every_loss() -> None:
    """b and c have lost their stores too: what they said before may still be on its way to whom it concerns."""
    names = ("a", "b", "c")
    a, b, c = (start(name, regions=names) for name in names)
    for second in range(13):
        now_ms = START_MS + second * 1_000
        tell(a, "a", b, "b", now_ms)
        tell(a, "a", c, "c", now_ms)
        if second > 11:  # until then b and c have heard nothing of each other
            tell(b, "b", c, "c", now_ms)
            tell(c, "c", b, "b", now_ms)
        tell(b, "b", a, "a", now_ms)
        tell(c, "c", a, "a", now_ms)
        a.tick(now_ms)
        assert a.filled is (second > 11)


def test_nothing_is_sent_before_it_is_saved() -> None:
    a, b = pair()
    now_ms = START_MS + 10_000
    observe(b, now_ms, used=400, offered=3_000)
    b.tick(now_ms)
    tell(b, "b", a, "a", now_ms)
    for _ in range(2):
        now_ms += 1_000
        observe(a, now_ms, used=10, offered=10)
        a.tick(now_ms)
    assert [item.key for item in a.table.unsaved()] == [KEY]
    held = a.outgoing("b", now_ms)
    assert (held.entries, held.whole) == ((), False)
    save(a)
    sent = a.outgoing("b", now_ms)
    assert (sent.entries[0].rows, sent.whole) == (((EPOCH, 0, 1, 400_000),), True)


def test_a_share_is_given_only_when_the_nodes_enforce_less_and_by_a_new_observation() -> None:
    a, b = pair()
    now_ms = START_MS + 10_000
    observe(a, now_ms, used=10, offered=400)
    observe(b, now_ms, used=400, offered=3_000)
    b.tick(now_ms)
    tell(b, "b", a, "a", now_ms)
    a.tick(now_ms)
    assert a.table.dump(KEY) == b"", "its nodes may be using half of the limit"
    lower = a.enforced(KEY, WINDOW_MS, now_ms).share
    assert lower < 500_000
    a.tick(now_ms + 1_000)
    assert a.table.dump(KEY) == b"", "what they use was read before they knew"
    observe(a, now_ms + 1_000, used=450, offered=400)
    a.tick(now_ms + 1_000)
    assert unpacked(a) == {(EPOCH, 0, 1): 50_000}, "what is in use stays"
    observe(a, now_ms + 2_000, used=10, offered=400)
    a.tick(now_ms + 8_000)
    assert unpacked(a) == {(EPOCH, 0, 1): 50_000}, "that was read too long ago"


def two_that_give() -> tuple[QuotaLedger, QuotaLedger, int]:
    """Two ledgers of region a, each about to give the same share to b."""
    a, b = pair()
    now_ms = START_MS + 10_000
    observe(b, now_ms, used=400, offered=3_000)
    b.tick(now_ms)
    tell(b, "b", a, "a", now_ms)
    other = start("a", at_ms=now_ms, mark=a.mark)
    tell(other, "a", b, "b", now_ms)
    b.acknowledged("a", 0, now_ms)
    tell(b, "b", other, "a", now_ms)
    tell(other, "a", b, "b", now_ms)
    for _ in range(3):
        now_ms += 1_000
        for ledger in (a, other):
            observe(ledger, now_ms, used=10, offered=10)
            ledger.tick(now_ms)
    assert unpacked(a) == unpacked(other) == {(EPOCH, 0, 1): 400_000}
    return a, other, now_ms


def test_of_two_ledgers_of_a_region_one_gives() -> None:
    """The other one's write is refused: the store does not have what it thought."""
    a, other, now_ms = two_that_give()
    stored = save(a)[KEY]
    (refused,) = other.table.unsaved()
    assert refused.before == b"" != stored
    other.table.overtaken(KEY, stored, now_ms)
    assert other.counts.overtaken == 1
    assert (other.table.dump(KEY), other.table.stored(KEY)) == (stored, stored)
    save(other)
    observe(other, now_ms + 1_000, used=10, offered=10)
    other.tick(now_ms + 1_000)
    assert other.table.dump(KEY) == stored, "nothing is left to give"


def test_a_gift_that_is_refused_because_nodes_enforce_more_is_taken_back() -> None:
    a, other, now_ms = two_that_give()
    (item,) = a.table.unsaved()
    assert (item.before, item.told) == (b"", 100_000)
    assert other.enforced(KEY, WINDOW_MS, now_ms).share == 100_000
    a.table.overtaken(KEY, b"", now_ms)
    assert a.table.dump(KEY) == b""
    assert a.enforced(KEY, WINDOW_MS, now_ms) == EVEN
    a.tick(now_ms)
    assert a.table.dump(KEY) == b"", "not before it has been observed again"


def test_what_others_gave_stays_when_a_write_is_refused() -> None:
    a, _, now_ms = two_that_give()
    rows = ((EPOCH, 1, 0, 7),)
    news = message(stores=(0, START_MS + 99_000), entries=(QuotaEntry(KEY, WINDOW_MS, 0, 0, rows),))
    a.incoming("b", news, now_ms)
    a.table.overtaken(KEY, b"", now_ms)
    assert unpacked(a) == {(EPOCH, 1, 0): 7}


def unpacked(ledger: QuotaLedger) -> dict[tuple[int, int, int], int]:
    rows = unpack(ledger.table.dump(KEY), ledger.tag, len(ledger.names))
    assert rows is not None
    return {(epoch, giver, receiver): total for epoch, giver, receiver, total in rows.flat()}


def test_a_key_is_sent_until_it_is_acknowledged_and_then_no_more() -> None:
    a, b = pair()
    observe(a, START_MS + 5_000, used=400, offered=900)
    a.tick(START_MS + 5_000)
    lost = a.outgoing("b", START_MS + 5_000)
    assert [entry.key for entry in lost.entries] == [KEY]
    again = tell(a, "a", b, "b", START_MS + 6_000)
    assert again.entries == lost.entries
    assert tell(a, "a", b, "b", START_MS + 7_000).entries == ()
    assert b.watched() == [KEY], "it is to be observed where it is not used as well"


def test_many_keys_go_in_pages() -> None:
    a, b = pair()
    keys = [b"%d" % number for number in range(ENTRIES_PER_MESSAGE + 1)]
    for key in keys:
        observe(a, START_MS + 5_000, used=400, offered=900, key=key)
    a.tick(START_MS + 5_000)
    first = tell(a, "a", b, "b", START_MS + 5_000)
    second = tell(a, "a", b, "b", START_MS + 6_000)
    assert (len(first.entries), first.whole) == (ENTRIES_PER_MESSAGE, False)
    assert (len(second.entries), second.whole) == (1, True)
    assert sorted(b.watched()) == sorted(keys)


@pytest.mark.parametrize(
    "entry",
    [
        QuotaEntry(KEY, WINDOW_MS, -1, 0, ()),
        QuotaEntry(KEY, WINDOW_MS, 0, 1 << 60, ()),
        QuotaEntry(KEY, 0, 0, 0, ()),
        QuotaEntry(KEY, WINDOW_MS, 0, 0, ((EPOCH, 0, 2, 5),)),
        QuotaEntry(KEY, WINDOW_MS, 0, 0, ((EPOCH, 1, 1, 5),)),
        QuotaEntry(KEY, WINDOW_MS, 0, 0, ((EPOCH, 1, 0, 0),)),
        QuotaEntry(KEY, WINDOW_MS, 0, 0, ((EPOCH, 1, 0, (1 << 50) + 1),)),
    ],
    ids=["need", "over", "window", "no such region", "to itself", "nothing", "too much"],
)
def test_what_makes_no_sense_is_refused_and_counted(entry: QuotaEntry) -> None:
    a = start("a")
    a.incoming("b", message(entries=(entry,)), START_MS)
    assert a.counts.entries_refused == 1
    assert a.table.unsaved() == []


def test_a_key_with_another_window_is_refused() -> None:
    """A window is part of a key: whoever says otherwise is wrong, and its epochs are others."""
    a = start("a")
    known, other = (QuotaEntry(KEY, window_ms, 9, 0, ((EPOCH, 1, 0, 7),)) for window_ms in (WINDOW_MS, WINDOW_MS + 1))
    a.incoming("b", message(entries=(known, other._replace(rows=((EPOCH, 1, 0, 8),)))), START_MS)
    assert a.counts.entries_refused == 1
    assert unpacked(a) == {(EPOCH, 1, 0): 7}


def test_rows_of_an_epoch_that_is_long_over_or_far_ahead_are_left_out() -> None:
    a = start("a")
    rows = ((EPOCH - 1, 1, 0, 5), (EPOCH + 1, 1, 0, 5), (EPOCH, 1, 0, 7))
    a.incoming("b", message(entries=(QuotaEntry(KEY, WINDOW_MS, 0, 0, rows),)), START_MS)
    assert unpacked(a) == {(EPOCH, 1, 0): 7}


def three() -> tuple[dict[str, QuotaLedger], int]:
    """Three regions that know all of each other, each with an even slice."""
    ledgers = {name: start(name, regions=("a", "b", "c")) for name in ("a", "b", "c")}
    now_ms = START_MS
    for _ in range(60):
        now_ms += 1_000
        settle(ledgers, now_ms)
    assert {ledger.enforced(KEY, WINDOW_MS, now_ms).share for ledger in ledgers.values()} == {333_333}
    return ledgers, now_ms


def settle(ledgers: dict[str, QuotaLedger], now_ms: int) -> None:
    for ledger in ledgers.values():
        ledger.tick(now_ms)
        save(ledger)
    for sender, receiver in itertools.permutations(ledgers, 2):
        tell(ledgers[sender], sender, ledgers[receiver], receiver, now_ms)


def lie(ledgers: dict[str, QuotaLedger], to: str, now_ms: int, *rows: tuple[int, int, int, int]) -> None:
    """Region c says what it likes."""
    said = ledgers["c"].outgoing(to, now_ms)._replace(entries=(QuotaEntry(KEY, WINDOW_MS, 0, 0, rows),))
    ledgers[to].incoming("c", said, now_ms)
    save(ledgers[to])


A, B, C = 0, 1, 2
HUGE = 1 << 49


@pytest.mark.parametrize(
    ("told_to_a", "told_to_b"),
    [
        ([(EPOCH, B, A, HUGE)], []),
        ([(EPOCH, C, A, HUGE)], []),
        ([(EPOCH, C, A, HUGE)], [(EPOCH, C, B, HUGE)]),
        ([(EPOCH, B, A, HUGE)], [(EPOCH, A, B, HUGE + 1)]),
        ([(EPOCH, A, C, HUGE), (EPOCH, B, C, HUGE)], []),
    ],
    ids=["of another", "of what it has not", "twice", "in a circle", "to itself"],
)
def test_a_region_that_tells_of_gifts_that_nobody_made_lifts_no_limit(
    told_to_a: list[tuple[int, int, int, int]], told_to_b: list[tuple[int, int, int, int]]
) -> None:
    """One that was told it had been given a thousand limits admitted them."""
    ledgers, now_ms = three()
    now_ms += 1_000
    lie(ledgers, "a", now_ms, *told_to_a)
    lie(ledgers, "b", now_ms, *told_to_b)
    shares = [ledgers[name].enforced(KEY, WINDOW_MS, now_ms).share for name in ("a", "b")]
    assert max(shares) <= 800_000, "the others have their floors"
    settle(ledgers, now_ms)
    shares = [ledger.enforced(KEY, WINDOW_MS, now_ms).share for ledger in ledgers.values()]
    assert sum(shares) <= 1_000_000
    assert min(shares) >= 100_000


def test_what_a_region_said_it_had_been_given_is_not_shared_out_when_it_is_lost() -> None:
    ledgers, now_ms = three()
    lie(ledgers, "a", now_ms, (EPOCH, B, C, HUGE))
    honest = {name: ledgers[name] for name in ("a", "b")}
    for _ in range(120):
        now_ms += 1_000
        settle(honest, now_ms)
    shares = [ledger.enforced(KEY, WINDOW_MS, now_ms).share for ledger in honest.values()]
    assert sum(shares) <= 1_000_000 - 100_000, "its floor stays its own"


def test_a_message_of_another_set_of_regions_is_a_sign_of_life_and_nothing_else() -> None:
    a = start("a")
    rows = ((EPOCH, 1, 0, 7),)
    a.incoming("b", message(tag=set_tag(("a", "b", "c")), entries=(QuotaEntry(KEY, WINDOW_MS, 9, 9, rows),)), START_MS)
    assert a.counts.other_set == 1
    assert (a.table.unsaved(), a.watched()) == ([], [])


def test_after_a_change_of_regions_nothing_that_was_saved_counts() -> None:
    """Every key is at its floor until all regions have the new set, or those that don't are lost."""
    a, _, now_ms = moved()
    three = start("a", regions=("a", "b", "c"), at_ms=now_ms, mark=a.mark)
    three.table.load(KEY, a.table.dump(KEY), now_ms)
    assert not three.filled
    assert three.enforced(KEY, WINDOW_MS, now_ms) == FLOOR
    assert save(three) == {KEY: b""}, "it is to be deleted"
    back = start("a", at_ms=now_ms + 1_000, mark=three.mark)
    assert not back.filled, "what was deleted is not there in the old set either"


def test_a_record_that_can_not_be_read_keeps_its_key_at_the_floor_and_no_other() -> None:
    a, _ = pair()
    now_ms = START_MS + 5_000
    a.table.load(KEY, b"\xc1nonsense", now_ms)
    assert a.counts.keys_unreadable == 1
    assert a.enforced(KEY, WINDOW_MS, now_ms) == FLOOR
    assert a.enforced(b"other", WINDOW_MS, now_ms) == EVEN
    assert a.enforced(KEY, WINDOW_MS, now_ms + 13 * 3_600_000) == EVEN


@pytest.mark.parametrize(
    "packed", [b"", b"\x01", b"\x94\x02\xa1t\x01\x90", b"\x94\x01\xa1t\x00\x90", b"\x94\x01\xa1t\x01\x91\x01"]
)
def test_unreadable_records_have_a_named_error(packed: bytes) -> None:
    with pytest.raises(UnreadableKey):
        unpack(packed, "t", 2)  # type: ignore[arg-type]


def test_a_full_ledger_keeps_further_keys_at_their_floors_and_counts_them(monkeypatch: pytest.MonkeyPatch) -> None:
    a, _ = pair()
    monkeypatch.setattr(key_table, "MAX_KEYS", 1)
    observe(a, START_MS + 5_000, used=400, offered=900)
    assert a.enforced(b"other", WINDOW_MS, START_MS + 5_000) == EVEN, "nothing was refused yet"
    observe(a, START_MS + 5_000, used=400, offered=900, key=b"other")
    assert a.counts.keys_refused == 1
    assert a.enforced(b"other", WINDOW_MS, START_MS + 5_000) == FLOOR
    assert a.watched() == [KEY]


def test_a_key_that_was_busy_is_forgotten_when_its_epoch_is_over() -> None:
    a, b, now_ms = moved()
    now_ms += 20_000
    for second in range(5):
        for ledger in (a, b):
            ledger.tick(now_ms + second * 1_000)
        tell(a, "a", b, "b", now_ms + second * 1_000)
        tell(b, "b", a, "a", now_ms + second * 1_000)
    assert a.watched() == []
    assert a.enforced(KEY, WINDOW_MS, now_ms) == FLOOR, "its gifts count"
    now_ms += 3_600_000
    a.tick(now_ms)
    a.tick(now_ms)
    assert save(a) == {KEY: b""}
    for _ in range(3):
        a.tick(now_ms)
    assert a.table.unsaved() == []
    assert a.enforced(KEY, WINDOW_MS, now_ms) == EVEN


def test_one_region_alone_has_all_of_the_limit() -> None:
    alone = start("a", regions=("a",))
    assert alone.enforced(KEY, WINDOW_MS, START_MS) == Enforced(1_000_000, 1_000_000)
    alone.tick(START_MS)
    assert alone.filled
