"""Finds out what else was going on when a decision was made, whether or not it is to blame.

Two kinds: states that lasted (a breaker was open, a region was not reached, new rules had been refused), however long
ago they had begun, and changes of not long before (new rules, another number of nodes, a restart, a shard that had
lost its memory or whose clock was set).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from headgate.decision_log.explain.history import EventHistory
from headgate.decision_log.schema import NO_SHARD, DecisionRecord, Event


class Surrounding(StrEnum):
    """States and changes around a decision."""

    BREAKER_OPEN = "breaker_open"
    REGION_UNREACHED = "region_unreached"
    REGIONS_NOT_HEARD = "regions_not_heard"
    RULES_REFUSED = "rules_refused"
    RULES_NOT_DELIVERED = "rules_not_delivered"
    LAST_GOOD_RULES = "last_good_rules"
    RULES_CHANGED = "rules_changed"
    NODE_STARTED = "node_started"
    LIVE_NODES_CHANGED = "live_nodes_changed"
    SHARD_LOST_MEMORY = "shard_lost_memory"
    SHARD_CLOCK_SET = "shard_clock_set"


@dataclass(frozen=True, slots=True)
class Ongoing:
    """One thing that went on, since when, and what is to be said of it."""

    kind: Surrounding
    since_ms: int
    facts: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"kind": self.kind.value, "since_ms": self.since_ms, **self.facts}


def going_on(record: DecisionRecord, history: EventHistory, window_ms: int) -> list[Ongoing]:
    """All of it, by when it began."""
    since_ms = record.time_ms - window_ms
    own = history.of_run(record)
    found = [*_breakers(own), *_unreached(history.of_region(record)), *_not_heard(own), *_refused(own)]
    found += [change for change in _changes(record, history, own) if change.since_ms >= since_ms]
    return sorted(found, key=lambda one: one.since_ms)


def apart_since_ms(record: DecisionRecord, history: EventHistory) -> int | None:
    """Since when this region and another one did not hear each other; None while they did."""
    states = [*_unreached(history.of_region(record)), *_not_heard(history.of_run(record))]
    return min((one.since_ms for one in states), default=None)


def _breakers(own: list[Event]) -> list[Ongoing]:
    """Shards that the process which decided did not ask."""
    changes = [event for event in own if event.kind == "breaker_changed"]
    opened = _lasting(changes, "shard", lambda event: event.fields.get("state") != "closed")
    shards = {event.number("shard", NO_SHARD): event for event in opened.values()}
    return [_ongoing(Surrounding.BREAKER_OPEN, event, shard=shard) for shard, event in shards.items()]


def _unreached(region: list[Event]) -> list[Ongoing]:
    """Other regions, by whoever of this region speaks to them."""
    changes = [event for event in region if event.kind in ("peer_failed", "peer_connected")]
    failed = _lasting(changes, "region", lambda event: event.kind == "peer_failed")
    return [_ongoing(Surrounding.REGION_UNREACHED, event, region=other) for other, event in failed.items()]


def _lasting(changes: list[Event], name: str, begins: Callable[[Event], bool]) -> dict[str, Event]:
    """Find what began and has not ended, each by the value of its field `name`, and the event with which it began."""
    found: dict[str, Event] = {}
    for event in changes:
        value = str(event.fields.get(name, ""))
        if begins(event):
            found.setdefault(value, event)
        else:
            found.pop(value, None)
    return found


def _ongoing(kind: Surrounding, event: Event, **facts: Any) -> Ongoing:
    return Ongoing(kind, event.time_ms, {**facts, "reason": event.fields.get("reason")})


def _not_heard(own: list[Event]) -> list[Ongoing]:
    since: Event | None = None
    for event in own:
        if event.kind == "active_regions_changed":
            missing = event.number("active", 1) < event.number("of", 1)
            since = event if missing else None
    if since is None:
        return []
    facts = {"active": since.fields.get("active"), "of": since.fields.get("of")}
    return [Ongoing(Surrounding.REGIONS_NOT_HEARD, since.time_ms, facts)]


def _refused(own: list[Event]) -> list[Ongoing]:
    """Rules that were not taken, or not delivered, or rules from before a start, until others came into force."""
    kinds = {
        "rules_refused": Surrounding.RULES_REFUSED,
        "rules_not_delivered": Surrounding.RULES_NOT_DELIVERED,
        "serving_last_good_rules": Surrounding.LAST_GOOD_RULES,
    }
    found: dict[Surrounding, Ongoing] = {}
    for event in own:
        if event.kind in kinds:
            kind = kinds[event.kind]
            found.setdefault(kind, Ongoing(kind, event.time_ms, {"version": event.fields.get("version")}))
        elif event.kind == "rules_unchanged" or _is_new_set(event):
            found.clear()
    return list(found.values())


def _is_new_set(event: Event) -> bool:
    return event.kind == "rules_in_force" and event.fields.get("source") != "snapshot"


def _changes(record: DecisionRecord, history: EventHistory, own: list[Event]) -> Iterator[Ongoing]:
    pair = history.versions(record)
    if pair is not None:
        current, before = pair
        facts: dict[str, Any] = {"version": record.version, "version_before": str(before.fields.get("version", ""))}
        yield Ongoing(Surrounding.RULES_CHANGED, current.time_ms, facts)
    live_nodes: int | None = None
    for event in own:
        if event.kind == "start":
            yield Ongoing(Surrounding.NODE_STARTED, event.time_ms, {"node": event.source.node})
        elif event.kind == "live_nodes":
            now = event.number("live_nodes", 0)
            yield Ongoing(
                Surrounding.LIVE_NODES_CHANGED, event.time_ms, {"live_nodes": now, "live_nodes_before": live_nodes}
            )
            live_nodes = now
        elif event.kind == "shard_lost_memory":
            yield _ongoing(Surrounding.SHARD_LOST_MEMORY, event, shard=event.fields.get("shard"))
        elif event.kind == "shard_clock_set":
            facts = {"shard": event.fields.get("shard"), "by_ms": event.fields.get("by_ms")}
            yield Ongoing(Surrounding.SHARD_CLOCK_SET, event.time_ms, facts)
