"""The feed of a rules directory: it is watched by looking at names, sizes, times and inodes, four times a second.

That works for plain writes, editors that rename, links that Kubernetes swaps, and network file systems, which report
no changes. A thread looks, and the loop hears of it only when there is something to do. Nothing that happens to the
directory ends the watch: it may vanish and come back.
"""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from headgate.clock import Clock
from headgate.rules.directory import DirectoryReader, Signature, signature
from headgate.rules.feed import Feed, FeedKind, Taker
from headgate.rules.problems import RulesError
from headgate.rules.source import RulesSource

POLL_S = 0.25
"""Seconds between looks at the directory. With the settling below, a change is live within 500 ms. Looking ten times a
second was nearly half of what an idle node cost.
"""

BREAK_PER_LOOK = 9
"""Times as long as a look took that the next one is waited for: a hundred thousand files take 0.4 s to look at, and
may have a tenth of a core. Of a thousand files nothing comes later for it.
"""

SETTLE_S = 0.1
"""Seconds that a changed directory should stay unchanged before it is read: a file that is being written does not."""

SETTLE_MOST_S = 0.15
"""Seconds after which it is read although it goes on changing: what is written often must come into force too."""

GROWING_MOST_S = 5.0
"""Seconds that it is waited for as long as all that happens to it is that files grow: somebody writes a large one."""

_SETTLE_POLL_S = 0.05

RETRY_S = 5.0
"""Seconds until the next attempt after a file system error, which may pass without a visible change."""

_Unseen = Literal["unseen"]


def pause(stop: threading.Event, seconds: float) -> bool:
    """Wait so long, or until `stop` is set; whether it is."""
    return stop.wait(seconds)


@dataclass(frozen=True, slots=True)
class _Look:
    """The directory at one moment, when it was different from before."""

    state: Signature | None
    settled: bool
    """False: it was still changing."""
    source: RulesSource | RulesError


class DirectoryFeed(Feed):
    """Rules from the files of a directory."""

    kind: FeedKind = "directory"

    def __init__(self, directory: Path | str, *, clock: Clock, layer: str = "") -> None:
        """`layer` begins the names of files that are no rules, but an overlay."""
        super().__init__(clock.now_ms() / 1000)
        self._directory = Path(directory)
        self._clock = clock
        self._reader = DirectoryReader(self._directory, layer)
        self._seen: Signature | _Unseen | None = "unseen"
        self._handed: RulesSource | None = None
        """The last source that was handed over, unless something else was said since."""
        self._retry_at: float | None = None
        self._look_s = 0.0
        """Time that the last look took."""

    def describe(self) -> Mapping[str, Any]:
        return {"kind": self.kind, "from": str(self._directory)}

    def first(self) -> RulesSource:
        self._seen = signature(self._directory)
        self._handed = self._reader.read()
        self._note_unread(self._handed)
        return self._handed

    async def watch(self, taker: Taker) -> None:
        # One of its own: the thread of an earlier watch may not have seen yet that it is over.
        stop = threading.Event()
        executor = ThreadPoolExecutor(1, thread_name_prefix="headgate-rules-feed")
        try:
            while True:
                await self._follow(executor, stop, taker)
        finally:
            stop.set()
            executor.shutdown(wait=False, cancel_futures=True)

    async def _follow(self, executor: ThreadPoolExecutor, stop: threading.Event, taker: Taker) -> None:
        """Wait for a change, and hand over what it comes to."""
        look = await asyncio.get_running_loop().run_in_executor(executor, self._await_change, stop)
        if look is None:
            return
        source = look.source
        if isinstance(source, RulesError):
            self._handed = None
            self._retry_at = self._clock.monotonic() + RETRY_S if source.transient else None
            taker.cannot_read(source)
        else:
            if source != self._handed or self._seen not in ("unseen", look.state):
                await taker.take(source)
            self._handed = source
            self._note_unread(source)
        # While it is still changing, it may look the same after the next change: it is read once more.
        self._seen = look.state if look.settled else "unseen"

    def _note_unread(self, source: RulesSource) -> None:
        """The look was complete if every file could be read; else there is another soon."""
        if any(file.problem is not None for file in source.files):
            self._retry_at = self._clock.monotonic() + RETRY_S
        else:
            self._retry_at = None
            self.looked_at = self._clock.now_ms() / 1000

    # In the thread

    def _await_change(self, stop: threading.Event) -> _Look | None:
        """Watch, in the thread, until the directory's state changes, a retry is due, or `stop` is set (None).

        There and not on the loop, which would be woken twice for each look: most of what an idle node cost.
        """
        while not pause(stop, max(POLL_S if self._seen != "unseen" else SETTLE_S, BREAK_PER_LOOK * self._look_s)):
            state = self._look()
            if self._is_new(state):
                state, settled = self._settle(state, stop)
                if self._is_new(state):
                    return _Look(state, settled, self._read())
            elif self._handed is not None and self._retry_at is None:
                self.looked_at = self._clock.now_ms() / 1000
        return None

    def _look(self) -> Signature | None:
        began_s = self._clock.monotonic()
        state = signature(self._directory)
        self._look_s = self._clock.monotonic() - began_s
        return state

    def _is_new(self, state: Signature | None) -> bool:
        return state != self._seen or (self._retry_at is not None and self._clock.monotonic() >= self._retry_at)

    def _settle(self, state: Signature | None, stop: threading.Event) -> tuple[Signature | None, bool]:
        """Wait until the directory has not changed for a moment, or for long enough; its state, and if it settled."""
        begun = since = self._clock.monotonic()
        growing = True
        while (now := self._clock.monotonic()) - since < SETTLE_S:
            if now - begun >= (GROWING_MOST_S if growing else SETTLE_MOST_S) or pause(stop, _SETTLE_POLL_S):
                return state, False
            new = signature(self._directory)
            if new != state:
                growing = growing and _only_grew(state, new)
                state, since = new, self._clock.monotonic()
        return state, True

    def _read(self) -> RulesSource | RulesError:
        try:
            return self._reader.read()
        except RulesError as error:
            return error


def _only_grew(before: Signature | None, after: Signature | None) -> bool:
    """Say if nothing happened from one state to the other but that files got longer."""
    if before is None or after is None or len(before) != len(after):
        return False
    pairs = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
    return all(old[:3] == new[:3] and 0 <= old[3] < new[3] for old, new in pairs)
