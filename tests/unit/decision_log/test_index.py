"""The index of the log: a search reads few blocks, and finds what reading everything finds, whatever became of it."""

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from headgate.decision_log import index, search, segments
from headgate.decision_log.batch import DecisionBatch, RecordFilter, batch_of
from headgate.decision_log.explain.explanation import DecisionOutcome, explain
from headgate.decision_log.explain.question import DecisionQuestion
from headgate.decision_log.index import BlockFacts, IndexEntry, Wanted, index_path, pack_entry, scan
from headgate.decision_log.names import hash_of_descriptor
from headgate.decision_log.reader import LogView
from headgate.decision_log.schema import INTERNED, STORED, DecisionRecord, Event, Flag, LimitTerms, NodeRun, Rule
from headgate.decision_log.segments import Bounds, ReadStats, SegmentSink, read_segments

NOW_MS = 1_700_000_040_000
SOURCE = NodeRun("eu", "one", 7)
TERMS = LimitTerms(10, 60_000, "sliding_window", 0, 1, "local", "region", "minute")
BOUNDS = Bounds(1 << 30, 1 << 60)


def caller(number: int) -> tuple[tuple[str, str], ...]:
    return (("user", f"caller-{number}"),)


def record(number: int, time_ms: int, who: int, flags: Flag = Flag.OVER) -> DecisionRecord:
    return DecisionRecord(
        time_ms=time_ms,
        number=number,
        rule=Rule("d", "user", "user"),
        version="1-a",
        path="local",
        flags=flags,
        cost=1,
        remaining=0,
        wait_ms=5,
        own=10,
        others=0,
        foreign=0,
        previous=0,
        terms=TERMS,
        shard=-1,
        live_nodes=1,
        weight=1,
        key=who + 1,
        descriptor_hash=who,
        source=SOURCE,
    )


def batch(records: Sequence[DecisionRecord]) -> DecisionBatch:
    interned = {line.name for line in STORED if line.column.codes == INTERNED}
    tables: dict[str, Any] = {name: [getattr(each, name) for each in records] for name in interned}
    columns = {
        line.name: list(range(len(records)))
        if line.name in interned
        else [int(getattr(each, line.name)) for each in records]
        for line in STORED
    }
    return batch_of(columns, tables)


