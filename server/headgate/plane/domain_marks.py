"""Marks of a domain, from the records of a log: its rollout with the staged rules, and its shadows."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from headgate.limiter.shadows import Shadow
from headgate.plane import content
from headgate.plane.entry import GONE, RecordKind, RuleChange
from headgate.plane.rule_text import rule_content
from headgate.rules.marks import NO_MARKS, Marks, Rollout, SlotOrder
from headgate.rules.model import RuleContent

Slots = Mapping[content.Slot, Mapping[str, int]]
"""Places of the patterns in force, by slot."""


def marks_of(records: Sequence[RuleChange], slots: Slots) -> Marks:
    """Read the marks of one domain. `slots` has those of which a staged rule is one. Raises RulesError."""
    if not records:
        return NO_MARKS
    numbers = [content.number(record.kind, record.path, record.rule) for record in records]
    staged = [record for record in records if record.kind is RecordKind.STAGED]
    shadows = tuple(
        Shadow(record.path, _fields(record)["until_ms"]) for record in records if record.kind is RecordKind.SHADOW
    )
    return Marks(_rollout(staged, slots) if staged else None, shadows, content.added(0, *numbers))


def staged_slots(records: Iterable[RuleChange]) -> list[content.Slot]:
    """Slots whose patterns a rollout changes."""
    staged = [record.path for record in records if record.kind is RecordKind.STAGED]
    return list(dict.fromkeys(slot for path in staged if (slot := content.slot_of(path)) is not None))


def _rollout(staged: Sequence[RuleChange], slots: Slots) -> Rollout | None:
    said = next((_fields(record) for record in staged if not record.path), None)
    if said is None:
        return None
    rules = [record for record in staged if record.path]
    changes = tuple((record.path, _rule(record)) for record in rules if not _leads_on(record))
    orders = tuple(SlotOrder(*slot, tuple(_order(slot, rules, slots.get(slot, {})))) for slot in staged_slots(rules))
    return Rollout(str(said["rollout"]), int(said["share"]), changes, orders)


def _rule(record: RuleChange) -> RuleContent | None:
    return None if record.rule == GONE else rule_content(record)


def _leads_on(record: RuleChange) -> bool:
    """Say if the record has nothing of its own: a pattern that only leads on to others has a place, and no rule."""
    return bool(_fields(record).get(content.LEADS_ON))


def _order(slot: content.Slot, rules: Sequence[RuleChange], in_force: Mapping[str, int]) -> list[str]:
    places = dict(in_force)
    for record in rules:
        if content.slot_of(record.path) != slot:
            continue
        pattern = record.path[-1][1]
        if record.rule == GONE:
            places.pop(pattern, None)
        else:
            places[pattern] = content.place_of(record.rule or b"{}")
    return content.in_order(places)


def _fields(record: RuleChange) -> dict[str, Any]:
    fields: dict[str, Any] = json.loads(record.rule or b"{}")
    return fields
