"""Bad days of a plane, made from a seed: when rules change, and what breaks."""

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

RELAYS: Final = 2
NODES: Final = 4
LENGTH_S: Final = 40.0
CHANGES: Final = 40
FAULTS: Final = 16


class PlaneFaultKind(StrEnum):
    """Kinds of faults."""

    LOST = "messages are lost"
    REPEATED = "messages come twice"
    LATE = "messages are overtaken"
    CUT_SHORT = "entries and parts lose their last change"
    PARTITION = "nothing gets through"
    CRASH = "a process is killed, and comes back with its disk"
    WIPE = "a process is killed, and comes back without its disk"
    ROOT_CRASH = "the root is killed, and comes back with its disk"
    REFUSING = "a node can't take one domain"


@dataclass(frozen=True, slots=True)
class PlaneFault:
    """One fault: from when on, for how long, and of which follower."""

    kind: PlaneFaultKind
    at_s: float
    for_s: float
    follower: int
    """Index among relays and nodes; of the path to whoever it follows, where the fault is one of messages."""


@dataclass(frozen=True, slots=True)
class PlaneHistory:
    """One day: its seed, its faults, the times of changes, and whether a relay is made the root."""

    seed: int
    faults: tuple[PlaneFault, ...]
    changes_s: tuple[float, ...]
    promoted_s: float | None
    """Time at which the root is lost for good and the first relay is made the root."""


def generate(seed: int) -> PlaneHistory:
    """Draw a day. The same seed is the same day."""
    chance = random.Random(f"plane {seed}")  # noqa: S311 - to be repeated, not guessed at
    faults = tuple(_fault(chance) for _ in range(chance.randint(0, FAULTS)))
    changes = tuple(sorted(round(chance.uniform(0, LENGTH_S), 3) for _ in range(CHANGES)))
    promoted_s = round(chance.uniform(10, LENGTH_S - 5), 3) if seed % 5 == 4 else None
    return PlaneHistory(seed, faults, changes, promoted_s)


def _fault(chance: random.Random) -> PlaneFault:
    at_s, for_s = round(chance.uniform(0, LENGTH_S - 5), 3), round(chance.uniform(1, 12), 3)
    return PlaneFault(chance.choice(list(PlaneFaultKind)), at_s, for_s, chance.randrange(RELAYS + NODES))
