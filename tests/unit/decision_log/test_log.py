"""The decision log: what is in it, what it survives, and that no decision waits for it."""

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from headgate.decision_log import rule_contents, segments
from headgate.decision_log.batch import DecisionBatch
from headgate.decision_log.block import MAGIC
from headgate.decision_log.explain.explanation import explain, lines_of
from headgate.decision_log.explain.question import DecisionQuestion
from headgate.decision_log.index import EVENTS, BlockFacts
from headgate.decision_log.json_lines import event_from_json, event_to_json, record_from_json, record_to_json
from headgate.decision_log.log import PAGE_RECORDS
from headgate.decision_log.names import hash_of_descriptor
from headgate.decision_log.reader import LogView
from headgate.decision_log.rule_contents import joined, load_content, parts_of, save_content
from headgate.decision_log.schema import RECORD_BYTES, ROW, DecisionRecord, Event, Flag, NodeRun
from headgate.decision_log.segments import Bounds, ReadStats, SegmentSink, read_segments
from headgate.decision_log.sinks import LineSink
from headgate_client.values import encode_request

from tests.support.clock import ManualClock
from tests.support.decision_log import LoggedNode, decisions, read_all
from tests.support.waiting import PATIENCE_S

NOW_MS = 1_700_000_040_000  # a minute's beginning
RULES = """
domain: d
descriptors:
  - key: user
    rate_limit: {unit: minute, requests_per_unit: 3}
  - key: path
    rate_limit: {name: paths, unit: second, requests_per_unit: 2}
  - key: bucket
    rate_limit: {unit: second, requests_per_unit: 1, algorithm: gcra, burst: 2}
  - key: watched
    shadow_mode: true
    rate_limit: {unit: minute, requests_per_unit: 1}
"""


@pytest.fixture
def node(tmp_path: Path) -> LoggedNode:
    return LoggedNode(tmp_path, RULES, ManualClock(NOW_MS))


def test_a_denial_is_logged_with_what_it_was_decided_by(node: LoggedNode) -> None:
    node.clock.advance(15_000)
    for _ in range(3):
        node.ask({"user": "ann"})
    node.ask({"user": "ann"}, cost=2)
    node.stop()
    (record,) = decisions(node.data_dir)
    assert record.time_ms == NOW_MS + 15_000
    assert (record.own, record.others, record.foreign, record.previous) == (3, 0, 0, 0)
    assert (record.terms.limit, record.terms.window_ms, record.terms.algorithm) == (3, 60_000, "sliding_window")
    assert (record.cost, record.remaining, record.weight, record.shard) == (2, 0, 1, -1)
    assert record.over
    assert not record.allowed
    assert (record.rule.domain, record.rule.id, record.path) == ("d", "user", "local")
    assert record.version == str(node.rules.version)
    assert record.descriptor_hash == hash_of_descriptor("d", (("user", "ann"),))
    assert record.entries == ()
    assert (record.source.region, record.source.node, record.source.run) == ("local", "one", 1)
    assert record.wait_ms > 0


def test_a_page_waits_for_a_quarter_of_a_second_and_the_log_says_so(node: LoggedNode) -> None:
    assert not node.log.waiting
    for _ in range(4):
        node.ask({"user": "ann"})
    node.log.flush()
    assert node.log.waiting, "it has not waited for long enough"
    node.clock.advance(250)
    node.log.flush()
    assert not node.log.waiting
    node.stop()


def test_the_weight_of_the_previous_window_is_told(node: LoggedNode) -> None:
    for _ in range(3):
        node.ask({"user": "ann"})
    node.clock.advance(75_000)
    node.ask({"user": "ann"})
    node.ask({"user": "ann"})
    node.stop()
    (record,) = decisions(node.data_dir)
    assert (record.own, record.previous, record.previous_weight, record.counted) == (1, 3, 2, 3)


def test_a_denial_from_memory_tells_the_counts_of_the_window_it_falls_into(node: LoggedNode) -> None:
    for _ in range(3):
        node.ask({"user": "ann"})
    node.ask({"user": "ann"}, cost=3)
    node.clock.advance(61_000)
    node.ask({"user": "ann"}, cost=3)
    node.stop()
    first, second = decisions(node.data_dir)
    assert (first.path, first.own, first.previous) == ("local", 3, 0)
    assert (second.path, second.own, second.previous) == ("deny_cache", 0, 3)
    assert (first.time_ms, second.time_ms) == (NOW_MS, NOW_MS + 61_000)


