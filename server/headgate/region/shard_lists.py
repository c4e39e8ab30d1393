"""The lists of shards that a node goes by: the region's, which all nodes share, and the one that its settings want.

The region's list becomes another one when everybody who lives wants that one, and every shard of both lists says so.
Then keys move, and when no shard has any left that belongs elsewhere, the former list is over. Without I/O or a clock:
the node tells what heartbeats brought, and asks what to propose. (docs/convergence.md, section 12.)
"""

from typing import Final, NamedTuple

from headgate.origin.operations.heartbeat import Pulse
from headgate.origin.placement import Placement
from headgate.origin.rendezvous import list_name

LATELY_S: Final = 2.5
"""Age up to which what a shard said of the others counts: two heartbeats and a half."""
GONE_S: Final = 30.0
"""Silence after which a shard that nobody wants any more is taken to be gone, if everybody says so. Its keys begin anew
where they belong, from what nodes know of them. Shorter takes a restart for that."""


class Heard(NamedTuple):
    """Statement of a shard about lists, the last one."""

    at_s: float
    said: bytes
    """List that this node had told it to want."""
    agreed: bool
    """Everybody who lives wanted the same."""
    moved: int
    """Number of the placement for which all its records have moved."""


class ShardLists:
    """One node's view of the region's list, and of the others' wishes."""

    def __init__(self, wanted: tuple[str, ...]) -> None:
        self.wanted = wanted
        """The list of its settings."""
        self.placement = Placement(0, wanted)
        """Placement of the region's keys; number 0 while none is agreed."""
        self._heard: dict[str, Heard] = {}
        self._silent_since_s: dict[str, float] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Shards to keep in touch with: those that have keys, that had, or that are to have some."""
        return tuple(dict.fromkeys((*self.placement.shards, *self.placement.before, *self.wanted)))

    @property
    def changing(self) -> bool:
        """True while the region's list is not the one that is wanted here, or keys still move to it."""
        return bool(self.placement.before) or list_name(self.wanted) != list_name(self.placement.shards)

    def want(self, wanted: tuple[str, ...]) -> None:
        """Want another list from now on."""
        self.wanted = wanted

    def said(self, now_s: float) -> bytes:
        """Return what the node tells shards to want: its own list only once every shard of that has answered."""
        if not all(self._answers(name, now_s) for name in self.wanted):
            return list_name(self.placement.shards)
        gone = self._gone(now_s)
        return list_name(self.wanted) + (b"-" + list_name(sorted(gone)) if gone else b"")

    def hear(self, name: str, said: bytes, pulse: Pulse, now_s: float) -> bool:
        """Take in a heartbeat's answer. True: the placement is another one now."""
        agreed = not pulse.listed_otherwise and not pulse.unlisted
        self._heard[name] = Heard(now_s, said, agreed, pulse.placement.number if pulse.moved else 0)
        self._silent_since_s.pop(name, None)
        return self.learn(pulse.placement) or self._all_moved(now_s)

    def miss(self, name: str, now_s: float) -> None:
        """Note that a shard did not answer a heartbeat."""
        self._silent_since_s.setdefault(name, now_s)

    def learn(self, placement: Placement) -> bool:
        """Go by a placement, if it comes after the present one; return whether it does."""
        if not placement.overrules(self.placement):
            return False
        self.placement = placement
        return True

    def next_placement(self, now_s: float) -> Placement | None:
        """Return the placement to propose now; None: there is no other list, or not all agree on it."""
        number, shards, before = self.placement
        if before or not all(self._answers(name, now_s) for name in self.wanted):
            return None
        if number == 0:
            return Placement(1, self.wanted)
        if not self.changing or not self._agreed(now_s):
            return None
        gone = self._gone(now_s)
        return Placement(number + 1, self.wanted, tuple([name for name in shards if name not in gone]))

    @property
    def decider(self) -> str:
        """The shard that decides which placement comes next: the same one for all who have this one."""
        return min(self.placement.shards)

    def waits_for(self, now_s: float) -> str:
        """Return, for people, what a change of the list waits for; empty if there is none."""
        if not self.changing:
            return ""
        silent = [name for name in self.names if not self._answers(name, now_s)]
        if silent:
            return f"no answer from {', '.join(silent)}"
        if self.placement.before:
            left = [name for name in self.placement.before if not self._has_moved(name)]
            return f"keys move from {', '.join(left)}"
        return "nodes that have another list, or are of a version that knows of none"

    def _all_moved(self, now_s: float) -> bool:
        """End the move, once no shard has records left that belong elsewhere."""
        before = self.placement.before
        left = [name for name in before if not self._has_moved(name)]
        if not before or (left and not (self._gone(now_s).issuperset(left) and self._agreed(now_s))):
            return False
        self.placement = self.placement._replace(before=())
        return True

    def _has_moved(self, name: str) -> bool:
        heard = self._heard.get(name)
        return heard is not None and heard.moved == self.placement.number

    def _answers(self, name: str, now_s: float) -> bool:
        heard = self._heard.get(name)
        return heard is not None and now_s - heard.at_s <= LATELY_S

    def _agreed(self, now_s: float) -> bool:
        """Return whether every shard but those that are gone said lately that all want the same."""
        said, gone = self.said(now_s), self._gone(now_s)
        heard = [self._heard.get(name) for name in self.names if name not in gone]
        return all(one is not None and now_s - one.at_s <= LATELY_S and one[1:3] == (said, True) for one in heard)

    def _gone(self, now_s: float) -> set[str]:
        """Return the shards that are not wanted any more and have been silent for long."""
        silent = {name for name, since_s in self._silent_since_s.items() if now_s - since_s >= GONE_S}
        return silent.intersection(self.names).difference(self.wanted)
