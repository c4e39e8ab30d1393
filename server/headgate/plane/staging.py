"""Records that a call comes to: what goes into force at once, what is staged, and how rollouts go on and end.

If all that a call changes in a domain is looser, or makes no difference, it is in force at once. Else the whole change
of that domain is staged: a rule that is replaced by another must not be gone before the other is there. Rules in force
stay as they are meanwhile, and the staged ones stand beside them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from headgate.errors import Misconfigured
from headgate.limiter.rule_name import Steps, steps_text
from headgate.plane.codec import MOST_ROLLOUTS
from headgate.plane.content import number
from headgate.plane.effect import tighter
from headgate.plane.entry import GONE, Position, RecordKind, RuleChange
from headgate.plane.marks import DEFAULT_PLAN, RolloutRecord, StagePlan, without
from headgate.plane.records import MOST_MARKS, Records
from headgate.plane.rule_log import Author

MOST_STAGED_BYTES: Final = 8 * 1024 * 1024
"""Bytes of a rollout's rules: the entry that ends it names each twice, and is one message."""
NO_OWN_FIELDS: Final = b"{}"


@dataclass(frozen=True, slots=True)
class ChangeCall:
    """A call that changes rules: who makes it, and how it is to come into force."""

    author: Author
    plan: StagePlan = DEFAULT_PLAN
    now: bool = False
    """For everybody at once."""


def records_of(records: Records, changes: Sequence[RuleChange], call: ChangeCall, head: Position) -> list[RuleChange]:
    """Records to put and delete for these changes of rules. Raises Misconfigured where they can't be made now."""
    by_domain: dict[str, list[RuleChange]] = {}
    for change in {(change.domain, change.path): change for change in changes}.values():
        if records.rule(change.domain, change.path) != change.rule:
            by_domain.setdefault(change.domain, []).append(change)
    return [
        record for domain, changed in by_domain.items() for record in _of_domain(records, domain, changed, call, head)
    ]


def _of_domain(
    records: Records, domain: str, changes: Sequence[RuleChange], call: ChangeCall, head: Position
) -> Iterable[RuleChange]:
    rollout = records.rollout(domain)
    if _changes_own_fields(records, domain, changes):
        _check_own_fields(domain, call, rollout)
    reason = None if call.now else tighter(records, domain, changes)
    if reason is None:
        return _at_once(records, domain, changes)
    if rollout is not None:
        return _again(records, rollout, changes, reason)
    return _staged(records, changes, _begun(records, domain, call, head))


def _changes_own_fields(records: Records, domain: str, changes: Sequence[RuleChange]) -> bool:
    """Return true if a domain that was there, and stays, is to have other fields of its own."""
    own = next((change for change in changes if not change.path), None)
    if own is None or _is_new(records, domain) or _is_emptied(records, domain, changes):
        return False
    was = records.rule(domain, ())
    return number(RecordKind.RULE, (), was) != number(RecordKind.RULE, (), own.rule)


def _check_own_fields(domain: str, call: ChangeCall, rollout: RolloutRecord | None) -> None:
    if rollout is not None:
        raise Misconfigured(f"{domain}: its own fields can't be changed while a rollout is under way, {rollout}")
    if not call.now:
        raise Misconfigured(
            f"{domain}: `shard_by` and `request_limits` change for everybody at once: change them by themselves, with "
            "--now"
        )


def _is_new(records: Records, domain: str) -> bool:
    return not records.of_kind(domain, RecordKind.RULE, 1)


# At once


def _at_once(records: Records, domain: str, changes: Sequence[RuleChange]) -> Iterator[RuleChange]:
    """Changes of rules in force, which are no longer staged then."""
    yield from changes
    if _is_emptied(records, domain, changes):
        yield from map(without, records.of_kind(domain, RecordKind.STAGED, MOST_MARKS))
        yield from map(without, records.of_kind(domain, RecordKind.SHADOW, MOST_MARKS))
        return
    if records.rollout(domain) is None:
        return
    paths = [change.path for change in changes if change.path]
    passed = [path for path in paths if records.record(domain, RecordKind.STAGED, path) is not None]
    yield from (RuleChange(domain, path, None, RecordKind.STAGED) for path in passed)
    if passed and len(records.of_kind(domain, RecordKind.STAGED, len(passed) + 2)) == len(passed) + 1:
        yield RuleChange(domain, (), None, RecordKind.STAGED)


