"""From a descriptor to the limit key that it meets, and to the limit in force: what every operation begins with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from headgate.errors import BadRequest, NotFound
from headgate.limiter.limit import Limit
from headgate.limiter.overrides import Entries, Overrides
from headgate.limiter.scopes import LimitsOfRegion
from headgate.rules.ruleset import RuleSet
from headgate.v1 import keys_pb2 as pb

MAX_ENTRIES: Final = 32
"""Entries of a descriptor: as many as a request may have."""


@dataclass(frozen=True, slots=True)
class NamedKey:
    """A limit key and all that is known of it before anybody is asked."""

    domain: str
    entries: Entries
    rule: str
    key: bytes
    shard_key: bytes
    """Key that chooses its shard."""
    rule_limit: Limit
    """The rule's own limit."""
    limit: Limit
    """The limit in force in this region: after overrides, and divided among regions where its scope says so."""

    @property
    def text(self) -> str:
        """For messages and the log."""
        return describe(self.domain, self.entries)


def describe(domain: str, entries: Entries) -> str:
    """A descriptor, for people."""
    return f"{domain}: " + ",".join(f"{name}={value}" for name, value in entries)


class KeyNames:
    """Finds the limit key of a descriptor under the rules of now."""

    def __init__(self, rules: Callable[[], RuleSet], limits: LimitsOfRegion, overrides: Overrides) -> None:
        self._rules = rules
        self._limits = limits
        self._overrides = overrides

    def find(self, domain: str, entries: Entries) -> NamedKey | None:
        """None: no rule of now has a counter for it."""
        rules = self._rules()
        match = rules.match(domain, entries)
        if match is None or match.limit.unlimited:
            return None
        in_force = self._limits.bind(self._overrides.limit_of(match.key, match.limit))
        shard_key = rules.domains[domain].shard_key(entries) or match.key
        return NamedKey(domain, entries, match.rule, match.key, shard_key, match.limit, in_force)

    def name(self, key: pb.Key) -> NamedKey:
        """Raises BadRequest for what is no descriptor, NotFound where no rule counts it."""
        entries = entries_of(key)
        found = self.find(key.domain, entries)
        if found is not None:
            return found
        rules = self._rules()
        if not rules.has_domain(key.domain):
            raise NotFound(f"no rule file has the domain {key.domain!r}")
        match = rules.match(key.domain, entries)
        what = "the rule is `unlimited`, so nothing is counted" if match is not None else "no rule with a limit matches"
        raise NotFound(f"{describe(key.domain, entries)}: {what}; `headgate rules explain` says why")


def entries_of(key: pb.Key) -> Entries:
    """Checked. Raises BadRequest."""
    if not key.domain:
        raise BadRequest("key.domain: must not be empty")
    if not key.entries:
        raise BadRequest("key.entries: at least one is needed: a limit key is named by a descriptor")
    if len(key.entries) > MAX_ENTRIES:
        raise BadRequest(f"key.entries: {len(key.entries)}, at most {MAX_ENTRIES} are accepted")
    for index, entry in enumerate(key.entries):
        if not entry.key:
            raise BadRequest(f"key.entries[{index}].key: must not be empty")
    return tuple([(entry.key, entry.value) for entry in key.entries])


def key_message(domain: str, entries: Entries) -> pb.Key:
    return pb.Key(domain=domain, entries=[pb.Entry(key=name, value=value) for name, value in entries])


def limit_message(limit: Limit) -> pb.Limit:
    return pb.Limit(
        requests_per_unit=limit.requests_per_unit,
        window_ms=limit.window_ms,
        algorithm=limit.algorithm.value,
        burst=limit.burst,
        precision=limit.precision,
        scope=limit.scope_in_force.value,
    )
