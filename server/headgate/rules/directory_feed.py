"""The feed of a rules directory: it is watched by looking at names, sizes, times and inodes, four times a second.

That works for plain writes, editors that rename, links that Kubernetes swaps, and network file systems, which report
no changes. A thread looks, and the loop hears of it only when there is something to do. Nothing that happens to the
directory ends the watch: it may vanish and come back.
"""

import asyncio
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

from headgate.clock import Clock
from headgate.rules.directory import Signature, read_directory, signature
from headgate.rules.feed import Feed, FeedKind, Taker
from headgate.rules.problems import RulesError
from headgate.rules.source import RulesSource

POLL_S = 0.25
"""Seconds between looks at the directory. With the settling below, a change is live within 500 ms. Looking ten times a
second was nearly half of what an idle node cost.
"""

SETTLE_S = 0.1
"""Seconds that a changed directory must stay unchanged before it is read: a file that is being written does not."""

_SETTLE_POLL_S = 0.05

RETRY_S = 5.0
"""Seconds until the next attempt after a file system error, which may pass without a visible change."""

_Unseen = Literal["unseen"]


def pause(stop: threading.Event, seconds: float) -> bool:
    """Wait so long, or until `stop` is set; whether it is."""
    return stop.wait(seconds)


class DirectoryFeed(Feed):
    """Rules from the files of a directory."""

    kind: FeedKind = "directory"

    def __init__(self, directory: Path | str, *, clock: Clock, merge_domains: bool = False, layer: str = "") -> None:
        """`layer` begins the names of files that are no rules, but an overlay."""
        super().__init__(clock.now_ms() / 1000)
        self._layer = layer
        self._directory = Path(directory)
        self._clock = clock
        self._merge_domains = merge_domains
        self._seen: Signature | _Unseen | None = "unseen"
        self._retry_at: float | None = None

    def describe(self) -> Mapping[str, Any]:
        return {"kind": self.kind, "from": str(self._directory)}

    def first(self) -> RulesSource:
        self._seen = signature(self._directory)
        return self._read()

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
        loop = asyncio.get_running_loop()
        state = await loop.run_in_executor(executor, self._await_change, stop)
        state = await self._settled(executor, state)
        if state == self._seen and not self._retry_due():
            return
        try:
            source = await loop.run_in_executor(executor, self._read_settled, state)
        except RulesError as error:
            self._seen = state
            self._retry_at = self._clock.monotonic() + RETRY_S if error.transient else None
            taker.cannot_read(error)
            return
        if source is None:
            return  # it changed while it was read: look again
        await taker.take(source)
        self._seen, self._retry_at = state, None

    def _await_change(self, stop: threading.Event) -> Signature | None:
        """Watch, in the thread, until the directory's state changes, a retry is due, or `stop` is set.

        There and not on the loop, which would be woken twice for each look: most of what an idle node cost.
        """
        while not pause(stop, POLL_S):
            state = signature(self._directory)
            self.looked_at = self._clock.now_ms() / 1000
            if state != self._seen or self._retry_due():
                return state
        return None  # stopped

    def _retry_due(self) -> bool:
        return self._retry_at is not None and self._clock.monotonic() >= self._retry_at

    async def _settled(self, executor: ThreadPoolExecutor, state: Signature | None) -> Signature | None:
        """The directory's state once it has not changed for a moment."""
        loop = asyncio.get_running_loop()
        since = self._clock.monotonic()
        while self._clock.monotonic() - since < SETTLE_S:
            await asyncio.sleep(_SETTLE_POLL_S)
            now = await loop.run_in_executor(executor, signature, self._directory)
            if now != state:
                state, since = now, self._clock.monotonic()
        return state

    def _read_settled(self, state: Signature | None) -> RulesSource | None:
        """Read in the thread, all of one state of the directory; None if everything just changed."""
        source = self._read()
        return source if signature(self._directory) == state else None

    def _read(self) -> RulesSource:
        return read_directory(self._directory, merge_domains=self._merge_domains, layer=self._layer)