def test_a_bucket_tells_what_of_it_is_in_use(node: LoggedNode) -> None:
    for _ in range(3):
        node.ask({"bucket": "b"})
    node.stop()
    (record,) = decisions(node.data_dir)
    assert (record.own, record.capacity, record.wait_ms) == (2, 2, 1_000)


def test_all_limits_of_a_denied_request_are_logged_under_one_id(node: LoggedNode) -> None:
    for _ in range(3):
        node.ask({"user": "ann"}, {"path": "/"})
    node.stop()
    user, path = decisions(node.data_dir)
    assert user.id == path.id
    assert (user.rule.id, user.over) == ("user", False)
    assert (path.rule.id, path.over) == ("paths", True)


def test_what_a_shadow_rule_would_have_denied_is_logged(node: LoggedNode) -> None:
    for _ in range(2):
        node.ask({"watched": "w"})
    node.stop()
    (record,) = decisions(node.data_dir)
    assert record.shadow
    assert record.over
    assert record.allowed
    assert record.path == "shadow"


def test_one_of_so_many_allowances_is_logged_and_stands_for_all(tmp_path: Path) -> None:
    node = LoggedNode(tmp_path, RULES.replace("3}", "1000}"), ManualClock(NOW_MS), allowances=10)
    for number in range(100):
        node.ask({"user": f"u{number}"})
    node.stop()
    logged = decisions(node.data_dir)
    assert [record.weight for record in logged] == [10] * 10
    assert all(record.allowed for record in logged)


@pytest.mark.parametrize("allowances", [0, 1])
def test_all_allowances_are_logged_or_none(tmp_path: Path, allowances: int) -> None:
    node = LoggedNode(tmp_path, RULES, ManualClock(NOW_MS), allowances=allowances)
    for number in range(7):
        node.ask({"user": f"u{number}"})
    node.stop()
    assert len(decisions(node.data_dir)) == 7 * allowances


def test_values_are_in_the_log_only_where_that_is_wanted(tmp_path: Path) -> None:
    node = LoggedNode(tmp_path, RULES, ManualClock(NOW_MS), values=True, allowances=1)
    node.ask({"user": "ann"})
    node.stop()
    (record,) = decisions(node.data_dir)
    assert record.entries == (("user", "ann"),)


def test_a_record_is_as_small_as_it_should_be() -> None:
    assert 80 <= RECORD_BYTES <= 120


def test_many_pages_come_back_in_order_and_whole(node: LoggedNode) -> None:
    count = 3 * PAGE_RECORDS + 5
    for number in range(count):
        node.ask({"user": f"u{number % 50}"}, cost=4)
    node.stop()
    logged = decisions(node.data_dir)
    assert len(logged) == count
    numbers = [record.number for record in logged]
    assert numbers == [(numbers[0] + index) % 2**64 for index in range(count)]
    assert node.log.stats.dropped == 0


def test_records_and_events_are_the_same_as_json_lines(node: LoggedNode) -> None:
    for _ in range(5):
        node.ask({"user": "ann"}, {"bucket": "b"})
    node.stop()
    for entry in read_all(node.data_dir):
        if isinstance(entry, DecisionRecord):
            assert record_from_json(json.loads(json.dumps(record_to_json(entry)))) == entry
        else:
            assert event_from_json(json.loads(json.dumps(event_to_json(entry)))) == entry


def test_lines_for_a_shipper_hold_what_the_segments_hold(node: LoggedNode, tmp_path: Path) -> None:
    with (tmp_path / "lines").open("wb") as file:
        node.log.sinks.append(LineSink(file.fileno(), NodeRun("local", "one", 1)))
        for _ in range(5):
            node.ask({"user": "ann"})
        node.stop()
    lines = [json.loads(line) for line in (tmp_path / "lines").read_text().splitlines()]
    assert [record_from_json(line) for line in lines if line["kind"] == "decision"] == decisions(node.data_dir)
    assert [line["kind"] for line in lines if line["kind"] != "decision"][-1] == "stop"