def _is_emptied(records: Records, domain: str, changes: Sequence[RuleChange]) -> bool:
    """Return true if no rule of the domain is left."""
    if any(change.rule is not None for change in changes):
        return False
    deleted = {change.path for change in changes}
    return all(rule.path in deleted for rule in records.of_kind(domain, RecordKind.RULE, len(deleted) + 1))


# In stages


def _begun(records: Records, domain: str, call: ChangeCall, head: Position) -> RolloutRecord:
    under_way = records.rollouts()
    if len(under_way) >= MOST_ROLLOUTS:
        raise Misconfigured(f"{MOST_ROLLOUTS} rollouts are under way, and there may be no more: wait, or say --now")
    plan, author, index = call.plan, call.author, head.index + 1
    return RolloutRecord(
        domain,
        f"{head.plane}.{index}",
        share=plan.stages[0],
        stages=plan.stages,
        stage_ms=plan.stage_ms,
        stage_began_ms=author.now_ms,
        stage_index=index,
        expect_denials=plan.expect_denials,
        who=author.who,
        why=author.why,
        began_ms=author.now_ms,
        began_index=index,
    )


def _staged(records: Records, changes: Sequence[RuleChange], rollout: RolloutRecord) -> Iterator[RuleChange]:
    size = sum(len(change.rule or b"") for change in changes)
    if size > MOST_STAGED_BYTES:
        raise Misconfigured(
            f"{rollout.domain}: changes of {size} bytes are too large for a rollout, which takes {MOST_STAGED_BYTES}: "
            "make several calls, or say --now"
        )
    own = [change for change in changes if not change.path]
    yield from own or ([RuleChange(rollout.domain, (), NO_OWN_FIELDS)] if _is_new(records, rollout.domain) else [])
    yield rollout.record()
    yield from (_as_staged(change) for change in changes if change.path)


def _as_staged(change: RuleChange) -> RuleChange:
    return RuleChange(change.domain, change.path, GONE if change.rule is None else change.rule, RecordKind.STAGED)


def _again(
    records: Records, rollout: RolloutRecord, changes: Sequence[RuleChange], reason: str
) -> Sequence[RuleChange]:
    """Nothing, if the rollout that is under way is of these very changes. Raises Misconfigured."""
    _, *staged = records.of_kind(rollout.domain, RecordKind.STAGED, MOST_MARKS)
    if set(staged) == {_as_staged(change) for change in changes}:
        return ()
    raise Misconfigured(
        f"{rollout.domain}: a rollout is under way, {rollout}, since entry {rollout.began_index}. This change is "
        f"tighter ({reason}), and would be another: wait, end it with `headgate rules rollback`, or say --now"
    )


# Going on


def at_share(rollout: RolloutRecord, share: int, now_ms: int, head: Position) -> list[RuleChange]:
    """Records with which a rollout goes on to its next stage."""
    return [replace(rollout, share=share, stage_began_ms=now_ms, stage_index=head.index + 1).record()]


def put_into_force(records: Records, rollout: RolloutRecord) -> list[RuleChange]:
    """Records with which a rollout ends: its rules are in force for everybody."""
    marks = records.of_kind(rollout.domain, RecordKind.STAGED, MOST_MARKS)
    rules = [
        RuleChange(mark.domain, mark.path, None if mark.rule == GONE else mark.rule) for mark in marks if mark.path
    ]
    return [*rules, *map(without, marks)]


def taken_back(records: Records, rollout: RolloutRecord) -> list[RuleChange]:
    """Records with which a rollout ends as if it had not been."""
    return [without(mark) for mark in records.of_kind(rollout.domain, RecordKind.STAGED, MOST_MARKS)]


# Shadows


def check_shadow(records: Records, domain: str, path: Steps) -> None:
    """Check that a shadow lies over something, in force or staged. Raises Misconfigured."""
    if records.record(domain, RecordKind.SHADOW, path) is not None or (
        records.of_kind(domain, RecordKind.RULE, 1)
        if not path
        else records.rule(domain, path) is not None
        or records.below(domain, path, 1)
        or records.record(domain, RecordKind.STAGED, path) is not None
    ):
        return
    raise Misconfigured(f"{domain}: there is no rule {steps_text(path)}" if path else f"there is no domain {domain!r}")
