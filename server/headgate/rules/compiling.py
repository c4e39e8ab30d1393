"""From text to domains. A domain is compiled from its files as a whole, and again only if one of them changed.

Every problem of every file is found. A domain with a problem is given as its problems, the others as they are: which of
it comes into force is the store's matter.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from headgate.limiter.limit import Limit
from headgate.limiter.rule_name import Steps
from headgate.rules.content import (
    added,
    form_of,
    order_number,
    rule_head,
    rule_number,
    settings_number,
)
from headgate.rules.defaults import defaults_of
from headgate.rules.laying import lay, report
from headgate.rules.model import RuleContent
from headgate.rules.overlay import OverlayEntry, OverlayReport
from headgate.rules.overlay_reader import read_overlay
from headgate.rules.pace import Pace
from headgate.rules.problems import Problem, RulesError
from headgate.rules.reader import FileRules, read_file
from headgate.rules.ruleset import NO_RULES, Domain, RuleSet, Under, rule_set
from headgate.rules.sharding import split_counters
from headgate.rules.source import DEFAULTS, FileId, RulesSource, SourceFile
from headgate.rules.tree import Leaves, Level, LevelBuilder, unpack_place


@dataclass(frozen=True, slots=True)
class FileOutcome:
    """Outcome of one file by itself."""

    domain: str
    """Empty: it does not get as far as its domain."""
    problems: tuple[Problem, ...] = ()
    """Those of a file without a domain; of others the domain has them."""


@dataclass(frozen=True, slots=True)
class DomainOutcome:
    """Outcome of all files of a domain together: the domain, or problems."""

    files: tuple[FileId, ...]
    """The files, and the layers that concern the domain."""
    domain: Domain | None
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Compiled:
    """Outcome of a source, file by file and domain by domain."""

    files: Mapping[FileId, FileOutcome]
    domains: Mapping[str, DomainOutcome]
    """Outcomes by the names of the domains, in the order of their first files."""

    overlay: OverlayReport = field(default_factory=OverlayReport)
    overlay_problems: tuple[Problem, ...] = ()
    """Those that the overlay has by itself."""

    def problems(self) -> list[Problem]:
        """All of them, domain by domain."""
        found = [problem for outcome in self.domains.values() for problem in outcome.problems]
        return found + [problem for outcome in self.files.values() for problem in outcome.problems]


NOTHING = Compiled({}, {})


def compile_source(source: RulesSource, pace: Pace, *, merge_domains: bool) -> RuleSet:
    """The rule set of these files, with the overlay over it; raises with every problem of every file.

    Where the overlay makes no sense with a rule, the rule is as it would be without it: the set's `overlay` says so.
    """
    compiled = compile_changed(source, NOTHING, NO_RULES, pace, merge_domains=merge_domains)
    order = {file.path: number for number, file in enumerate(source.files)}
    problems = sorted(compiled.problems(), key=lambda problem: order[problem.file])
    if problems or compiled.overlay_problems:
        raise RulesError([*compiled.overlay_problems, *problems])
    domains = {name: outcome.domain for name, outcome in compiled.domains.items() if outcome.domain is not None}
    return rule_set(domains).under(compiled.overlay, tuple(file for file in source.files if file.is_layer))


def compile_changed(
    source: RulesSource, before: Compiled, in_force: RuleSet, pace: Pace, *, merge_domains: bool
) -> Compiled:
    """Compile the domains that have other files or layers than `before`, and than in force; the others are as there."""
    entries, problems = read_overlay(source.overlay)
    reading = _FileReading(source, before, in_force, entries, pace)
    files = {file.id: reading.outcome(file) for file in source.rules}
    by_domain: dict[str, list[SourceFile]] = {}
    for file in source.rules:
        if domain := files[file.id].domain:
            by_domain.setdefault(domain, []).append(file)
    domains = {
        domain: reading.known(domain, own) or _joined(domain, own, reading, merge_domains=merge_domains)
        for domain, own in by_domain.items()
    }
    made = [outcome.domain for outcome in domains.values() if outcome.domain is not None]
    return Compiled(files, domains, report(entries, made), tuple(problems))


class _FileReading:
    """Files as they are read, each at most once."""

    def __init__(
        self,
        source: RulesSource,
        before: Compiled,
        in_force: RuleSet,
        entries: Sequence[OverlayEntry],
        pace: Pace,
    ) -> None:
        self._before = before
        self._rules = in_force
        self.entries = entries
        self.defaults = defaults_of(source.defaults)
        self._layers = [file.id for file in source.files if file.is_layer]
        self._in_force = {file.id: domain.name for domain in in_force.domains.values() for file in domain.files}
        self.pace = pace
        self.leaves = Leaves()
        self._read: dict[FileId, FileRules] = {}
        self.numbers = {file.id: number for number, file in enumerate(source.rules)}
        """Numbers of the files, which stand in the places of rules."""

    def outcome(self, file: SourceFile) -> FileOutcome:
        """Tell the domain of a file, without reading one that is known."""
        if file.problem is not None:
            return FileOutcome("", (file.problem,))
        if (known := self._before.files.get(file.id)) is not None:
            return known
        if (domain := self._in_force.get(file.id)) is not None:
            return FileOutcome(domain)
        rules = self.rules(file)
        return FileOutcome(rules.domain, () if rules.domain else tuple(rules.problems))

    def layers_of(self, domain: str) -> tuple[FileId, ...]:
        """Tell the layers that concern a domain: the defaults, and the overlay if an entry is of it."""
        overlaid = any(entry.domain.matches(domain) for entry in self.entries)
        return tuple(layer for layer in self._layers if overlaid or layer[0] == DEFAULTS)

    def known(self, domain: str, own: list[SourceFile]) -> DomainOutcome | None:
        """Find the outcome of the same files and layers, of the last time or of when they came into force."""
        layers = self.layers_of(domain)
        ids = (*(file.id for file in own), *layers)
        known = self._before.domains.get(domain)
        if known is not None and known.files == ids:
            return known
        serving = self._rules.domain(domain)
        if serving is not None and (*(file.id for file in serving.files), *serving.under.layers) == ids:
            return DomainOutcome(ids, serving)
        return None

    def rules(self, file: SourceFile) -> FileRules:
        """Read a file, unless it has been read."""
        rules = self._read.get(file.id)
        if rules is None:
            data = file.data
            self.pace.begin_file(file.path, len(data))
            number = self.numbers[file.id]
            rules = read_file(
                file.path, data, number=number, leaves=self.leaves, pace=self.pace, defaults=self.defaults
            )
            self._read[file.id] = rules
        return rules


def _joined(domain: str, files: list[SourceFile], reading: _FileReading, *, merge_domains: bool) -> DomainOutcome:
    """Compile one domain of its files."""
    layers = reading.layers_of(domain)
    ids = (*(file.id for file in files), *layers)
    read = [reading.rules(file) for file in files]
    paths = {reading.numbers[file.id]: file.path for file in files}
    problems = [problem for rules in read for problem in rules.problems]
    builder = _join(read, paths, problems, merge_domains=merge_domains)
    shard_by: str = _join_field(read, problems, "shard_by") or ""
    request_limits = _join_field(read, problems, "request_limits")
    # A level with problems is not whole: what it would come to is looked at when they are mended.
    level = {} if problems else builder.finish()
    if shard_by:
        problems += _problems_at(paths, split_counters(level, shard_by, reading.pace.breathe))
    if problems:
        return DomainOutcome(ids, None, tuple(problems))
    laid = lay(
        reading.entries,
        reading.leaves,
        domain,
        level,
        defaults=reading.defaults,
        where=partial(_where, paths),
        tick=reading.pace.tick,
    )
    level = laid.level
    made = Domain(
        domain,
        level,
        total=added(content_total(level, reading.pace), settings_number(shard_by, request_limits)),
        count=sum(rules.count for rules in read),
        shard_by=shard_by,
        request_limits=request_limits,
        files=tuple(files),
        paths=paths,
        under=Under(layers, laid.clashes, laid.met),
    )
    return DomainOutcome(ids, made)


def _where(paths: Mapping[int, str], place: int) -> str:
    number, line = unpack_place(place)
    return f"{paths[number]}:{line}"


def _problems_at(paths: Mapping[int, str], found: Iterable[tuple[int, str]]) -> list[Problem]:
    problems = []
    for place, reason in found:
        number, line = unpack_place(place)
        problems.append(Problem(paths[number], line, reason))
    return sorted(problems)


def _join(
    read: Sequence[FileRules], paths: Mapping[int, str], problems: list[Problem], *, merge_domains: bool
) -> LevelBuilder:
    """Put the rules of a domain's files together."""
    first = read[0]
    for rules in read[1:]:
        if merge_domains:
            problems += _collisions(first.rules, rules, paths)
        else:
            reason = (
                f"domain `{rules.domain}` is defined in {first.path} already:"
                " one domain, one file, unless merge_domains is set"
            )
            problems.append(Problem(rules.path, rules.domain_line, reason))
    return first.rules


