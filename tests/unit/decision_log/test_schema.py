"""The one table of a record: what follows from it, and that files of earlier versions are still read by it."""

import json
import shutil
from pathlib import Path

from headgate.decision_log.batch import batch_of
from headgate.decision_log.json_lines import entry_of_json, entry_to_json, record_from_json, record_to_json
from headgate.decision_log.schema import (
    CODES,
    INTERNED,
    ROW,
    SCHEMA,
    STORED,
    DecisionRecord,
    Flag,
    LimitTerms,
    NodeRun,
    Rule,
)
from headgate.decision_log.segments import ReadStats, read_segments

from tests.support.record_fields import with_table

FIXTURES = Path(__file__).parent / "fixtures"
PAGE = Path(__file__).parents[3] / "docs" / "explain.md"

RECORD = DecisionRecord(
    time_ms=1_700_000_040_123,
    number=2**63 + 5,
    rule=Rule("edge", "user", "user"),
    version="3-abc",
    path="deny_cache",
    flags=Flag.OVER | Flag.QUOTA,
    cost=2,
    remaining=0,
    wait_ms=7_000,
    own=3,
    others=4,
    foreign=5,
    previous=60,
    terms=LimitTerms(10, 60_000, "sliding_window", 0, 1, "local", "global", "minute"),
    shard=2,
    live_nodes=9,
    weight=1,
    key=2**64 - 1,
    descriptor_hash=17,
    source=NodeRun("eu", "one", 44),
    entries=(("user", "ann"),),
    trace_id=2**127 + 3,
)


def test_a_segment_of_version_0_2_is_read_as_that_version_read_it(tmp_path: Path) -> None:
    shutil.copy(FIXTURES / "of_0_2.hgd", tmp_path)
    lines = [json.loads(line) for line in (FIXTURES / "of_0_2.jsonl").read_text().splitlines()]
    entries = list(read_segments(tmp_path, ReadStats()))
    assert [entry_to_json(entry) for entry in entries] == lines
    assert [entry_of_json(line) for line in lines] == entries


def test_every_field_comes_back_from_json_and_from_columns() -> None:
    assert record_from_json(json.loads(json.dumps(record_to_json(RECORD)))) == RECORD
    tables = {line.name: [getattr(RECORD, line.name)] for line in STORED if line.column.codes == INTERNED}
    values = {line.name: [0 if line.name in tables else getattr(RECORD, line.name)] for line in STORED}
    (again,) = batch_of(values, tables).records(RECORD.source)
    assert again == RECORD


def test_positions_of_columns_are_those_of_the_first_format() -> None:
    """They are what old files are read by: a new field gets a position behind all others."""
    assert "".join(CODES) == "qQQQQQqqqqIIqIhHHHHHHH"
    names = [line.name for line in STORED]
    assert names[:6] == ["time_ms", "number", "key", "descriptor_hash", "trace_id", "own"]
    assert names[-6:] == ["flags", "rule", "terms", "version", "path", "entries"]


def test_no_two_fields_have_one_name_in_json() -> None:
    names = [name for line in SCHEMA for name in line.column.json]
    assert len(names) == len(set(names))
    assert ROW[0] == "charge"


def test_the_page_has_the_table_of_the_schema() -> None:
    """If it does not: `make docs`."""
    page = PAGE.read_text()
    assert with_table(page) == page
