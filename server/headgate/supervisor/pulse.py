"""Whether a worker's loop still turns: it says so twice a second, over the channel.

Its sockets say nothing of that: the kernel accepts for a process that is stopped, or that
spins. The supervisor looks as often as a worker speaks, and counts its looks rather than the
time: a supervisor that was stopped itself, with its workers or without, blames nobody for that.
"""

BEAT_S = 0.5
"""How often a worker speaks, and the supervisor looks. A line of ten bytes each."""
MOST_MISSED = 5
"""Looks in a row without a word. A loop that is held up for that long, 2.5 to 3 s, answers nobody; killing it and
starting another takes a second or two more, so that callers are served again within 5 s."""

MOST_MISSED_STARTING = 240
"""The same for one that starts: it loads, and may compile many rules, for as long as that takes in one go; two minutes
are many times what the largest sets of rules take. One that is killed too early would never start."""


class WorkerPulse:
    """One worker's signs of life, as the supervisor counts them."""

    def __init__(self) -> None:
        self._missed = 0

    def heard(self) -> None:
        """It spoke."""
        self._missed = 0

    def look(self, most_missed: int = MOST_MISSED) -> bool:
        """Whether with this look it counts as hanging: true once, until it is heard again."""
        self._missed += 1
        return self._missed == most_missed + 1


def no_sign_of_life(most_missed: int) -> str:
    """Why a worker was ended after so many looks."""
    return f"it hung: no sign of life for {BEAT_S * (most_missed + 1):g} s"
