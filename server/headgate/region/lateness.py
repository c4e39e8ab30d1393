"""Lateness of a shard: whether most of those who ask it have given up waiting when it answers.

A shard that answers every call, and each one too late, fails nobody's call and everybody's request: each waits for its
deadline and goes by policy then. One late answer says nothing; most questions of a second do. Nothing is counted while
nobody's deadline passes, and time is passed in.
"""

import math
from typing import Final

SECOND_S: Final = 1.0
LEAST: Final = 5
"""Questions of a second that missed their deadlines, below which there is no share to speak of."""


class Lateness:
    """The questions to one shard that were not answered by their requests' deadlines, second by second."""

    __slots__ = ("_asked_before", "_began_s", "_missed", "_most_share")

    def __init__(self, most_share: float) -> None:
        self._most_share = most_share
        """The share of a second's questions that may miss their deadlines."""
        self._began_s = -math.inf
        """The time at which the second that is looked at began, with the first that missed its deadline in it."""
        self._asked_before = 0
        self._missed = 0

    def missed(self, asked: int, now_s: float) -> str:
        """Take in that a question missed its deadline, and that so many were asked so far, in all.

        Returns, when a second is over in which too many did, how many that were; else nothing.
        """
        if now_s >= self._began_s + 2 * SECOND_S:
            self._begin(asked, now_s)  # it is not of the second that was looked at
        self._missed += 1
        if now_s < self._began_s + SECOND_S:
            return ""
        missed, of = self._missed, max(self._missed, asked - self._asked_before)
        self._begin(asked, now_s)
        if missed < LEAST or missed <= self._most_share * of:
            return ""
        return f"{missed} of {of} requests missed their deadline within a second"

    def _begin(self, asked: int, now_s: float) -> None:
        self._began_s, self._asked_before, self._missed = now_s, asked, 0
