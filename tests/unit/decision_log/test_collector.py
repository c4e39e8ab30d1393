"""The decision log at a collector: what arrives, and what a bad collector costs."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from headgate.decision_log import collector as collector_module
from headgate.decision_log.batch import DecisionBatch
from headgate.decision_log.collector import CollectorSink
from headgate.decision_log.json_lines import entry_of_json
from headgate.decision_log.schema import DecisionRecord, Event, NodeRun
from opentelemetry.sdk.resources import Resource

from tests.support.clock import ManualClock
from tests.support.collector import Collector
from tests.support.decision_log import LoggedNode, decisions
from tests.support.waiting import wait_until

SOURCE = NodeRun("local", "one", 1)
RULES = "domain: d\ndescriptors:\n  - {key: user, rate_limit: {unit: minute, requests_per_unit: 1}}\n"


class Keeper:
    """A sink that keeps what it is given."""

    def __init__(self) -> None:
        self.batches: list[DecisionBatch] = []

    def decisions(self, batch: DecisionBatch, now_ms: int) -> None:
        self.batches.append(batch)

    def events(self, events: Any, now_ms: int) -> None: ...

    def close(self) -> None: ...


def some_denials(directory: Path) -> tuple[DecisionBatch, list[DecisionRecord]]:
    node, keeper = LoggedNode(directory, RULES, ManualClock(1_700_000_040_000)), Keeper()
    node.log.sinks.append(keeper)
    for _ in range(4):
        node.ask({"user": "ann"})
    node.stop()
    return keeper.batches[0], decisions(node.data_dir)


def opened(collector: Collector, warn: Callable[[str, Exception], None]) -> CollectorSink:
    return CollectorSink(collector.url, SOURCE, Resource.create({"service.name": "headgate"}), warn)


def test_records_and_events_arrive_as_explain_reads_them(tmp_path: Path) -> None:
    batch, records = some_denials(tmp_path)
    happened = Event(1_700_000_040_000, "key_reset", {"who": "alice"}, SOURCE)
    with Collector() as collector:
        sink = opened(collector, lambda name, error: pytest.fail(str(error)))
        sink.events([happened], 0)
        sink.decisions(batch, 0)
        sink.close()
    event, *denials = collector.logs
    assert entry_of_json(json.loads(event.body.string_value)) == happened
    assert [entry_of_json({"body": {"stringValue": log.body.string_value}}) for log in denials] == records
    attributes = {item.key: item.value for item in denials[0].attributes}
    assert attributes["headgate.id"].string_value == records[0].id
    assert (event.event_name, denials[0].event_name) == ("headgate.key_reset", "headgate.decision")
    assert (sink.sent, sink.failed) == (4, 0)


@pytest.mark.parametrize("behaviour", ["errors", "refuses"])
def test_what_is_not_taken_is_counted_and_said_once(
    behaviour: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(collector_module, "SEND_TIMEOUT_S", 0.2)
    batch, _ = some_denials(tmp_path)
    said: list[str] = []
    with Collector(behaviour) as collector:
        sink = opened(collector, lambda name, error: said.append(name))
        sink.decisions(batch, 0)
        sink.decisions(batch, 0)
        wait_until(lambda: sink.failed == 6, "both to be given up")
        sink.close()
    assert said == ["CollectorSink"]
    assert sink.sent == 0


@pytest.mark.slow
def test_behind_a_collector_that_stalls_only_so_much_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log's thread is told at once, and is never kept."""
    monkeypatch.setattr(collector_module, "MAX_WAITING", 9)
    batch, _ = some_denials(tmp_path)
    with Collector("stalls") as collector:
        sink = opened(collector, lambda name, error: None)
        for _ in range(3):
            sink.decisions(batch, 0)
        with pytest.raises(OSError, match="takes less than is logged"):
            sink.decisions(batch, 0)
        sink.close()
