"""What an explanation is made from: decision logs of one or several nodes, and the rules that were in force.

A log is a data directory, or a file of JSON lines as stdout or a log store gives them. All of them are read as one.
Nothing is held but what was asked for: the decisions of one descriptor, counter or id, and the events, which are few.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headgate.clock import SystemClock
from headgate.decision_log.batch import RecordFilter
from headgate.decision_log.json_lines import entries_of_line
from headgate.decision_log.rule_contents import PART, Content, joined, load_content
from headgate.decision_log.schema import DecisionRecord, Event, NodeRun
from headgate.decision_log.segments import ReadStats, read_segments
from headgate.rules.directory import Source as RulesSource
from headgate.rules.directory import SourceFile, compile_source
from headgate.rules.model import Version
from headgate.rules.pace import Pace
from headgate.rules.problems import RulesError
from headgate.rules.ruleset import RuleSet

MAX_RECORDS: Final = 100_000
"""Decisions about one descriptor that are looked at; of more, the first."""


@dataclass(slots=True)
class LogView:
    """Several logs, read as one."""

    paths: Sequence[Path]
    """Data directories, and files of JSON lines."""
    lines: Sequence[str] = ()
    """JSON lines that were read already: from stdin, or from servers."""
    contents: Mapping[str, Content] = field(default_factory=dict)
    """Rule sets that servers sent along, by their digests."""
    stats: ReadStats = field(default_factory=ReadStats)
    _rules: dict[str, RuleSet | None] = field(default_factory=dict)
    _shipped: dict[str, Content] = field(default_factory=dict)
    """Rule sets that were among the lines, by their digests."""
    _homes: dict[NodeRun, Path] = field(default_factory=dict)
    """Whose events were found in which data directory."""

    def read(self, want: RecordFilter | None) -> Iterator[DecisionRecord | Event]:
        """All events, and the decisions that are wanted; without a `want` all of them."""
        self.stats = ReadStats()
        for path in self.paths:
            if path.is_dir():
                for entry in read_segments(path, self.stats, want):
                    self._homes.setdefault(entry.source, path)
                    yield entry
            else:
                with path.open(encoding="utf-8", errors="replace") as file:
                    yield from self._read_lines(file, want)
        yield from self._read_lines(self.lines, want)

    def decisions(self, want: RecordFilter) -> list[DecisionRecord]:
        """The decisions that are wanted, by time."""
        found: list[DecisionRecord] = []
        for entry in self.read(want):
            if isinstance(entry, DecisionRecord):
                found.append(entry)
                if len(found) >= MAX_RECORDS:
                    break
        return sorted(found, key=lambda record: (record.time_ms, record.number))

    def events(self) -> list[Event]:
        """All events, by time; contents of rule sets that were among them are kept for `rules`."""
        found = [entry for entry in self.read(RecordFilter(numbers=frozenset((-1,)))) if isinstance(entry, Event)]
        self._shipped.update(joined([event.fields for event in found if event.kind == PART]))
        return sorted([event for event in found if event.kind != PART], key=lambda event: event.time_ms)

    def same_node(self, one: NodeRun, other: NodeRun) -> bool:
        """Whether two runs are of one node: by name, or because they had one data directory, one after the other."""
        if one.node == other.node:
            return True
        home = self._homes.get(one)
        return home is not None and home == self._homes.get(other)

    def rules(self, version: str) -> RuleSet | None:
        """The rule set of a version, if any of the logs kept what was in it."""
        digest = version.partition("-")[2]
        if digest not in self._rules:
            self._rules[digest] = self._load(digest)
        return self._rules[digest]

    def _load(self, digest: str) -> RuleSet | None:
        kept = (load_content(path, digest) for path in self.paths if path.is_dir())
        sent = self.contents.get(digest) or self._shipped.get(digest)
        content = sent or next((content for content in kept if content is not None), None)
        if content is None:
            return None
        files, merge_domains = content
        source = RulesSource(tuple([SourceFile(name, data, name) for name, data in files]), digest)
        pace = Pace(SystemClock(), polite=False)
        try:
            return compile_source(source, Version(0, digest), pace, merge_domains=merge_domains)
        except RulesError:
            return None  # of a version that accepted more, or less

    def _read_lines(self, lines: Iterable[str], want: RecordFilter | None) -> Iterator[DecisionRecord | Event]:
        for text in lines:
            entries = entries_of_line(text)
            self.stats.skipped_lines += bool(not entries and text.strip())
            for entry in entries:
                if isinstance(entry, Event):
                    self.stats.events += 1
                    yield entry
                else:
                    self.stats.records += 1
                    if want is None or want.wants(entry):
                        yield entry
