"""Causes of one decision: its figures and what was going on, as causes, the one that matters first.

A cause is named only where the outcome would have been another without it: a limit that was lowered, if the old one had
room; other regions' counts, if the rest fits without them. So more than one may be named, the largest first.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from headgate.decision_log.explain.history import Change, EventHistory
from headgate.decision_log.explain.surroundings import apart_since_ms
from headgate.decision_log.schema import DecisionRecord, Event, Flag
from headgate.limiter.rule_name import REQUEST_RULE


class CauseKind(StrEnum):
    """Reasons that may be to blame."""

    LIMIT_LOWERED = "limit_lowered"
    RULE_ADDED = "rule_added"
    ANOTHER_RULE = "another_rule_applies"
    WINDOW_CHANGED = "window_changed"
    OVERRIDE = "override"
    BLOCKED = "blocked"
    REGIONAL_PART = "regional_part"
    SHARD_AWAY = "shard_away"
    SHARD_SLOW = "shard_slow"
    NO_COUNTER = "no_room_for_counter"
    LIVE_NODES = "live_nodes"
    FOREIGN_USAGE = "foreign_usage"
    OTHER_NODES = "other_nodes"
    PREVIOUS_WINDOW = "previous_window"
    OWN_USAGE = "own_usage"
    BURST_USED_UP = "burst_used_up"
    ALWAYS_DENIED = "limit_is_zero"
    COST_ABOVE_LIMIT = "cost_above_limit"
    REQUEST_LIMIT = "limit_in_request"
    ANOTHER_DESCRIPTOR = "another_descriptor"
    SHADOW_RULE = "shadow_rule"
    SHADOW_MODE = "shadow_mode"
    QUOTA_MODE = "quota_mode"
    NODE_RESTARTED = "node_restarted"
    KEY_RESET = "key_reset"
    REGIONS_APART = "regions_apart"
    NOT_ITS_TURN = "not_its_turn"
    WITHIN_LIMIT = "within_limit"


@dataclass(frozen=True, slots=True)
class Cause:
    """One reason, with the figures that show it."""

    kind: CauseKind
    facts: dict[str, Any] = field(default_factory=dict)


NEVER: Final = (CauseKind.BLOCKED, CauseKind.ALWAYS_DENIED, CauseKind.COST_ABOVE_LIMIT)
"""Causes that no waiting helps against."""
BY_POLICY: Final = (CauseKind.SHARD_AWAY, CauseKind.SHARD_SLOW, CauseKind.NO_COUNTER)
"""Return the cause where no count decided."""
DEGRADED: Final = "degraded_"
_USAGE: Final = (
    (CauseKind.FOREIGN_USAGE, "foreign"),
    (CauseKind.OTHER_NODES, "others"),
    (CauseKind.PREVIOUS_WINDOW, "previous_weight"),
)


def causes_of(record: DecisionRecord, request: Sequence[DecisionRecord], history: EventHistory) -> list[Cause]:
    """The causes of one limit's part in a decision; `request` has all limits that the request met."""
    found: list[Cause] = []
    if not record.over:
        found += _had_room(record, request, history)
    else:
        found += _let_through(record, history)
        found += _degraded(record, history) if record.path.startswith(DEGRADED) else _over(record, history)
    return found


def _had_room(record: DecisionRecord, request: Sequence[DecisionRecord], history: EventHistory) -> list[Cause]:
    """It was within this limit: then another one denied it, or it was admitted."""
    if not record.allowed:
        others = [other for other in request if other.over and not other.shadow and other is not record]
        return [Cause(CauseKind.ANOTHER_DESCRIPTOR, {"rules": [other.rule.id for other in others]})]
    causes = _degraded(record, history) if record.path.startswith(DEGRADED) else []
    restart = history.restart(record)
    if restart is not None:
        causes.append(Cause(CauseKind.NODE_RESTARTED, {"at_ms": restart.time_ms}))
    reset = history.reset(record)
    if reset is not None:
        by = {name: reset.fields.get(name) for name in ("who", "why")}
        causes.append(Cause(CauseKind.KEY_RESET, {"at_ms": reset.time_ms, **by}))
    apart_ms = apart_since_ms(record, history) if record.terms.scope == "global" else None
    if apart_ms is not None:
        causes.append(Cause(CauseKind.REGIONS_APART, {"since_ms": apart_ms, "foreign": record.foreign}))
    return causes or [Cause(CauseKind.WITHIN_LIMIT)]


def _let_through(record: DecisionRecord, history: EventHistory) -> list[Cause]:
    """It had no room, and was admitted all the same."""
    if not record.allowed:
        return []
    if record.shadow:
        server_wide = history.server_shadow(record) and not history.rule_is_shadow(record)
        return [Cause(CauseKind.SHADOW_MODE if server_wide else CauseKind.SHADOW_RULE)]
    return [Cause(CauseKind.QUOTA_MODE)] if record.flags & Flag.QUOTA else []


