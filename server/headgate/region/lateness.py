"""Lateness of a shard: whether most of those whom it was asked for have given up waiting when it answers.

A shard that answers every call, and each one too late, fails nobody's call and everybody's request: each waits for its
deadline and goes by policy then. One late answer says nothing; most questions of a second do. Only questions that were
sent count: those that wait behind others are late by the queue, and a flood of them says nothing about the shard.
Nothing is counted while no answer is late, and time is passed in.
"""

import math
from typing import Final

SECOND_S: Final = 1.0
LEAST: Final = 5
"""Questions of a second that missed their deadlines, below which there is no share to speak of."""


class Lateness:
    """The questions sent to one shard that were not answered by their requests' deadlines, second by second."""

    __slots__ = ("_began_s", "_missed", "_most_share", "_sent_before")

    def __init__(self, most_share: float) -> None:
        self._most_share = most_share
        """The share of a second's questions that may miss their deadlines."""
        self._began_s = -math.inf
        """The time at which the second that is looked at began, with the first late answer in it."""
        self._sent_before = 0
        self._missed = 0

    def missed(self, missed: int, sent: int, now_s: float) -> str:
        """Take in that so many questions of a call missed their deadlines, and that so many were sent so far, in all.

        Returns, when a second is over in which too many did, how many that were; else nothing.
        """
        if now_s >= self._began_s + 2 * SECOND_S:
            self._begin(sent - missed, now_s)  # it is not of the second that was looked at
        self._missed += missed
        if now_s < self._began_s + SECOND_S:
            return ""
        all_missed, of = self._missed, sent - self._sent_before
        self._begin(sent, now_s)
        if all_missed < LEAST or all_missed <= self._most_share * of:
            return ""
        return f"{all_missed} of {of} requests missed their deadline within a second"

    def _begin(self, sent_before: int, now_s: float) -> None:
        self._began_s, self._sent_before, self._missed = now_s, sent_before, 0
