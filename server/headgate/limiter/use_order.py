"""The order in which counters were used last: a ring of links, which a use changes in a fixed number of steps."""

from collections.abc import Iterator
from typing import Generic, TypeVar, cast

from headgate.limiter.links import Link

C = TypeVar("C", bound=Link)


class UseOrder(Generic[C]):
    """Counters, the least recently used first."""

    def __init__(self) -> None:
        end = Link()
        end.older = end.newer = end
        self._end = end
        """Stands before the oldest and behind the newest."""

    def add(self, counter: C) -> None:
        """Take in a counter as the most recently used one."""
        end = self._end
        newest = end.older
        counter.older, counter.newer = newest, end
        newest.newer = end.older = counter

    def touch(self, counter: C) -> None:
        """Make a counter the most recently used one."""
        end = self._end
        newest = end.older
        if newest is counter:
            return
        # Taken out and put in again, without calls: this is done for every decision of a node on its own.
        older, newer = counter.older, counter.newer
        older.newer, newer.older = newer, older
        counter.older, counter.newer = newest, end
        newest.newer = end.older = counter

    def remove(self, counter: C) -> None:
        """Take out a counter."""
        older, newer = counter.older, counter.newer
        older.newer, newer.older = newer, older
        counter.older = counter.newer = self._end  # it holds on to no other one

    def oldest(self) -> C:
        """Return the least recently used one; there must be one."""
        return cast(C, self._end.newer)

    def newest_first(self) -> Iterator[C]:
        """Yield all, the most recently used one first. Nothing may change meanwhile."""
        end = self._end
        link = end.older
        while link is not end:
            yield cast(C, link)
            link = link.older
