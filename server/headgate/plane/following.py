"""The follower's side of a stream, without I/O and without a clock: `now_s` is given.

A caller tells what happened (`connected`, `received`) and then asks what to send (`requests`). One stream follows
another; a machine lives through all of them. What it holds of the log is a copy's (`Copy`): a log in a database of its
own, of a relay as of a node.

- An entry is taken if it is the next one, and leads to the version that it names. One that was taken before is nothing.
  Anything else asks for a new beginning, and so does a part that is not the next one.
- A copy that has nothing is filled with all rules, and not with the history that led to them: a follower that begins
  never has a version that was over when it came.
- Nothing that is older than what the follower has is taken: not an entry, and not a snapshot. What a later log says
  counts more than what an earlier one did.
- A copy is fresh when a beat says that it has the end of the log, as of when the beat's sender knew it; while something
  of it is not in force it is not, whatever beats say.
"""

from collections.abc import Sequence
from typing import Final, Protocol

from headgate.errors import BadRequest
from headgate.plane.entry import (
    NOWHERE,
    Beat,
    FollowerHello,
    FollowerState,
    FromFollower,
    FromPlane,
    LogEntry,
    Position,
    Report,
    RuleChange,
    RulesPart,
)

REPORT_S: Final = 1.0
"""Least seconds between two reports."""
REPEAT_S: Final = 10.0
"""Seconds after which a report is repeated although nothing changed."""
AGAIN_S: Final = 1.0
"""Least seconds between two requests to begin anew, doubled up to `AGAIN_MAX_S`: a plane that can't be followed is not
asked for all its rules over and over."""
AGAIN_MAX_S: Final = 60.0
MISSED_BEATS: Final = 3
"""Beats that name a later head, while nothing comes, after which something is taken for lost."""
MOST_RULES: Final = 20_000_000
"""Rules of a snapshot; more are refused."""


class Copy(Protocol):
    """A copy of the plane's rules, at some position."""

    @property
    def position(self) -> Position:
        """Position of the rules that the copy has."""

    def take(self, entry: LogEntry) -> None:
        """Take an entry that follows. Raises BadRequest, and changes nothing, if it leads to another version."""

    def replace(self, position: Position, rules: Sequence[RuleChange]) -> None:
        """Take all rules. Raises BadRequest, and changes nothing, if they have another version."""


class Following:
    """Follows a log, stream after stream, into a copy."""

    def __init__(self, me: FollowerState, copy: Copy) -> None:
        """`me` says who follows; its position is the copy's."""
        self._me = me
        self.copy = copy
        self.head = NOWHERE
        """The end of the log, as the present stream says."""
        self.fresh_s: float | None = None
        """Time at which the copy was last known to have the end of the root's log, and to be in force as a whole."""
        self.in_force = True
        """False while something that the copy has is not in force: not yet, or because it was refused."""
        self.error = ""
        """Reason why the last message was not taken; empty if it was."""
        self._rules: list[RuleChange] = []
        self._parts = 0
        self._hello_at_s: float | None = None
        self._wants_all = False
        self._again_s = AGAIN_S
        self._missed_beats = 0
        self._reported: Report | None = None
        self._reported_s = float("-inf")

    # What happened

    def connected(self, now_s: float) -> None:
        """Begin a stream."""
        self.head = NOWHERE
        self._drop_parts()
        self._hello_at_s = now_s
        self._missed_beats = 0
        self._reported = None

    def received(self, said: FromPlane, now_s: float) -> bool:
        """Take a message; true if the copy is at another position now."""
        if isinstance(said, Beat):
            self._beat(said, now_s)
            return False
        self._missed_beats = 0
        if said.position.plane < self.copy.position.plane:
            self.error = f"the log {said.position.plane} is older than {self.copy.position.plane}, which was followed"
            return False
        try:
            moved = self._entry(said, now_s) if isinstance(said, LogEntry) else self._part(said, now_s)
        except BadRequest as error:
            self.refused(error, now_s)
            return False
        if moved:
            self.error, self._again_s, self._wants_all = "", AGAIN_S, False
        return moved

    def refused(self, error: BadRequest, now_s: float) -> None:
        """Note that the copy could not take what it was given, and have the plane asked for all rules."""
        self.error = str(error)
        self._begin_anew(now_s, all_rules=True)

    def _beat(self, beat: Beat, now_s: float) -> None:
        self.head = beat.head
        if self.is_at_head and self.in_force:
            known_s = now_s - beat.age_ms / 1000
            self.fresh_s = known_s if self.fresh_s is None else max(self.fresh_s, known_s)
        elif self.copy.position.is_behind(beat.head):
            self._missed_beats += 1
            if self._missed_beats >= MISSED_BEATS:
                self._missed_beats = 0
                # Of another log there may be no entry that leads on from here.
                self._begin_anew(now_s, all_rules=beat.head.plane != self.copy.position.plane)

    def _entry(self, entry: LogEntry, now_s: float) -> bool:
        has = self.copy.position
        if entry.position.plane == has.plane and entry.position.index <= has.index:
            return False
        if not entry.follows(has):
            self._begin_anew(now_s, all_rules=False)
            return False
        self.copy.take(entry)
        return True

    def _part(self, part: RulesPart, now_s: float) -> bool:
        if not self.copy.position.is_behind(part.position):
            return False
        if part.number == 0:
            self._drop_parts()
        if part.number != self._parts or len(self._rules) + len(part.rules) > MOST_RULES:
            self._drop_parts()
            self._begin_anew(now_s, all_rules=True)
            return False
        self._parts += 1
        self._rules += part.rules
        if not part.last:
            return False
        rules = self._rules
        self._drop_parts()
        self.copy.replace(part.position, rules)
        return True

    def _drop_parts(self) -> None:
        self._rules, self._parts = [], 0

    def _begin_anew(self, now_s: float, *, all_rules: bool) -> None:
        """Have the plane asked again: for what comes next, or for all rules."""
        self._wants_all = self._wants_all or all_rules
        if self._hello_at_s is None:
            self._hello_at_s = now_s + self._again_s
            self._again_s = min(AGAIN_MAX_S, 2 * self._again_s)

    # What is to be done

    @property
    def is_at_head(self) -> bool:
        """True if the copy has what the present stream says is the end of the log, of this one or of a later one."""
        has, head = self.copy.position, self.head
        return head.index > 0 and (has.index, has.version) == (head.index, head.version) and has.plane <= head.plane

    def is_due(self, now_s: float) -> bool:
        """Return true if there may be something to send."""
        return self._hello_at_s is not None or now_s >= self._reported_s + REPORT_S

    def requests(self, states: Sequence[FollowerState], now_s: float) -> list[FromFollower]:
        """Return what is to be sent now; `states` are those to report."""
        if self._hello_at_s is not None:
            if now_s < self._hello_at_s:
                return []
            self._hello_at_s = None
            me = self._me
            has = NOWHERE if self._wants_all or not self.copy.position.index else self.copy.position
            return [FollowerHello(FollowerState(me.name, me.region, me.software, me.relay, has))]
        report = Report(tuple(states))
        due_s = self._reported_s + (REPORT_S if report != self._reported else REPEAT_S)
        if now_s < due_s:
            return []
        self._reported, self._reported_s = report, now_s
        return [report]
