"""A log's rules as a rule store takes them: changes one by one, or a file for each domain."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from headgate.plane import content
from headgate.plane.domain_marks import marks_of
from headgate.plane.entry import LogEntry, Position, RecordKind, RuleChange
from headgate.plane.rule_log import RuleLog
from headgate.plane.rule_text import domain_file, load, rule_content
from headgate.rules.changes import Change, Delete, DomainMarks, DomainSettings, Put, Reorder
from headgate.rules.marks import NO_MARKS, Marks, SlotOrder
from headgate.rules.problems import Problem, RulesError
from headgate.rules.request_limits import RequestLimits
from headgate.rules.source import RulesSource, SourceFile, source_of

FOLDER: Final = "plane/"
"""Beginning of the names of files that are domains of a plane."""


class DomainFiles:
    """One file for each domain of a log."""

    def __init__(self, log: RuleLog) -> None:
        self._log = log
        self._made: dict[str, tuple[object, SourceFile, Marks | Problem]] = {}

    def current(self) -> tuple[Position, RulesSource]:
        """Return the files of the log as it is now, with the domains' marks, and its position then. Any thread."""
        position, domains, others = self._log.domains_since({name: made[0] for name, made in self._made.items()})
        records: dict[str, list[RuleChange]] = {}
        for record in others:
            records.setdefault(record.domain, []).append(record)
        self._made = {name: made for name, made in self._made.items() if name in domains}
        for name, own in records.items():
            self._made[name] = (domains[name], *_file(name, own))
        files = source_of(file for _, file, _ in self._made.values()).files
        found = {name: marks for name, (_, _, marks) in self._made.items()}
        return position, RulesSource(
            files,
            {name: marks for name, marks in found.items() if isinstance(marks, Marks) and marks != NO_MARKS},
            {name: problem for name, problem in found.items() if isinstance(problem, Problem)},
        )


def _file(domain: str, records: list[RuleChange]) -> tuple[SourceFile, Marks | Problem]:
    """Write a domain as a file, and read its marks; or the problem with them, if this version can't."""
    rules = [record for record in records if record.kind is RecordKind.RULE]
    marks = [record for record in records if record.kind is not RecordKind.RULE]
    text = domain_file(domain, {rule.path: load(rule.rule or b"") for rule in rules}).text
    name = FOLDER + domain
    file = SourceFile(name, text, name)
    try:
        return file, marks_of(marks, _slots(rules))
    except (RulesError, ValueError, LookupError, TypeError) as error:
        return file, Problem(name, 1, f"its rollout or its shadows can't be read here: {error}")


def _slots(rules: Iterable[RuleChange]) -> dict[content.Slot, dict[str, int]]:
    """Places of all patterns in force, by slot."""
    slots: dict[content.Slot, dict[str, int]] = {}
    for rule in rules:
        slot = content.slot_of(rule.path)
        if slot is not None:
            slots.setdefault(slot, {})[rule.path[-1][1]] = content.place_of(rule.rule or b"{}")
    return slots


def rule_changes(entries: Iterable[LogEntry], log: RuleLog, marks: Mapping[str, Marks]) -> Iterator[Change]:
    """Yield what entries come to, each rule once; `log` is as they left it, and `marks` are those of its domains.
    Raises RulesError."""
    domains = log.domains
    last = {(change.domain, change.kind, change.path): change for entry in entries for change in entry.changes}
    changed = dict.fromkeys(domain for domain, _, _ in last)
    yield from (Delete(name) for name in changed if name not in domains)
    for change in last.values():
        if change.domain in domains and change.kind is RecordKind.RULE:
            yield from _change(change)
    rules = [(name, path) for name, kind, path in last if kind is RecordKind.RULE and name in domains]
    for name, slot in dict.fromkeys((name, content.slot_of(path)) for name, path in rules):
        if slot is not None:
            yield Reorder(name, SlotOrder(*slot, tuple(log.order(name, slot))))
    # Last: staged rules lie over the rules in force.
    marked = {domain for domain, kind, _ in last if kind is not RecordKind.RULE} | marks.keys()
    yield from (DomainMarks(name, marks.get(name, NO_MARKS)) for name in changed if name in marked and name in domains)


def _change(change: RuleChange) -> Iterator[Change]:
    if not change.path:
        said: dict[str, Any] = load(change.rule or b"{}")
        limits = said.get("request_limits")
        yield DomainSettings(change.domain, said.get("shard_by", ""), None if limits is None else RequestLimits(limits))
    elif change.rule is None:
        yield Delete(change.domain, change.path)
    elif (rule := rule_content(change)) is not None:
        yield Put(change.domain, change.path, rule)
