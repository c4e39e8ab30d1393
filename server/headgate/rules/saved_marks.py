"""Marks of a domain as plain values, for the disk."""

from typing import Any

from headgate.limiter.rule_name import Steps
from headgate.limiter.shadows import Shadow
from headgate.rules.content import fields_of
from headgate.rules.marks import NO_MARKS, Marks, Rollout, SlotOrder
from headgate.rules.one_rule import read_rule


def marks_json(marks: Marks) -> dict[str, Any] | None:
    """Write marks; None where there are none."""
    if marks == NO_MARKS:
        return None
    rollout = marks.rollout
    return {
        "total": f"{marks.total:x}",
        "rollout": None if rollout is None else _rollout_json(rollout),
        "shadows": [[shadow.path, shadow.until_ms] for shadow in marks.shadows],
    }


def _rollout_json(rollout: Rollout) -> dict[str, Any]:
    return {
        "name": rollout.name,
        "share": rollout.share,
        "changes": [[path, None if rule is None else fields_of(rule)] for path, rule in rollout.changes],
        "orders": [[order.above, order.key, order.patterns] for order in rollout.orders],
    }


def marks_of(domain: str, said: dict[str, Any] | None) -> Marks:
    """Read what `marks_json` wrote. Raises RulesError for a rule that no file may have."""
    if said is None:
        return NO_MARKS
    rollout = said["rollout"]
    shadows = tuple(Shadow(steps_of(path), int(until_ms)) for path, until_ms in said["shadows"])
    return Marks(None if rollout is None else _rollout(domain, rollout), shadows, int(said["total"], 16))


def _rollout(domain: str, said: dict[str, Any]) -> Rollout:
    changes = [
        (path := steps_of(item), None if fields is None else read_rule(domain, path, fields))
        for item, fields in said["changes"]
    ]
    orders = [
        SlotOrder(steps_of(above), str(key), tuple(map(str, patterns))) for above, key, patterns in said["orders"]
    ]
    return Rollout(str(said["name"]), int(said["share"]), tuple(changes), tuple(orders))


def steps_of(path: list[Any]) -> Steps:
    """Read a path."""
    return tuple((str(key), str(value)) for key, value in path)
