"""A compiled rule set: immutable, so that one reference decides one request. Another version shares with it every
domain, and every part of a domain, that is the same in both.

Matching walks a descriptor's entries level by level: the exact value first, then the
wildcards in file order, then the key without a value. It never goes back to try
another branch, and a limit applies only where the last entry ends.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.limiter.limit import Limit
from headgate.limiter.rule_name import Steps, rule_id, steps_text
from headgate.rules.content import added, domain_number, version_of
from headgate.rules.keys import encode_part
from headgate.rules.marks import NO_MARKS, Marks, Side
from headgate.rules.model import Match, RuleContent, Version
from headgate.rules.overlay import OverlayReport
from headgate.rules.problems import Problem
from headgate.rules.request_limits import RequestLimits
from headgate.rules.source import FileId, SourceFile
from headgate.rules.tree import NOWHERE, Level, RuleNode, unpack_place
from headgate.rules.tree_edit import node_at

Trail = tuple[tuple[str, str, str | None], ...]
"""Changes of rules, the latest first: the first step of each path (None: any value of that key), and the version that
they were made to; empty where others behind it were made to the same."""

MOST_TRAIL: Final = 16
"""Changes that are remembered: what happens within a second, at a thousand a minute."""


@dataclass(frozen=True, slots=True)
class Under:
    """The layers of a domain, as far as they concern it, and what came of them."""

    layers: tuple[FileId, ...] = ()
    clashes: tuple[Problem, ...] = ()
    """Entries of the overlay that make no sense with a rule of the domain."""
    met: frozenset[tuple[str, int]] = frozenset()
    """Entries that name a limit of the domain, by file and line."""


class Domain:
    """The rules of one domain, with the bytes that begin each of its limit keys."""

    __slots__ = (
        "count",
        "files",
        "head",
        "level",
        "marks",
        "name",
        "paths",
        "request_limits",
        "shard_by",
        "total",
        "trail",
        "under",
        "version",
    )

    def __init__(
        self,
        name: str,
        level: Level,
        *,
        total: int,
        count: int,
        shard_by: str = "",
        request_limits: RequestLimits | None = None,
        files: tuple[SourceFile, ...] = (),
        paths: Mapping[int, str] | None = None,
        trail: Trail = (),
        under: "Under | None" = None,
    ) -> None:
        self.name = name
        self.level = level
        self.shard_by = shard_by
        """The entry whose value decides the shard of all counters that have it; empty: each counter's own key."""
        self.request_limits = request_limits
        """Policy for limits in requests; None: the server's setting decides."""
        self.head = encode_part(name)
        self.total = total
        """The sum over its content (content.py)."""
        self.version = version_of(total)
        """Names its content: domains of one version decide alike."""
        self.count = count
        """Number of rules with a limit."""
        self.files = files
        """The files that it was made of; none, where its rules came by themselves."""
        self.paths = paths or {}
        """Paths of the files by their numbers in the places of rules; none, where places are not known."""
        self.trail = trail
        """Places of its latest changes, the last one first."""
        self.under = under or Under()
        self.marks: Marks = NO_MARKS
        """Marks that lie over the rules (marked.py)."""

    def shard_key(self, entries: Sequence[tuple[str, str]]) -> bytes | None:
        """Return the value that chooses the shard, where the domain has `shard_by` and the descriptor such an entry."""
        if self.shard_by:
            for key, value in entries:
                if key == self.shard_by:
                    return self.head + encode_part(value)
        return None

    def match(self, entries: Sequence[tuple[str, str]]) -> Match | None:
        """Return the limit where the last entry ends: exact values first, then wildcards, then the key alone."""
        level: Level | None = self.level
        node: RuleNode | None = None
        limit_key = self.head
        steps: list[tuple[str, str]] = []
        for key, value in entries:
            slot = level.get(key) if level is not None else None
            if slot is None:
                return None
            node = slot.values.get(value)
            if node is not None:
                limit_key = limit_key + slot.exact_head + encode_part(value)
                steps.append((slot.key, value))
            elif slot.wildcards is not None and (wildcard := slot.wildcards.find(value)) is not None:
                node = wildcard.node
                limit_key = limit_key + wildcard.head + (b"" if wildcard.shared else encode_part(value))
                steps.append((slot.key, wildcard.pattern))
            else:
                node = slot.any_node
                if node is None:
                    return None
                limit_key = limit_key + slot.any_head + encode_part(value)
                steps.append((slot.key, ""))
            level = node.children
        if node is None or node.limit is None:
            return None
        return Match(node.limit, limit_key + node.tail, self.name, tuple(steps))

    def exempts(self, entries: Sequence[tuple[str, str]]) -> bool:
        """Tell whether a rule applies that has neither a limit nor children: it is there to exempt."""
        level: Level | None = self.level
        node: RuleNode | None = None
        for key, value in entries:
            node = node_below(level, key, value)
            if node is None:
                return False
            level = node.children
        return node is not None and node.limit is None and node.children is None

    def side(self, entries: Sequence[tuple[str, str]]) -> Side | None:
        """Tell which rules decide a request that a rollout concerns; None: none does."""
        return None

    def levels(self) -> tuple[Level, ...]:
        """First levels of all rules that may decide."""
        return (self.level,)

    @property
    def file(self) -> str:
        """The first file that gives the domain; empty where its rules are in no file at hand."""
        return self.files[0].path if self.paths else ""

    def place(self, packed: int) -> str:
        """Place of a rule as `file:line`."""
        if packed == NOWHERE or not self.paths:
            return ""
        number, line = unpack_place(packed)
        return f"{self.paths[number]}:{line}"

    def rules(self) -> Iterator[tuple[Steps, RuleContent]]:
        """Every rule with its path: all that its content has, beside its settings; wildcards of a key in order."""
        for steps, node, _, shared in _walk(self.level, ()):
            if node.is_rule:
                yield steps, RuleContent(node.limit, shared)

    def limits(self) -> Iterator[tuple[Steps, Limit]]:
        """The ways to the rules that have a limit, each with it."""
        for steps, node, _, _ in _walk(self.level, ()):
            if node.limit is not None:
                yield steps, node.limit

    def infos(self) -> Iterator["RuleInfo"]:
        """Every rule that has a limit, as it is shown."""
        for steps, node, place, _ in _walk(self.level, ()):
            limit = node.limit
            if limit is not None:
                text, id_ = steps_text(steps), rule_id(limit.name, steps)
                yield RuleInfo(self.name, text, limit, self.place(place), id_, node.origins)


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """One rule that has a limit, as `GET /rules` and `headgate rules explain` show it."""

    domain: str
    rule: str
    limit: Limit
    place: str
    """`file:line`, or empty where the rule is in no file at hand."""
    id: str
    """Name in metrics, logs and answers: the rule's name, or its place in the tree (limiter/rule_name.py)."""
    origins: Mapping[str, str]
    """Fields of the limit that are not the rule's own: `overlay file:line`, or `setting default_…`."""


