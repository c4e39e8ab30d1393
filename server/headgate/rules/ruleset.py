"""A compiled rule set: immutable, so that one reference decides one request.

Matching walks a descriptor's entries level by level: the exact value first, then the
wildcards in file order, then the key without a value. It never goes back to try
another branch, and a limit applies only where the last entry ends.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from headgate.limiter.limit import Limit
from headgate.limiter.rule_name import Steps, rule_id, steps_text
from headgate.rules.keys import encode_part
from headgate.rules.model import Match, Version
from headgate.rules.overlay import OverlayReport
from headgate.rules.request_limits import RequestLimits
from headgate.rules.tree import NOWHERE, KeySlot, Level, RuleNode, unpack_place


class Domain:
    """The rules of one domain, with the bytes that begin each of its limit keys."""

    __slots__ = ("head", "level", "name", "request_limits", "shard_by")

    def __init__(
        self, name: str, level: Level, shard_by: str = "", request_limits: RequestLimits | None = None
    ) -> None:
        self.name = name
        self.level = level
        self.shard_by = shard_by
        """The entry whose value decides the shard of all counters that have it; empty: each counter's own key."""
        self.request_limits = request_limits
        """Policy for limits in requests; None: the server's setting decides."""
        self.head = encode_part(name)

    def shard_key(self, entries: Sequence[tuple[str, str]]) -> bytes | None:
        """Return the value that chooses the shard, where the domain has `shard_by` and the descriptor such an entry."""
        if self.shard_by:
            for key, value in entries:
                if key == self.shard_by:
                    return self.head + encode_part(value)
        return None


@dataclass(frozen=True, slots=True)
class RuleInfo:
    """One rule that has a limit, as `GET /rules` and `headgate rules explain` show it."""

    domain: str
    rule: str
    limit: Limit
    place: str
    """`file:line`, or empty when the set came from a snapshot."""
    id: str
    """Name in metrics, logs and answers: the rule's name, or its place in the tree (limiter/rule_name.py)."""
    origins: Mapping[str, str]
    """Fields of the limit that are not the rule's own: `overlay file:line`, or `setting default_…`."""


