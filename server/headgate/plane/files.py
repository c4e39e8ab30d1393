"""A log's rules as a rule store takes them: changes one by one, or a file for each domain."""

from collections.abc import Container, Iterable, Iterator
from typing import Any, Final

from headgate.limiter.rule_name import Steps
from headgate.plane.entry import LogEntry, RuleChange
from headgate.plane.rule_log import RuleLog
from headgate.plane.rule_text import domain_file, load, rule_content
from headgate.rules.changes import Change, Delete, DomainSettings, Put
from headgate.rules.request_limits import RequestLimits
from headgate.rules.source import SourceFile

FOLDER: Final = "plane/"
"""Beginning of the names of files that are domains of a plane."""


class DomainFiles:
    """One file for each domain of a log."""

    def __init__(self, log: RuleLog) -> None:
        self._log = log
        self._made: dict[str, tuple[object, SourceFile]] = {}

    def current(self) -> list[SourceFile]:
        """Return the files of the log as it is now. A thread may call it."""
        domains = dict(self._log.domains)
        stale = [name for name, state in domains.items() if name not in self._made or self._made[name][0] != state]
        rules: dict[str, dict[Steps, bytes]] = {}
        for part in self._log.parts(stale):
            for rule in part.rules:
                rules.setdefault(rule.domain, {})[rule.path] = rule.rule or b""
        self._made = {name: made for name, made in self._made.items() if name in domains}
        for name, texts in rules.items():
            self._made[name] = (domains[name], _file(name, texts))
        return [file for _, file in self._made.values()]


def _file(domain: str, rules: dict[Steps, bytes]) -> SourceFile:
    text = domain_file(domain, {path: load(rule) for path, rule in rules.items()}).text
    return SourceFile(FOLDER + domain, text, FOLDER + domain)


def rule_changes(entries: Iterable[LogEntry], domains: Container[str]) -> Iterator[Change]:
    """Yield what entries come to, each rule once; `domains` are those that there are after them. Raises RulesError."""
    last = {(change.domain, change.path): change for entry in entries for change in entry.changes}
    yield from (Delete(name) for name in {domain for domain, _ in last} if name not in domains)
    for change in last.values():
        if change.domain in domains:
            yield from _change(change)


def _change(change: RuleChange) -> Iterator[Change]:
    if not change.path:
        said: dict[str, Any] = load(change.rule or b"{}")
        limits = said.get("request_limits")
        yield DomainSettings(change.domain, said.get("shard_by", ""), None if limits is None else RequestLimits(limits))
    elif change.rule is None:
        yield Delete(change.domain, change.path)
    elif (rule := rule_content(change)) is not None:
        yield Put(change.domain, change.path, rule)
