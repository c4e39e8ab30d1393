"""Blocks whose checksum is right and whose contents are not: they are left out and counted, and nothing else is."""

import itertools
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from headgate.decision_log import block
from headgate.decision_log.batch import RecordFilter
from headgate.decision_log.explain.explanation import DecisionOutcome, explain, lines_of
from headgate.decision_log.explain.question import DecisionQuestion
from headgate.decision_log.follower import Follower
from headgate.decision_log.index import index_path
from headgate.decision_log.reader import LogView
from headgate.decision_log.replay import replay
from headgate.decision_log.schema import DecisionRecord
from hypothesis import strategies as st

from tests.support.properties import check, examples_of
from tests.unit.decision_log.test_index import SOURCE, TERMS, Log, batch, caller, record
from tests.unit.rules.support import compile_text

budgets = examples_of(100, 2_000)
BODY = block.decode(block.encode_decisions(batch([record(1, 1_700_000_000_000, 5)]), SOURCE), 0)[0]
HEAD_BYTES = struct.unpack_from("<I", BODY, 1)[0]


def packed(body: bytes) -> bytes:
    data = zlib.compress(body)
    return block.HEAD.pack(block.MAGIC, len(data), zlib.crc32(data)) + data


def with_head(**changes: Any) -> bytes:
    head = {**json.loads(BODY[5 : 5 + HEAD_BYTES]), **changes}
    text = json.dumps(head).encode()
    return BODY[:1] + struct.pack("<I", len(text)) + text + BODY[5 + HEAD_BYTES :]


def with_names(**changes: Any) -> bytes:
    return with_head(names={**json.loads(BODY[5 : 5 + HEAD_BYTES])["names"], **changes})


BAD_BODIES = {
    "empty decisions": b"D",
    "no head": b"D\xff\xff\xff\xff",
    "head is no JSON": b"D\x02\x00\x00\x00{]",
    "head is a list": b"D\x02\x00\x00\x00[]",
    "more records than columns": with_head(count=1_000_000_000),
    "fewer than none": with_head(count=-1),
    "count is text": with_head(count="many"),
    "another source": with_head(source={"planet": "mars"}),
    "a source of other types": with_head(source={"region": 1, "node": [], "run": "x"}),
    "no names": with_head(names={}),
    "names that are too few": with_names(rule=[]),
    "terms that are none": with_names(terms=[["x"] * 8]),
    "terms without a window": with_names(terms=[[*TERMS[:1], 0, *TERMS[2:]]]),
    "a path that is a number": with_names(path=[7]),
    "entries that are none": with_names(entries=[7]),
    "columns cut off": BODY[:-9],
    "events that are no JSON": b"E{]",
    "events without fields": b'E{"kind": "start"}',
    "nested without an end": b"E" + b"[" * 100_000,
    "expands without an end": b"E" + b" " * (block.MAX_BODY_BYTES + 1),
}


def log_with(data_dir: Path, data: bytes) -> Log:
    """A log with a block of five records, that data, and another block of five."""
    log = Log(data_dir)
    log.block([1] * 5)
    log.sink.close()
    with log.segments()[0].open("ab") as file:
        file.write(data)
    index_path(log.segments()[0]).unlink()
    more = Log(data_dir)
    more.time_ms, more.number = log.time_ms, log.number
    more.block([1] * 5)
    more.sink.close()
    with log.segments()[0].open("ab") as file:
        file.write(log.segments()[-1].read_bytes())
    return log


@pytest.mark.parametrize("name", BAD_BODIES)
def test_a_block_that_holds_something_else_ends_neither_explain_nor_replay_nor_tail(tmp_path: Path, name: str) -> None:
    data = packed(BAD_BODIES[name])
    log = log_with(tmp_path, data)
    question = DecisionQuestion("d", caller(1), log.time_ms)
    view = LogView([tmp_path])
    explanation = explain(view, question)
    assert explanation.outcome is DecisionOutcome.DENIED
    assert "\n".join(lines_of(explanation))
    view = LogView([tmp_path])
    found = [entry for entry in view.everything() if isinstance(entry, DecisionRecord)]
    assert len(found) == 15, "both of the first segment's blocks, and the second's"
    assert view.stats.skipped_bytes == len(data)
    replay(found, compile_text("domain: d\n"))
    follower = Follower(tmp_path)
    with log.segments()[0].open("ab") as file:
        file.write(data + log.segments()[-1].read_bytes())
    assert len(follower.read()) == 5
    assert follower.read() == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KINDS = st.sampled_from(
    [
        *("start", "rules_in_force", "breaker_changed", "peer_failed", "active_regions_changed", "live_nodes"),
        *("dropped", "rules_content", "key_reset", "key_overridden", "rules_refused", "shard_lost_memory"),
    ]
)
NAMES = ["version", "shard", "state", "region", "active", "of", "live_nodes", "decisions", "regions", "key"]
FIELDS = st.dictionaries(st.sampled_from([*NAMES, "digest", "part", "data", "allowances", "origin", "by_ms"]), JSON)


@budgets
def test_events_of_any_content_end_no_explanation(tmp_path: Path, count: int) -> None:
    numbers = itertools.count()

    def explained(events: list[Any]) -> None:
        lines = [
            json.dumps({"kind": kind, "time_ms": at, "fields": fields, "region": "eu", "node": "one", "run": 7})
            for kind, at, fields in events
        ]
        log = log_with(tmp_path / str(next(numbers)), packed(b"E" + "\n".join(lines).encode()))
        view = LogView([log.data_dir])
        explanation = explain(view, DecisionQuestion("d", caller(1), log.time_ms))
        assert explanation.outcome is DecisionOutcome.DENIED
        json.dumps(explanation.to_json())
        lines_of(explanation)

    check(count, explained, events=st.lists(st.tuples(KINDS, st.integers() | JSON, FIELDS), max_size=6))


@budgets
def test_changed_bytes_under_a_right_checksum_end_no_reading(tmp_path: Path, count: int) -> None:
    numbers = itertools.count()

    def read(position: int, change: bytes) -> None:
        body = BODY[:position] + change + BODY[position + len(change) :]
        log = log_with(tmp_path / str(next(numbers)), packed(body))
        view = LogView([log.data_dir])
        found = view.decisions(RecordFilter(), log.time_ms)
        assert len(found) >= 10
        for each in found:
            explanation = explain(view, DecisionQuestion(at_ms=each.time_ms, number=each.number))
            json.dumps(explanation.to_json())
            lines_of(explanation)
        list(LogView([log.data_dir]).everything())

    check(count, read, position=st.integers(0, len(BODY) - 1), change=st.binary(min_size=1, max_size=12))