class RuleSet:
    """All rules of one version: requests are matched against them."""

    __slots__ = ("_domains", "_files", "count", "file_domains", "nodes", "origins", "overlay", "version")

    def __init__(
        self,
        domains: Mapping[str, Domain],
        nodes: Sequence[RuleNode],
        version: Version,
        count: int,
        files: Sequence[str] = (),
        file_domains: Sequence[str] = (),
        origins: Mapping[int, Mapping[str, str]] | None = None,
        overlay: OverlayReport | None = None,
    ) -> None:
        self._domains = dict(domains)
        self.nodes = nodes
        """Nodes by number; exact values of slots refer to them."""
        self._files = tuple(files)
        self.file_domains = tuple(file_domains)
        """Domain that each file of the source gives, in their order; none when the set came from a snapshot."""
        self.version = version
        self.count = count
        """Number of rules with a limit."""
        self.origins: Mapping[int, Mapping[str, str]] = origins or {}
        """Fields of limits that are not their rules' own, and where they come from, by the numbers of nodes."""
        self.overlay = overlay or OverlayReport()
        """Outcome of the overlay with these rules."""

    @property
    def domains(self) -> Mapping[str, Domain]:
        """The rules of each domain, by its name."""
        return self._domains

    def has_domain(self, domain: str) -> bool:
        """Return true if any file names the domain."""
        return domain in self._domains

    def domain(self, name: str) -> Domain | None:
        """Return the rules of a domain; None if no file names it."""
        return self._domains.get(name)

    def match(self, domain: str, entries: Sequence[tuple[str, str]]) -> Match | None:
        """Return the limit where the last entry ends, or None: no domain, no rule, or a rule without a limit."""
        root = self._domains.get(domain)
        return None if root is None else self.match_in(root, entries)

    def match_in(self, root: Domain, entries: Sequence[tuple[str, str]]) -> Match | None:
        """Match in one domain: exact values first, then wildcards, then the key alone."""
        level: Level | None = root.level
        node: RuleNode | None = None
        limit_key = root.head
        steps: list[tuple[str, str]] = []
        nodes = self.nodes
        for key, value in entries:
            slot = level.get(key) if level is not None else None
            if slot is None:
                return None
            number = slot.values.get(value)
            if number is not None:
                node = nodes[number]
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
        return Match(node.limit, limit_key + node.tail, root.name, tuple(steps))

    def node_below(self, level: Level | None, key: str, value: str) -> RuleNode | None:
        """Return the node that one entry leads to, as `match_in` goes; None if no rule does."""
        slot = None if level is None else level.get(key)
        if slot is None:
            return None
        if (number := slot.values.get(value)) is not None:
            return self.nodes[number]
        wildcard = None if slot.wildcards is None else slot.wildcards.find(value)
        return slot.any_node if wildcard is None else wildcard.node

    def exempts(self, root: Domain, entries: Sequence[tuple[str, str]]) -> bool:
        """Tell whether a rule applies that has neither a limit nor children: it is there to exempt."""
        level: Level | None = root.level
        node: RuleNode | None = None
        for key, value in entries:
            node = self.node_below(level, key, value)
            if node is None:
                return False
            level = node.children
        return node is not None and node.limit is None and node.children is None

    def place(self, packed: int) -> str:
        """Place of a rule as `file:line`."""
        if packed == NOWHERE or not self._files:
            return ""
        file_index, line = unpack_place(packed)
        return f"{self._files[file_index]}:{line}"

    def file_of(self, domain: str) -> str:
        """The first file that gives a domain; empty when the set came from a snapshot."""
        given = zip(self._files, self.file_domains, strict=False)
        return next((file for file, its_domain in given if its_domain == domain), "")

    def rules(self) -> Iterator[RuleInfo]:
        """Every rule that has a limit, in file order within its key."""
        for domain in self._domains:
            yield from self.rules_of(domain)

    def rules_of(self, domain: str) -> Iterator[RuleInfo]:
        """One domain's rules that have a limit, without a walk through those of others; KeyError if it has none."""
        for steps, node, place in _walk(self.nodes, self._domains[domain].level, ()):
            limit = node.limit
            if limit is not None:
                text, id_ = steps_text(steps), rule_id(limit.name, steps)
                yield RuleInfo(domain, text, limit, self.place(place), id_, self.origins.get(node.number, {}))

    def steps_of(self, domain: str) -> Iterator[Steps]:
        """The ways to one domain's rules that have a limit; KeyError if there is no such domain."""
        for steps, _ in self.limits_of(domain):
            yield steps

    def limits_of(self, domain: str) -> Iterator[tuple[Steps, Limit]]:
        """The ways to one domain's rules that have a limit, each with it; KeyError if there is no such domain."""
        for steps, node, _ in _walk(self.nodes, self._domains[domain].level, ()):
            if node.limit is not None:
                yield steps, node.limit


def _walk(nodes: Sequence[RuleNode], level: Level, parent: Steps) -> Iterator[tuple[Steps, RuleNode, int]]:
    for slot in level.values():
        for value, node, place in rules_of_slot(nodes, slot):
            steps = (*parent, (slot.key, value))
            yield steps, node, place
            if node.children is not None:
                yield from _walk(nodes, node.children, steps)


def rules_of_slot(nodes: Sequence[RuleNode], slot: KeySlot) -> Iterator[tuple[str, RuleNode, int]]:
    """Value, node and place of each rule of a key, in the order in which they are tried."""
    places = slot.places or [NOWHERE] * len(slot.values)
    for (value, number), place in zip(slot.values.items(), places, strict=True):
        yield value, nodes[number], place
    for item in slot.wildcards.ordered if slot.wildcards is not None else ():
        yield item.pattern, item.node, item.place
    if slot.any_node is not None:
        yield "", slot.any_node, slot.any_place
