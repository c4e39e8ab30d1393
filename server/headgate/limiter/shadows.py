"""Shadows: rules that an operator keeps from denying, for a time. What they decide is counted and logged.

A shadow lies over a path of a domain and all below it; over the empty path, over all limits of the domain. The table is
asked while a request is planned, never while it is decided.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from headgate.limiter.rule_name import Steps


@dataclass(frozen=True, slots=True)
class Shadow:
    """A path, with all below it, whose rules deny nobody until a time."""

    path: Steps
    until_ms: int
    ends_elsewhere: bool = False
    """True if another clock than this process's ends it: it is in force until its source takes it away."""


Laid = Mapping[str, Sequence[Shadow]]
"""Shadows by domain."""


class Shadows:
    """Those in force, of every source that lays some."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.on_change: Callable[[], None] = lambda: None
        """Called when other rules than before are in shadow."""
        self._now_ms = now_ms
        self._laid: dict[str, Laid] = {}
        self._paths: dict[str, frozenset[Steps]] = {}

    def __len__(self) -> int:
        return len(self._paths)

    def in_force(self) -> Iterator[tuple[str, Shadow]]:
        """Domain and shadow of each path, the one that lasts longest; the empty path stands for the whole domain."""
        for domain, live in sorted(self._live().items()):
            last = {shadow.path: shadow for shadow in sorted(live, key=lambda shadow: shadow.until_ms)}
            yield from ((domain, last[path]) for path in sorted(last))

    def lay(self, source: str, shadows: Laid) -> None:
        """Have these of a source in force, and no others of it."""
        if shadows or source in self._laid:
            self._laid[source] = shadows
            self.expire()

    def expire(self) -> None:
        """Let go of what is over. It may be called often."""
        if not self._laid:
            return
        found = {domain: frozenset(shadow.path for shadow in live) for domain, live in self._live().items()}
        if found != self._paths:
            self._paths = found
            self.on_change()

    def _live(self) -> dict[str, list[Shadow]]:
        """Shadows that are not over, by domain."""
        now_ms, live = self._now_ms(), dict[str, list[Shadow]]()
        for domain, shadows in chain.from_iterable(laid.items() for laid in self._laid.values()):
            if found := [shadow for shadow in shadows if shadow.ends_elsewhere or shadow.until_ms > now_ms]:
                live.setdefault(domain, []).extend(found)
        return live

    def cover(self, domain: str, steps: Steps) -> bool:
        """Say if the rule at a path is in shadow."""
        paths = self._paths.get(domain)
        if paths is None:
            return False
        return any(steps[:length] in paths for length in range(len(steps) + 1))