class Log:
    """A log that a test writes block by block."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        self.sink = SegmentSink(data_dir, SOURCE, BOUNDS)
        self.number = 1 << 40
        self.time_ms = NOW_MS

    def block(self, callers: Sequence[int]) -> None:
        records = []
        for who in callers:
            self.number += 1
            records.append(record(self.number, self.time_ms, hash_of_descriptor("d", caller(who))))
            self.time_ms += 10
        self.sink.decisions(batch(records), self.time_ms)

    def event(self, kind: str) -> None:
        self.sink.events([Event(self.time_ms, kind, {}, SOURCE)], self.time_ms)

    def segments(self) -> list[Path]:
        return sorted((self.data_dir / segments.DIRECTORY).glob(f"*{segments.SUFFIX}"))


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 8_000)


@pytest.fixture
def log(tmp_path: Path, small_segments: None) -> Log:
    """Some segments of blocks of 20 records, callers at random; the last segment is still being written."""
    log, rng = Log(tmp_path), random.Random(3)
    for number in range(120):
        if number % 17 == 0:
            log.event(f"event-{number}")
        log.block([rng.randrange(500) for _ in range(20)])
    assert len(log.segments()) > 4
    return log


def by_index(data_dir: Path, want: RecordFilter) -> list[DecisionRecord]:
    return LogView([data_dir]).decisions(want, NOW_MS)


def check(log: Log) -> None:
    """Any search finds what reading all of it finds; and all events are found."""
    everything = list(read_segments(log.data_dir, ReadStats()))
    decisions = [entry for entry in everything if isinstance(entry, DecisionRecord)]
    rng = random.Random(5)
    for _ in range(40):
        since_ms = NOW_MS + rng.randrange(-5_000, 30_000)
        until_ms = since_ms + rng.choice([0, 50, 3_000, 40_000])
        who = frozenset(hash_of_descriptor("d", caller(rng.randrange(600))) for _ in range(rng.randrange(3)))
        numbers = frozenset((1 << 40) + rng.randrange(3_000) for _ in range(rng.choice([0, 0, 1, 12])))
        want = RecordFilter(who, numbers, since_ms, until_ms)
        assert by_index(log.data_dir, want) == [entry for entry in decisions if want.wants(entry)]
    assert LogView([log.data_dir]).events() == [entry for entry in everything if isinstance(entry, Event)]


def test_a_search_finds_what_reading_everything_finds(log: Log) -> None:
    check(log)
    log.sink.close()
    check(log)


def test_an_index_that_a_crash_cut_anywhere_does_no_harm(log: Log) -> None:
    last = index_path(log.segments()[-1])
    whole = last.read_bytes()
    for cut in (1, 3, 50, len(whole) // 2, len(whole) - 2, len(whole)):
        last.write_bytes(whole[: len(whole) - cut])
        check(log)


def test_a_harmed_index_is_not_believed(log: Log) -> None:
    log.sink.close()
    path = index_path(log.segments()[1])
    whole = path.read_bytes()
    for at in (0, 10, 60, len(whole) // 2, len(whole) - 30, len(whole) - 2):
        harmed = bytearray(whole)
        harmed[at] ^= 0x55
        path.write_bytes(harmed)
        check(log)


def test_a_segment_without_an_index_is_walked_once_and_gets_one(log: Log) -> None:
    log.sink.close()
    paths = [index_path(segment) for segment in log.segments()]
    written = [path.read_bytes() for path in paths]
    for path in paths:
        path.unlink()
    view = LogView([log.data_dir])
    assert view.decisions(RecordFilter(numbers=frozenset((3,))), 0) == []
    assert view.stats.blocks > 120
    assert [path.read_bytes() for path in paths] == written
    assert {path.stat().st_mode & 0o777 for path in paths} == {0o640}
    again = LogView([log.data_dir])
    assert again.decisions(RecordFilter(numbers=frozenset((3,))), 0) == []
    assert again.stats.blocks == 0


def test_where_no_index_can_be_left_all_is_found_too(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    log.sink.close()
    for segment in log.segments():
        index_path(segment).unlink()
    monkeypatch.setattr(search, "save_index", lambda segment, entries: None)
    check(log)


def test_a_full_disk_costs_the_index_and_no_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log(tmp_path)
    log.block([1, 2])

    def full(self: Any, entry: IndexEntry) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(index.IndexWriter, "add", full)
    log.block([1, 3])
    monkeypatch.undo()
    log.block([1, 4])
    log.sink.close()
    who = RecordFilter(frozenset((hash_of_descriptor("d", caller(1)),)))
    assert len(by_index(log.data_dir, who)) == 3


def test_an_explanation_reads_a_few_blocks_of_a_large_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand blocks in some hundred segments; what is read does not grow with the log."""
    log, rng = Log(tmp_path), random.Random(1)
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 40_000)
    log.event("start")
    for number in range(10_000):
        if number % 1_000 == 500:
            log.event("live_nodes")
        log.block([rng.randrange(100_000) for _ in range(8)] + ([100_001] if number == 6_000 else []))
        log.time_ms += 1_000
    log.sink.close()
    at_ms = NOW_MS + 6_000 * 1_080
    total = sum(path.stat().st_size for path in log.segments())
    for question, outcome in (
        (DecisionQuestion("d", caller(100_001), at_ms), DecisionOutcome.DENIED),
        (DecisionQuestion("d", caller(100_001), at_ms, 7 * 86_400_000), DecisionOutcome.DENIED),
        (DecisionQuestion(number=(1 << 40) + 50_000), DecisionOutcome.DENIED),
        (DecisionQuestion("d", caller(100_002), at_ms), DecisionOutcome.NOT_LOGGED),
    ):
        view = LogView([tmp_path])
        assert explain(view, question).outcome is outcome
        # Ten events, the decision, all limits of its request; and what hashes that begin alike cost.
        assert view.stats.blocks <= 11 + 2 + 5
        assert view.stats.block_bytes < total / 300


def test_of_very_many_the_nearest_are_read_and_the_rest_is_said(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(30):
        log.block([7] * 20)
    log.sink.close()
    monkeypatch.setattr(search, "MOST_BLOCKS", 5)
    at_ms = log.time_ms - 3_000
    answer = explain(LogView([log.data_dir]), DecisionQuestion("d", caller(7), at_ms))
    assert answer.record is not None
    assert abs(answer.record.time_ms - at_ms) <= 10
    assert answer.counts["decisions"] <= 5 * 20
    assert answer.counts["unread_blocks"] >= 25
    assert any("blocks of decisions further from that time were left out" in line for line in answer.sentences)


def test_ids_that_wrap_and_clocks_that_leap_are_found() -> None:
    top = (1 << 64) - 1
    wide = IndexEntry(0, 50, BlockFacts(index.DECISIONS, 5, 1 << 50, 0, top, b"\x01\x02"))
    data = pack_entry(wide)
    for want in (RecordFilter(numbers=frozenset((top,))), RecordFilter(numbers=frozenset((0,)), since_ms=1 << 45)):
        assert len(scan(data, Wanted(want)).entries) == 1
    assert not scan(data, Wanted(RecordFilter(numbers=frozenset((0,)), until_ms=4))).entries


def test_half_of_one_hash_and_half_of_the_next_is_no_hash() -> None:
    parts = (0x1122).to_bytes(2, "little") + (0x3344).to_bytes(2, "little")
    data = pack_entry(IndexEntry(0, 50, BlockFacts(index.DECISIONS, 0, 9, 1, 2, parts)))
    for part, found in ((0x1122, 1), (0x3344, 1), (0x4411, 0), (0x2233, 0)):
        wanted = Wanted(RecordFilter(frozenset((part << 48,))))
        assert len(scan(data, wanted).entries) == found