def _degraded(record: DecisionRecord, history: EventHistory) -> list[Cause]:
    """A failure policy decided."""
    policy = {"on_error": record.terms.on_error, "shard": record.shard}
    if record.flags & Flag.NO_COUNTER:
        return [Cause(CauseKind.NO_COUNTER, policy)]
    breaker = history.breaker(record)
    causes: list[Cause] = []
    if breaker is not None:
        since = {"since_ms": breaker.time_ms, "reason": breaker.fields.get("reason", "")}
        causes.append(Cause(CauseKind.SHARD_AWAY, {**policy, **since}))
    elif record.flags & Flag.SHARD_AWAY:
        causes.append(Cause(CauseKind.SHARD_AWAY, policy))
    else:
        causes.append(Cause(CauseKind.SHARD_SLOW, policy))
    weighted = record.terms.on_error in ("local", "open") and record.live_nodes > 1
    if weighted and record.over and record.counted + record.cost <= record.capacity:
        causes.append(Cause(CauseKind.LIVE_NODES, {"live_nodes": record.live_nodes}))
    return causes


def _over(record: DecisionRecord, history: EventHistory) -> list[Cause]:
    """The counts had no room."""
    if record.rule.id == REQUEST_RULE:
        return [Cause(CauseKind.REQUEST_LIMIT, {"limit": record.terms.limit}), *_usage(record)]
    block = history.block(record) if record.terms.limit == 0 else None
    if block is not None:
        return [_blocked(block)]
    change = history.change(record)
    causes = [] if change is None else _by_change(record, change)
    causes += _enforced(record, history)
    if record.terms.limit == 0:
        return [*causes, Cause(CauseKind.ALWAYS_DENIED)]
    if record.cost > record.capacity:
        facts = {"cost": record.cost, "most": record.capacity}
        return [*causes, Cause(CauseKind.COST_ABOVE_LIMIT, facts)]
    return [*causes, *_usage(record)]


def _blocked(block: Event) -> Cause:
    """An operator had shut the caller out."""
    entry = str(block.fields.get("key", "")).partition(": ")[2]
    by = {name: block.fields.get(name) for name in ("who", "why")}
    at_ms = block.number("made_ms", block.time_ms)
    return Cause(CauseKind.BLOCKED, {"entry": entry, "at_ms": at_ms, "until_ms": block.number("until_ms", 0), **by})


def _by_change(record: DecisionRecord, change: Change) -> list[Cause]:
    """New rules came into force lately, and what they say of this descriptor differs."""
    facts: dict[str, Any] = {"at_ms": change.at_ms, "version": change.version, "version_before": change.version_before}
    if change.before is None:
        return [Cause(CauseKind.RULE_ADDED, facts)]
    before = change.before
    facts |= {"limit_before": before.limit, "limit": record.terms.limit, "rule_before": change.rule_before}
    alike = (before.window_ms, before.algorithm) == (record.terms.window_ms, record.terms.algorithm)
    if alike and record.counted + record.cost > before.capacity:
        return []  # the old rules would have had no room either
    if change.rule_before != record.rule.id:
        return [Cause(CauseKind.ANOTHER_RULE, facts)]
    if not alike:
        return [Cause(CauseKind.WINDOW_CHANGED, {**facts, "window_ms_before": before.window_ms})]
    return [Cause(CauseKind.LIMIT_LOWERED, facts)] if before.capacity > record.capacity else []


def _enforced(record: DecisionRecord, history: EventHistory) -> list[Cause]:
    """This node enforced another number than the rule says."""
    stated = history.stated(record)
    if stated is None or stated.limit == record.terms.limit or record.counted + record.cost > stated.capacity:
        return []
    facts: dict[str, Any] = {"stated": stated.limit, "enforced": record.terms.limit}
    if record.terms.scope in ("cell", "quota"):
        active = history.active_regions(record)
        return [Cause(CauseKind.REGIONAL_PART, {**facts, "scope": record.terms.scope, "active_regions": active})]
    override = history.override(record)
    if override is not None:
        facts |= {"at_ms": override.time_ms, "who": override.fields.get("who"), "why": override.fields.get("why")}
    return [Cause(CauseKind.OVERRIDE, facts)]


def _usage(record: DecisionRecord) -> list[Cause]:
    """Name who used the limit up: those without whom it would have fitted, the largest first."""
    excess = record.counted + record.cost - record.capacity
    if excess <= 0:
        return [Cause(CauseKind.NOT_ITS_TURN, {"counted": record.counted, "most": record.capacity})]
    if record.terms.algorithm == "gcra":
        return [Cause(CauseKind.BURST_USED_UP, {"used": record.counted, "burst": record.terms.burst})]
    parts = {"foreign": record.foreign, "others": record.others, "previous_weight": record.previous_weight}
    found = [(parts[name], kind) for kind, name in _USAGE if parts[name] and parts[name] >= excess]
    found.sort(key=lambda item: -item[0])
    causes = [Cause(kind, {"counted": amount}) for amount, kind in found if amount >= record.own]
    own = Cause(CauseKind.OWN_USAGE, {"counted": record.own})
    rest = [Cause(kind, {"counted": amount}) for amount, kind in found if amount < record.own]
    return [*causes, own, *rest] if record.own or not causes else [*causes, *rest]
