"""Rollouts that go on by themselves, without I/O and without a clock: `now_ms` is given.

A rollout goes through its stages, and then its rules are in force for everybody. It goes on when the stage has lasted
as long as it is to, nobody halted it, and every follower that is there has the stage in force and can take the domain.
If the staged rules deny more callers than was said, it is taken back, halted or not.

Followers count decisions since they know of the rollout. A count that went back is that of a process that began anew:
what was counted before stays. So does the count of whoever left.
"""

from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from headgate.limiter.limit import MILLION
from headgate.percentages import percent
from headgate.plane.codec import MOST_FOLLOWERS, MOST_ROLLOUTS
from headgate.plane.entry import FollowerState, RolloutCounts
from headgate.plane.marks import RolloutRecord

ENOUGH_DECIDED: Final = 1_000
"""Decisions by staged rules from which on their denials are judged."""
ENOUGH_DENIED: Final = 10
"""Denials from which on they are judged although decisions are few, once a stage has lasted `FEW_FOR_MS`."""
FEW_FOR_MS: Final = 30_000
MOST_NAMED: Final = 5
"""Followers that are named among those that are waited for."""


class RolloutEnd(StrEnum):
    """Ends of a rollout."""

    DONE = "done"
    ROLLED_BACK = "rolled_back"
    CANCELLED = "cancelled"


class Standing(StrEnum):
    """States of a rollout that is under way."""

    RUNNING = "running"
    HALTED = "halted"
    WAITING = "waiting"
    """Its time has come, and a follower is behind, or can't take the domain."""


@dataclass(frozen=True, slots=True)
class Move:
    """The next step of a rollout: another share, or its end."""

    rollout: RolloutRecord
    why: str
    share: int = MILLION
    outcome: RolloutEnd | None = None


def next_move(
    rollout: RolloutRecord, counts: RolloutCounts, followers: Sequence[FollowerState], now_ms: int
) -> Move | None:
    """Return what is to be done about a rollout now; None: nothing."""
    if (reason := denies_too_much(rollout, counts, now_ms)) is not None:
        return Move(rollout, reason, outcome=RolloutEnd.ROLLED_BACK)
    if not _is_due(rollout, now_ms) or waits_for(rollout, followers, now_ms):
        return None
    share, figures = rollout.next_share, figures_of(counts)
    if share is None:
        return Move(rollout, f"all stages passed: {figures}", outcome=RolloutEnd.DONE)
    return Move(rollout, f"to {percent(share)}: {figures}", share)


def _is_due(rollout: RolloutRecord, now_ms: int) -> bool:
    return not rollout.halted and now_ms - rollout.stage_began_ms >= rollout.stage_ms


def waits_for(rollout: RolloutRecord, followers: Sequence[FollowerState], now_ms: int) -> str:
    """Say whom a rollout waits for although its time has come; empty: nobody."""
    if not _is_due(rollout, now_ms):
        return ""
    reasons = [reason for state in followers if (reason := _why_behind(rollout, state))]
    more = f" and {len(reasons) - MOST_NAMED} others" if len(reasons) > MOST_NAMED else ""
    return ", ".join(reasons[:MOST_NAMED]) + more


def _why_behind(rollout: RolloutRecord, state: FollowerState) -> str:
    for refusal in state.refused:
        if refusal.domain == rollout.domain:
            return f"{state.name} (refuses it: {refusal.reason})"
    return f"{state.name} (at entry {state.has.index})" if state.has.index < rollout.stage_index else ""


def standing(rollout: RolloutRecord, followers: Sequence[FollowerState], now_ms: int) -> Standing:
    """Say how a rollout stands."""
    if rollout.halted:
        return Standing.HALTED
    return Standing.WAITING if waits_for(rollout, followers, now_ms) else Standing.RUNNING


# The gate


def denies_too_much(rollout: RolloutRecord, counts: RolloutCounts, now_ms: int) -> str | None:
    """Say by how much staged rules deny more than was said; None: they don't, or too little is known."""
    few = now_ms - rollout.stage_began_ms >= FEW_FOR_MS and counts.staged_denied >= ENOUGH_DENIED
    if counts.staged_decided < ENOUGH_DECIDED and not few:
        return None
    more = _share(counts.staged_denied, counts.staged_decided) - _share(counts.base_denied, counts.base_decided)
    if more <= rollout.expect_denials:
        return None
    expected = percent(rollout.expect_denials)
    return f"denies {percent(more)} more than the rules in force, and {expected} was expected: {figures_of(counts)}"


def _share(denied: int, decided: int) -> int:
    return MILLION * denied // decided if decided else 0


def figures_of(counts: RolloutCounts) -> str:
    """Write counts for people."""
    return (
        f"denied {counts.staged_denied} of {counts.staged_decided} by the staged rules, "
        f"{counts.base_denied} of {counts.base_decided} by those in force"
    )


# Counts


@dataclass(slots=True)
class _Tally:
    """Counts of one rollout."""

    total: RolloutCounts
    last: "OrderedDict[str, RolloutCounts]" = field(default_factory=OrderedDict)
    """Latest counts of each follower, those that left among them; the one that reported longest ago comes first."""

    def add(self, name: str, counts: RolloutCounts) -> None:
        known = self.last.pop(name, None)
        self.last[name] = counts
        if len(self.last) > MOST_FOLLOWERS:
            self.last.popitem(last=False)
        began_anew = known is None or any(now < then for now, then in zip(_four(counts), _four(known), strict=True))
        before = (0, 0, 0, 0) if known is None or began_anew else _four(known)
        sums = (sum_ + now - then for sum_, now, then in zip(_four(self.total), _four(counts), before, strict=True))
        self.total = RolloutCounts(counts.domain, counts.rollout, *sums)


def _four(counts: RolloutCounts) -> tuple[int, int, int, int]:
    return counts.staged_decided, counts.staged_denied, counts.base_decided, counts.base_denied


class RolloutTallies:
    """Counts of all followers, by rollout."""

    def __init__(self) -> None:
        self._tallies: dict[tuple[str, str], _Tally] = {}

    def report(self, states: Iterable[FollowerState]) -> None:
        """Take in what followers counted."""
        for state in states:
            for counts in state.rollouts:
                name = (counts.domain, counts.rollout)
                if name not in self._tallies and len(self._tallies) < 2 * MOST_ROLLOUTS:
                    self._tallies[name] = _Tally(RolloutCounts(*name))
                if name in self._tallies:
                    self._tallies[name].add(state.name, counts)

    def of(self, domain: str, rollout: str) -> RolloutCounts:
        """Return the counts of a rollout."""
        tally = self._tallies.get((domain, rollout))
        return RolloutCounts(domain, rollout) if tally is None else tally.total

    def keep(self, rollouts: Iterable[RolloutRecord]) -> None:
        """Forget all rollouts but these, which are under way."""
        names = {(rollout.domain, rollout.rollout) for rollout in rollouts}
        self._tallies = {name: tally for name, tally in self._tallies.items() if name in names}