def test_nothing_in_lines_for_a_shipper_steers_whoever_shows_them(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    with path.open("wb") as file:
        LineSink(file.fileno(), NodeRun("local", "one", 1)).events(
            [Event(1, "key_reset", {"who": "a\x9b31m\u202e"})], 1
        )
    (line,) = path.read_text().split("\n")[:-1]
    assert line.isprintable()
    assert json.loads(line)["fields"]["who"] == "a\x9b31m\u202e"


@pytest.mark.parametrize("cut", [1, 7, 40])
def test_a_torn_tail_is_skipped_and_said(node: LoggedNode, cut: int) -> None:
    for _ in range(5):
        node.ask({"user": "ann"})
    node.log.close(10)
    (segment,) = (node.data_dir / segments.DIRECTORY).glob(f"*{segments.SUFFIX}")
    data = segment.read_bytes()
    last = data.rfind(MAGIC)
    segment.write_bytes(data[: len(data) - cut])
    stats = ReadStats()
    left = list(read_segments(node.data_dir, stats))
    assert [entry.kind for entry in left if isinstance(entry, Event)] == ["start", "rules_in_force"]
    assert stats.records == 0
    assert stats.skipped_bytes == len(data) - cut - last


def test_a_harmed_block_takes_only_itself_along(node: LoggedNode) -> None:
    for _ in range(PAGE_RECORDS + 10):
        node.ask({"user": "ann"}, cost=9)
    node.stop()
    (segment,) = (node.data_dir / segments.DIRECTORY).glob(f"*{segments.SUFFIX}")
    whole = read_all(node.data_dir)
    data = bytearray(segment.read_bytes())
    blocks = [index for index in range(len(data)) if data.startswith(MAGIC, index)]
    data[blocks[1] + 30] ^= 0xFF
    segment.write_bytes(data)
    stats = ReadStats()
    left = list(read_segments(node.data_dir, stats))
    assert stats.skipped_bytes == blocks[2] - blocks[1]
    gone = len(whole) - len(left)
    assert gone > 0
    assert any(left == whole[:at] + whole[at + gone :] for at in range(len(left) + 1))


def test_the_log_stays_within_its_bytes_and_its_age(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "SEGMENT_BYTES", 1_000)
    writer = SegmentSink(tmp_path, NodeRun(run=1), Bounds(5_000, 3_600_000))
    now_ms = int(tmp_path.stat().st_mtime * 1000)
    for _ in range(60):
        writer.write(b"x" * 500, FACTS, now_ms)
    files = list((tmp_path / segments.DIRECTORY).iterdir())
    assert sum(path.stat().st_size for path in files) <= 5_000, "with their indexes"
    assert len(files) >= 2 * 3
    orphan = files[0].parent / "gone.hgx"
    orphan.touch()
    writer.write(b"y", FACTS, now_ms + 2 * 24 * 3_600_000)
    writer.close()
    left = list((tmp_path / segments.DIRECTORY).iterdir())
    assert sorted(path.suffix for path in left) == [".hgd", ".hgx"]


FACTS = BlockFacts(EVENTS, 0, 0)


class StuckSink:
    """A disk that does not come back until it is told to."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.reached = threading.Event()
        self.batches: list[DecisionBatch] = []
        self.noted: list[Event] = []

    def decisions(self, batch: DecisionBatch, now_ms: int) -> None:
        self.reached.set()
        self.free.wait(30)
        self.batches.append(batch)

    def events(self, events: Sequence[Event], now_ms: int) -> None:
        self.noted += events

    def close(self) -> None:
        pass


def test_while_the_disk_stands_still_decisions_go_on_and_what_is_missing_is_counted(tmp_path: Path) -> None:
    node = LoggedNode(tmp_path, RULES, ManualClock(NOW_MS))
    disk = StuckSink()
    node.log.sinks[:] = [disk]
    node.log._sender.max_bytes = 2_000_000
    asked = 10 * PAGE_RECORDS
    for _ in range(asked):
        node.ask({"user": "ann"}, cost=9)
    stats = node.log.stats
    assert stats.dropped > 0
    disk.free.set()
    assert node.log._sender.flush(PATIENCE_S)
    node.log.close(10)
    written = sum(batch.count for batch in disk.batches)
    assert written + stats.dropped == asked
    assert sum(event.fields["decisions"] for event in disk.noted if event.kind == "dropped") == stats.dropped


@pytest.mark.slow
def test_three_seconds_of_20_000_denials_a_second_wait_for_a_disk_that_stands_still(tmp_path: Path) -> None:
    node = LoggedNode(tmp_path, RULES, ManualClock(NOW_MS))
    disk = StuckSink()
    node.log.sinks[:] = [disk]
    for number in range(60_000):
        node.ask({"user": f"u{number % 1000}"}, cost=9)
    assert node.log.stats.dropped == 0
    disk.free.set()
    node.log.close(60)
    assert sum(batch.count for batch in disk.batches) == 60_000


class BrokenSink(StuckSink):
    """A disk that is full."""

    def decisions(self, batch: DecisionBatch, now_ms: int) -> None:
        raise OSError(28, "No space left on device")


def test_a_disk_that_is_full_is_said_once_and_counted(tmp_path: Path) -> None:
    node = LoggedNode(tmp_path, RULES, ManualClock(NOW_MS))
    said: list[str] = []
    node.log.warn = lambda sink, error: said.append(f"{sink}: {error}")
    node.log.sinks[:] = [BrokenSink()]
    for _ in range(3 * PAGE_RECORDS):
        node.ask({"user": "ann"}, cost=9)
    node.log.close(10)
    (line,) = said
    assert line.startswith("BrokenSink: ")
    assert "No space left on device" in line
    assert node.log.stats.failed == 3 * PAGE_RECORDS


def test_records_that_can_not_be_made_take_nothing_else_along(tmp_path: Path) -> None:
    """Figures that no column holds: that page is counted as lost, and the log goes on."""
    node = LoggedNode(tmp_path, RULES, ManualClock(NOW_MS))
    said: list[str] = []
    node.log.warn = lambda sink, error: said.append(sink)
    node.ask({"user": "ann"}, cost=9)
    node.log.page.flat[ROW.index("number")] = -1
    node.log._hand_over()
    node.ask({"user": "ann"}, cost=9)
    node.stop()
    assert (said, node.log.stats.failed) == (["records"], 1)
    assert len(decisions(node.data_dir)) == 1


def test_what_is_given_back_is_told(tmp_path: Path) -> None:
    text = "domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: 9, refund: true}}\n"
    node = LoggedNode(tmp_path, text, ManualClock(NOW_MS), allowances=1)
    node.ask({"user": "ann"}, cost=5)
    request = encode_request("d", [{"user": "ann"}], 1)
    request.descriptors[0].hits_addend.value, request.descriptors[0].is_negative_hits = 2, True
    node.handler.answer(request.SerializeToString())
    node.stop()
    taken, given = decisions(node.data_dir)
    assert (taken.flags & Flag.REFUND, given.flags & Flag.REFUND) == (0, Flag.REFUND)
    assert (given.cost, given.own) == (2, 3)
    text = "\n".join(lines_of(explain(LogView([node.data_dir]), DecisionQuestion(number=given.number))))
    assert "The request was admitted, and gave 2 back at" in text


def test_rules_are_kept_once_per_version(tmp_path: Path) -> None:
    files = [("a.yaml", b"domain: d\n"), ("b.yaml", b"\xff\xfe not text")]
    digest = "0123456789abcdef"
    assert save_content(tmp_path, digest, files, merge_domains=True)
    assert save_content(tmp_path, digest, files, merge_domains=True)
    assert len(list((tmp_path / segments.DIRECTORY).iterdir())) == 1
    assert load_content(tmp_path, digest) == (files, True)
    assert load_content(tmp_path, "ffffffffffff") is None


def test_rules_are_shipped_in_parts_and_joined_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """In any order, and twice; not, where one part is missing or they are too many."""
    monkeypatch.setattr(rule_contents, "PART_CHARS", 16)
    files = [("a.yaml", b"domain: a\n"), ("\udcff.yaml", b"\xff" * 40)]
    parts = parts_of("0123456789abcdef", files, merge_domains=True)
    assert len(parts) > 2
    assert dict(joined([*reversed(parts), parts[0]])) == {"0123456789ab": (files, True)}
    assert dict(joined(parts[1:])) == {}
    monkeypatch.setattr(rule_contents, "MAX_PARTS", 2)
    assert parts_of("0123456789abcdef", files, merge_domains=True) == []
