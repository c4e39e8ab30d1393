"""Decisions of a simulated node, and what they should be.

A node brings entries into force as the serving one does: as changes where they lead to the version that they name, else
as a whole. What it should decide is worked out from the same records without any of that: a rule set of the base rules
alone, one of the staged ones alone, and the hash of the limit key.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import blake2b
from json import loads
from typing import Any, Final

from headgate.clock import SystemClock
from headgate.limiter.rule_name import Steps
from headgate.plane.entry import GONE, LogEntry, RecordKind, RuleChange
from headgate.plane.files import DomainFiles, rule_changes
from headgate.plane.rule_log import RuleLog
from headgate.plane.rule_text import domain_file
from headgate.rules.acceptance import accepted
from headgate.rules.changes import changed
from headgate.rules.compiling import NOTHING, compile_changed, compile_source
from headgate.rules.model import Match
from headgate.rules.pace import Pace
from headgate.rules.ruleset import NO_RULES, Domain, RuleSet
from headgate.rules.source import RulesSource, SourceFile

Records = frozenset[RuleChange]
MILLION: Final = 1_000_000


class NodeRules:
    """The rules of one node."""

    def __init__(self) -> None:
        self.current = NO_RULES

    def take(self, log: RuleLog, entry: LogEntry | None, refused: str | None) -> None:
        """Bring into force what the copy has, but for a domain that can't be taken."""
        before = self.current
        rules = None if entry is None else _changed(before, log, entry)
        if rules is None or rules.version.digest != log.position.version:
            rules = _whole(log)
        if refused is not None:
            rules = rules.with_domains({refused: before.domain(refused)})
        self.current = rules


def _changed(rules: RuleSet, log: RuleLog, entry: LogEntry) -> RuleSet | None:
    if rules.version.digest != entry.predecessor:
        return None
    return changed(rules, rule_changes([entry], log, log.read_marks()[1]))


def _whole(log: RuleLog) -> RuleSet:
    _, source = DomainFiles(log).current()
    compiled = compile_changed(source, NOTHING, NO_RULES, Pace(SystemClock()), merge_domains=False)
    return accepted(compiled, NO_RULES, (), source.marks, ())


@dataclass(frozen=True, slots=True)
class Expected:
    """The two versions of a domain, each by itself, and the share of the staged one."""

    base: Domain | None
    staged: Domain | None
    rollout: str = ""
    share: int = 0

    def match(self, entries: Iterable[tuple[str, str]]) -> Match | None:
        """Return the limit that a request should meet."""
        given = list(entries)
        base, staged = (None if domain is None else domain.match(given) for domain in (self.base, self.staged))
        if not self.rollout:
            return base
        key = base.key if base is not None else staged.key if staged is not None else None
        if key is None:
            return None
        name = self.rollout.encode()
        hashed = int.from_bytes(blake2b(b"%d:" % len(name) + name + key, digest_size=8).digest()) / 2**64
        return staged if hashed < self.share / MILLION else base


def expected(domain: str, records: Records) -> Expected:
    """Work out what a domain of these records should decide."""
    base = {record.path: record.rule for record in records if record.kind is RecordKind.RULE}
    staged = {record.path: record.rule for record in records if record.kind is RecordKind.STAGED}
    rollout: dict[str, Any] = loads(staged.pop((), None) or b"{}")
    if not rollout:
        return Expected(_compiled(domain, base), None)
    after = {path: rule for path, rule in (base | staged).items() if rule != GONE}
    return Expected(_compiled(domain, base), _compiled(domain, after), rollout["rollout"], rollout["share"])


def _compiled(domain: str, rules: dict[Steps, bytes | None]) -> Domain | None:
    text = domain_file(domain, {path: loads(rule or b"{}") for path, rule in rules.items()}).text
    source = RulesSource((SourceFile(domain, text, domain),))
    return compile_source(source, Pace(SystemClock()), merge_domains=False).domain(domain)
