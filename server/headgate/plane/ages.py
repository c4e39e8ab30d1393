"""Ages of followers' rules, as the root reckons them from what they reported and when entries were made."""

from collections.abc import Sequence
from typing import Final

from headgate.plane.entry import FollowerState
from headgate.plane.rule_log import RuleLog

MOST_LOOKS: Final = 100
"""Entries that are looked up: followers that are behind are nearly all behind by the same ones."""


def ages_of(followers: Sequence[FollowerState], log: RuleLog, now_ms: int) -> list[int]:
    """Milliseconds, of each follower, since the first entry was made that it does not have in force; 0: it has all."""
    head, made_ms = log.position.index, dict[int, int]()
    ages: list[int] = []
    for state in followers:
        lacks = min(state.has.index + 1, head)
        if state.has.index >= head:
            since_ms = state.since_ms if state.refused else now_ms
        elif lacks not in made_ms and len(made_ms) < MOST_LOOKS:
            since_ms = made_ms[lacks] = _made_ms(log, lacks)
        else:
            since_ms = made_ms.get(lacks, min(made_ms.values()))
        ages.append(max(0, now_ms - since_ms))
    return ages


def _made_ms(log: RuleLog, index: int) -> int:
    """Time at which an entry was made; of one that is no longer kept, that of the first that is."""
    entries, first = log.history(index + 1, 1)
    if not entries:
        entries, _ = log.history(first + 1, 1)
    return entries[0].made_ms if entries else 0