def _join_field(read: Sequence[FileRules], problems: list[Problem], name: str) -> Any:
    """Value of one top-level field; files that differ in it are a problem."""
    said = [rules for rules in read if getattr(rules, name)]
    for rules in said[1:]:
        first = said[0]
        if getattr(first, name) != getattr(rules, name):
            reason = f"`{name}` is `{getattr(first, name)}` in {first.path} already: one domain, one `{name}`"
            problems.append(Problem(rules.path, getattr(rules, f"{name}_line"), reason))
    return getattr(said[0], name) if said else None


def _collisions(level: LevelBuilder, rules: FileRules, paths: Mapping[int, str]) -> list[Problem]:
    problems = []
    for rule, place, first in level.merge(rules.rules):
        first_file, first_line = unpack_place(first)
        reason = f"duplicate descriptor `{rule}`, first at {paths[first_file]}:{first_line}"
        problems.append(Problem(rules.path, unpack_place(place)[1], reason))
    return sorted(problems)


def content_total(level: Level, pace: Pace) -> int:
    """Sum the numbers of all rules of a tree, and of the orders of its wildcards."""
    return _Sum(pace).level(level, ())


class _Sum:
    def __init__(self, pace: Pace) -> None:
        self._breathe = pace.breathe
        self._fields: dict[tuple[int, bool], bytes] = {}
        """Canonical form by the limit's identity, and sharing: rules by the thousand have one limit."""

    def level(self, level: Level, above: Steps) -> int:
        total = 0
        for key, slot in level.items():
            head = rule_head(above, key)
            total = added(total, order_number(above, key, [wildcard.pattern for wildcard in slot.ordered]))
            for value, node, _, shared in slot.rules():
                if node.is_rule:
                    total = added(total, rule_number(head, value, self._canonical(node.limit, shared=shared)))
                if node.children is not None:
                    total = added(total, self.level(node.children, (*above, (key, value))))
                self._breathe()
        return total

    def _canonical(self, limit: Limit | None, *, shared: bool) -> bytes:
        name = (id(limit), shared)
        fields = self._fields.get(name)
        if fields is None:
            fields = self._fields[name] = form_of(RuleContent(limit, shared))
        return fields