class RuleSet:
    """All rules of one version: requests are matched against them."""

    __slots__ = ("_domains", "_marked", "_total", "count", "layers", "overlay", "version")

    def __init__(
        self,
        domains: dict[str, Domain],
        total: int,
        count: int,
        version: Version,
        overlay: OverlayReport | None = None,
        layers: tuple[SourceFile, ...] = (),
        marked: frozenset[str] = frozenset(),
    ) -> None:
        """Use `rule_set`, or `with_domains` of another one."""
        self._domains = domains
        self._total = total
        self.count = count
        """Number of rules with a limit."""
        self.version = version
        self.overlay = overlay or OverlayReport()
        """Outcome of the overlay with these rules."""
        self.layers = layers
        """Files that lie over and under the rules."""
        self._marked = marked
        """Domains that have marks: few, so that nobody has to look at all."""

    @property
    def domains(self) -> Mapping[str, Domain]:
        """The rules of each domain, by its name."""
        return self._domains

    def has_domain(self, domain: str) -> bool:
        """Return true if there are rules of the domain."""
        return domain in self._domains

    def domain(self, name: str) -> Domain | None:
        """Return the rules of a domain; None if it has none."""
        return self._domains.get(name)

    def match(self, domain: str, entries: Sequence[tuple[str, str]]) -> Match | None:
        """Return the limit where the last entry ends, or None: no domain, no rule, or a rule without a limit."""
        root = self._domains.get(domain)
        return None if root is None else root.match(entries)

    def has_rule(self, domain: str, path: Steps | None) -> bool:
        """Say if there is a rule at this path of the domain; without a path, if there is such a domain."""
        rules = self._domains.get(domain)
        if rules is None or path is None:
            return rules is not None
        return any(node_at(level, path) is not None for level in rules.levels())

    def marks(self) -> dict[str, Marks]:
        """Marks of the domains that have any, by name."""
        return {name: self._domains[name].marks for name in self._marked}

    def with_domains(self, changed: Mapping[str, Domain | None]) -> "RuleSet":
        """Make the set in which these domains are as said, and those that are None gone; the others are shared.

        Where the content stays what it was, so does the version.
        """
        domains, total, count = self._domains.copy(), self._total, self.count
        for name, domain in changed.items():
            before = domains.pop(name, None) if domain is None else domains.get(name)
            if before is not None:
                total, count = added(total, -domain_number(name, before.version)), count - before.count
            if domain is not None:
                domains[name] = domain
                total, count = added(total, domain_number(name, domain.version)), count + domain.count
        digest = version_of(total)
        same = digest == self.version.digest
        version = self.version if same else Version(self.version.counter + 1, digest)
        marked = self._marked.difference(changed).union(
            [name for name, domain in changed.items() if domain is not None and domain.marks is not NO_MARKS]
        )
        return RuleSet(domains, total, count, version, self.overlay, self.layers, marked)

    def under(self, overlay: OverlayReport, layers: tuple[SourceFile, ...]) -> "RuleSet":
        """Say of the same rules what lies over and under them."""
        return RuleSet(self._domains, self._total, self.count, self.version, overlay, layers, self._marked)

    def numbered(self, counter: int) -> "RuleSet":
        """Give the same rules another number."""
        version = Version(counter, self.version.digest)
        return RuleSet(self._domains, self._total, self.count, version, self.overlay, self.layers, self._marked)

    def files(self) -> list[SourceFile]:
        """The files of all domains, in the order of their names, and the layers."""
        own = sorted((file for domain in self._domains.values() for file in domain.files), key=lambda file: file.id)
        return [*own, *self.layers]

    def rules(self) -> Iterator[RuleInfo]:
        """Every rule that has a limit; those of a key in file order, if they are few."""
        for domain in self._domains.values():
            yield from domain.infos()


NO_RULES = RuleSet({}, 0, 0, Version(0, version_of(0)))
"""The set without any domain, from which every other one is made."""


def rule_set(domains: Mapping[str, Domain]) -> RuleSet:
    """Make a set of these domains."""
    return NO_RULES.with_domains(domains)


def node_below(level: Level | None, key: str, value: str) -> RuleNode | None:
    """Return the node that one entry leads to, as `Domain.match` goes; None if no rule does."""
    slot = None if level is None else level.get(key)
    if slot is None:
        return None
    if (node := slot.values.get(value)) is not None:
        return node
    wildcard = None if slot.wildcards is None else slot.wildcards.find(value)
    return slot.any_node if wildcard is None else wildcard.node


def _walk(level: Level, above: Steps) -> Iterator[tuple[Steps, RuleNode, int, bool]]:
    """Path, node, place and sharing of every node."""
    for slot in level.values():
        for value, node, place, shared in slot.rules():
            steps = (*above, (slot.key, value))
            yield steps, node, place, shared
            if node.children is not None:
                yield from _walk(node.children, steps)
