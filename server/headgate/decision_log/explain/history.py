"""Finds out what was going on around one decision: rules in force before, breakers that were open, restarts."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Final

from headgate.decision_log.names import terms_of
from headgate.decision_log.reader import LogView
from headgate.decision_log.schema import DecisionRecord, Event, LimitTerms
from headgate.limiter.decision import Entries
from headgate.limiter.limit import Limit, Unit
from headgate.rules.model import Match
from headgate.rules.ruleset import RuleSet

RECENT_MS: Final = 600_000
"""A change of the rules is worth naming for so long, or for two windows of the rule, whichever is longer."""

CLOCKS_APART_MS: Final = 1_000
"""Events are of the node's clock and decisions of the shard's: one that seems so much later may have come before."""


@dataclass(frozen=True, slots=True)
class Change:
    """The rules that decided were new, and said something else of this descriptor than those before."""

    at_ms: int
    version: str
    version_before: str
    before: LimitTerms | None
    """Terms that applied before; None: nothing did."""
    rule_before: str


class EventHistory:
    """The events of all logs, and what follows from them for a decision."""

    def __init__(self, view: LogView, events: Sequence[Event], entries: Entries) -> None:
        """`entries`: the descriptor that is asked about; empty where it is not known."""
        self._view = view
        self.events = events
        self._entries = entries

    def around(self, record: DecisionRecord, window_ms: int) -> list[Event]:
        """Events of the node that decided, and of its region's others, not long before: later ones led to nothing."""
        since, until = record.time_ms - self._recent_ms(record, window_ms), record.time_ms + CLOCKS_APART_MS
        return [event for event in self.events if since <= event.time_ms <= until]

    def change(self, record: DecisionRecord) -> Change | None:
        """The last change of the rules before the decision, if it is recent and concerns this descriptor."""
        pair = self.versions(record)
        if pair is None or record.time_ms - pair[0].time_ms > self._recent_ms(record):
            return None
        at_ms, version_before = pair[0].time_ms, str(pair[1].fields.get("version", ""))
        old = self._match(record, version_before)
        if old is _UNKNOWN:
            return None
        if old is None:
            return Change(at_ms, record.version, version_before, None, "")
        return Change(at_ms, record.version, version_before, terms_of(old.limit), old.name.id)

    def versions(self, record: DecisionRecord) -> tuple[Event, Event] | None:
        """Events that brought the rules that decided into force, and the other ones before them.

        Which those were, any node of the region can tell: after a restart it may go by another name.
        """
        sets = [event for event in self.of_region(record) if event.kind == "rules_in_force"]
        mine = [event for event in sets if event.source == record.source and _same_set(event, record.version)]
        before = [event for event in sets if mine and event.time_ms <= mine[-1].time_ms]
        other = next((event for event in reversed(before) if not _same_set(event, record.version)), None)
        return None if other is None else (mine[-1], other)

    def breaker(self, record: DecisionRecord) -> Event | None:
        """Since when the shard was not asked, if it was not; None while its breaker was closed."""
        opened: Event | None = None
        for event in self.of_run(record):
            if event.kind != "breaker_changed" or event.fields.get("shard") not in (record.shard, str(record.shard)):
                continue
            if event.fields.get("state") == "closed":
                opened = None
            elif opened is None:
                opened = event
        return opened

    def restart(self, record: DecisionRecord) -> Event | None:
        """The node's last start, if that was within this window or the one before and its counts were lost."""
        starts = [event for event in self._of_node(record) if event.kind == "start"]
        if len(starts) < 2 or starts[-1].fields.get("origin") != "memory":
            return None
        recent = record.time_ms - starts[-1].time_ms <= 2 * record.terms.window_ms
        return starts[-1] if recent else None

    def server_shadow(self, record: DecisionRecord) -> bool:
        """Tell whether the whole server denies nothing."""
        start = _last(self.of_run(record), "start")
        return start is not None and bool(start.fields.get("shadow_mode"))

    def rule_is_shadow(self, record: DecisionRecord) -> bool:
        """Tell whether the rule itself is in shadow mode, by what is known of it."""
        match = self._match(record, record.version)
        return match is not None and match is not _UNKNOWN and match.limit.shadow

    def stated(self, record: DecisionRecord) -> LimitTerms | None:
        """Terms as the rule itself says them; None where that is not known."""
        match = self._match(record, record.version)
        if match is None or match is _UNKNOWN or match.name.id != record.rule.id:
            return None
        return terms_of(match.limit)

    def active_regions(self, record: DecisionRecord) -> int | None:
        """Number of regions that shared limits then; None where nobody said."""
        known, start = [_last(self.of_run(record), kind) for kind in ("active_regions_changed", "start")]
        if known is not None:
            return known.number("active", 1)
        return None if start is None else start.number("regions", 1)

    def override(self, record: DecisionRecord) -> Event | None:
        """The override of this descriptor's limit, if it was done through a node whose log is here."""
        return self._last_of(self._entries or record.entries, record, ("key_overridden",))

    def block(self, record: DecisionRecord) -> Event | None:
        """The block of one of this descriptor's entries that held then on the node that decided."""
        of_run = self.of_run(record)
        for entry in self._entries or record.entries:
            key = _key(record, (entry,))
            known = [e for e in of_run if e.kind in ("block_in_force", "block_ended") and e.fields.get("key") == key]
            if known and known[-1].kind == "block_in_force" and known[-1].number("until_ms", 0) > record.time_ms:
                return known[-1]
        return None

    def reset(self, record: DecisionRecord) -> Event | None:
        """The reset of this descriptor's key, if what that forgot would still have counted."""
        made = self._last_of(self._entries or record.entries, record, ("key_reset",))
        return made if made is not None and made.time_ms >= _counts_since_ms(record) else None

    def dropped(self, since_ms: int, until_ms: int) -> int:
        """Decisions that are missing in that time."""
        events = [event for event in self.events if event.kind == "dropped" and since_ms <= event.time_ms <= until_ms]
        return sum(event.number("decisions", 0) for event in events)

    def rules_at(self, at_ms: int) -> tuple[str, RuleSet] | None:
        """The version in force at a time, and its rules; None where that is not known."""
        in_force = _last([event for event in self.events if event.time_ms <= at_ms], "rules_in_force")
        if in_force is None:
            return None
        version = str(in_force.fields.get("version", ""))
        rules = self._view.rules(version)
        return None if rules is None else (version, rules)

    def _match(self, record: DecisionRecord, version: str) -> "Match | None":
        entries = self._entries or record.entries
        rules = self._view.rules(version)
        if rules is None or not entries:
            return _UNKNOWN
        return rules.match(record.rule.domain, entries)

    def of_run(self, record: DecisionRecord) -> list[Event]:
        """Events of the process that decided, until then."""
        return [e for e in self.events if e.source == record.source and e.time_ms <= record.time_ms]

    def of_region(self, record: DecisionRecord) -> list[Event]:
        """Events of any node of its region, until then."""
        return [e for e in self.events if e.source.region == record.source.region and e.time_ms <= record.time_ms]

    def _of_node(self, record: DecisionRecord) -> list[Event]:
        """Events of the process that decided, and of those before it that had its name or its directory."""
        same = self._view.same_node
        return [e for e in self.events if same(e.source, record.source) and e.time_ms <= record.time_ms]

    def _last_of(self, entries: Entries, record: DecisionRecord, kinds: Collection[str]) -> Event | None:
        """Operators' last change of these kinds to these entries until then, through any node whose log is here."""
        key = _key(record, entries)
        until = [e for e in self.events if e.fields.get("key") == key and e.time_ms <= record.time_ms]
        return next((event for event in reversed(until) if event.kind in kinds), None)

    def _recent_ms(self, record: DecisionRecord, window_ms: int = 0) -> int:
        return max(RECENT_MS, 2 * record.terms.window_ms, window_ms)


_UNKNOWN: Final = Match(Limit(0, Unit.SECOND), b"", "", ())
"""Match in a rule set that nobody kept, or of a descriptor that nobody named."""


def _key(record: DecisionRecord, entries: Entries) -> str:
    """A key as operators' events name it."""
    return f"{record.rule.domain}: " + ",".join([f"{name}={value}" for name, value in entries])


def _last(events: Sequence[Event], kind: str) -> Event | None:
    return next((event for event in reversed(events) if event.kind == kind), None)


def _same_set(event: Event, version: str) -> bool:
    return str(event.fields.get("version", "")).partition("-")[2] == version.partition("-")[2]


def _counts_since_ms(record: DecisionRecord) -> int:
    """Nothing that was admitted before counts any more: of windows, those that are over; of a bucket, it is full."""
    terms = record.terms
    if terms.algorithm == "gcra":
        return record.time_ms - terms.burst * terms.window_ms // max(1, terms.limit)
    windows = 1 if terms.algorithm == "sliding_window" else 0
    return (record.time_ms // terms.window_ms - windows) * terms.window_ms
