"""Reads what an explanation is made from: decision logs of one or several nodes, and the rules that were in force.

A log is a data directory, or a file of JSON lines as stdout or a log store gives them. All of them are read as one.
Nothing is held but what was asked for: the decisions of one descriptor or id, and the events, which are few. Data
directories are searched by their indexes; lines have none, and are read once, and once more for what an id is in.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from headgate.clock import SystemClock
from headgate.decision_log.batch import FOREVER_MS, RecordFilter
from headgate.decision_log.coverage import Coverage, coverage_of
from headgate.decision_log.json_lines import entries_of_line
from headgate.decision_log.rule_contents import PART, Content, joined, load_content
from headgate.decision_log.schema import DecisionRecord, Entry, Event, NodeRun, decision_id
from headgate.decision_log.search import LogSearch
from headgate.decision_log.segments import ReadStats, read_segments
from headgate.rules.compiling import compile_source
from headgate.rules.pace import Pace
from headgate.rules.problems import RulesError
from headgate.rules.ruleset import RuleSet
from headgate.rules.source import RulesSource, SourceFile


@dataclass(slots=True)
class LogView:
    """Several logs, read as one."""

    paths: Sequence[Path]
    """Data directories, and files of JSON lines."""
    lines: Sequence[str] = ()
    """JSON lines that were read already: from stdin, or from servers."""
    contents: Mapping[str, Content] = field(default_factory=dict)
    """Rule sets that servers sent along, by their digests."""
    told: Sequence[Coverage] = ()
    """Times that servers said their logs cover; the lines are theirs then."""
    stats: ReadStats = field(default_factory=ReadStats)
    _rules: dict[str, RuleSet | None] = field(default_factory=dict)
    _shipped: dict[str, Content] = field(default_factory=dict)
    """Rule sets that were among the lines, by their digests."""
    _homes: dict[NodeRun, Path] = field(default_factory=dict)
    """The data directory in which a process's entries were found."""

    _searches: dict[Path, LogSearch] = field(default_factory=dict)
    _line_events: list[Event] | None = None
    """Events among the lines; None until these were read."""
    _line_times: list[tuple[int, int]] = field(default_factory=list)
    """First and last time of the lines, where they have any."""

    def everything(self) -> Iterator[Entry]:
        """All decisions and events, log by log."""
        for path in self._directories():
            yield from read_segments(path, self.stats)
        for text in self._texts():
            yield from entries_of_line(text)

    def decisions(self, want: RecordFilter, near_ms: int) -> list[DecisionRecord]:
        """The decisions that are wanted, by time; of very many, those nearest to `near_ms`."""
        found = self._from_lines(want)
        for path in self._directories():
            for record in self._search(path).decisions(want, near_ms):
                self._homes.setdefault(record.source, path)
                found.append(record)
        return sorted(found, key=lambda record: (record.time_ms, record.number))

    def events(self) -> list[Event]:
        """All events, by time; contents of rule sets that were among them are kept for `rules`."""
        if self._line_events is None:
            self._from_lines(_NO_DECISIONS)
        found = list(self._line_events or ())
        for path in self._directories():
            for event in self._search(path).events():
                self._homes.setdefault(event.source, path)
                found.append(event)
        self._shipped.update(joined([event.fields for event in found if event.kind == PART]))
        return sorted([event for event in found if event.kind != PART], key=lambda event: event.time_ms)

    def coverage(self) -> list[Coverage]:
        """Time that each of the logs covers; what was in lines counts as one log. To be asked after `events`."""
        found = [*self.told, *([] if self.told else coverage_of("what was given as lines", self._line_times))]
        for path in self._directories():
            found += coverage_of(str(path), self._search(path).spans())
        return found

    def _search(self, path: Path) -> LogSearch:
        if path not in self._searches:
            self._searches[path] = LogSearch(path, self.stats)
        return self._searches[path]

    def _directories(self) -> list[Path]:
        return [path for path in self.paths if path.is_dir()]

    def _texts(self) -> Iterator[str]:
        for path in self.paths:
            if not path.is_dir():
                with path.open(encoding="utf-8", errors="replace") as file:
                    yield from file
        yield from self.lines

    def _from_lines(self, want: RecordFilter) -> list[DecisionRecord]:
        """The decisions of the lines that are wanted. The first time, all lines are parsed, and events kept."""
        first = self._line_events is None
        events: list[Event] = []
        found: list[DecisionRecord] = []
        first_ms, last_ms = FOREVER_MS, -1
        by_id = [] if first or want.descriptor_hashes else [decision_id(number) for number in want.numbers]
        for text in self._texts():
            if by_id and not any(number in text for number in by_id):
                continue
            entries = entries_of_line(text)
            self.stats.skipped_lines += bool(first and not entries and text.strip())
            for entry in entries:
                first_ms, last_ms = min(first_ms, entry.time_ms), max(last_ms, entry.time_ms)
                if isinstance(entry, Event):
                    events.append(entry)
                elif want.wants(entry):
                    found.append(entry)
        if first:
            self._line_events = events
            self._line_times = [(first_ms, last_ms)] if last_ms >= 0 else []
            self.stats.events += len(events)
        self.stats.records += len(found)
        return found

    def same_node(self, one: NodeRun, other: NodeRun) -> bool:
        """Tell whether two runs are of one node: by name, or by a data directory that both had."""
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
        source = RulesSource(tuple([SourceFile(name, data, name) for name, data in files]))
        pace = Pace(SystemClock(), polite=False)
        try:
            return compile_source(source, pace, merge_domains=merge_domains)
        except RulesError:
            return None  # of a version that accepted more, or less


_NO_DECISIONS: Final = RecordFilter(numbers=frozenset((-1,)))
