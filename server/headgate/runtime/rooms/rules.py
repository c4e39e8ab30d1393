"""The rules in force: loaded at the start, watched from then on."""

import asyncio
import contextlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headgate.plane.feed import Decided, PlaneFeed
from headgate.rules import instruments
from headgate.rules.store import RuleStore
from headgate.runtime.context import ProcessContext
from headgate.runtime.feeds import open_store
from headgate.runtime.room import Room, Rooms, Task
from headgate.runtime.rooms.decision_log import DecisionLogRoom
from headgate.telemetry.metrics import Metrics
from headgate.transport.allocator import Trimmer
from headgate.xds import instruments as xds_instruments
from headgate.xds.feed import XdsFeed

RULES_LOOK_S: Final = 0.02
"""Seconds between looks for the first rules."""


class RulesRoom(Room):
    """Owns the store of rules."""

    store: RuleStore

    def __init__(self, context: ProcessContext, rooms: Rooms) -> None:
        super().__init__(context, rooms)
        self._log = rooms.get(DecisionLogRoom)

    async def start(self) -> None:
        settings = self.context.settings
        self.store = open_store(
            settings,
            self.context.clock,
            self.context.random,
            self.context.identity.node,
            logger=self._log.history,
            data_dir=settings.data_dir,
            feed_dir=self._feed_dir(),
            start_empty=settings.start_without_rules,
            on_rules=self._log.keep_rules,
        )
        self.store.load_initial()
        # Reading millions of rules leaves pieces between them, which the process would keep: 6 bytes for each rule.
        Trimmer().run()

    def _feed_dir(self) -> Path | None:
        """Directory of what the feed keeps: each of several workers has one of its own."""
        data_dir, worker = self.context.settings.data_dir, self.context.worker
        return data_dir if data_dir is None or worker is None else data_dir / f"worker-{worker.index}"

    async def wait_for_rules(self) -> None:
        """Wait until a feed that had nothing at the start has brought rules, unless this may start without any.

        Meanwhile health says not serving: a process without rules lets everything pass.
        """
        stopping = self.context.stopping
        while self.store.status.source == "nothing" and not self.context.settings.start_without_rules:
            if stopping.asked:
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stopping.wait(), RULES_LOOK_S)

    def count_rollouts(self, decided: Decided) -> None:
        """Have what rollouts decide reported to the plane that the rules come from."""
        if isinstance(self.store.feed, PlaneFeed):
            self.store.feed.decided = decided

    def tasks(self) -> Mapping[str, Task]:
        return {"rules": self.store.watch}

    def register(self, metrics: Metrics) -> None:
        instruments.register(metrics, self.store)
        if isinstance(self.store.feed, XdsFeed):
            xds_instruments.register(metrics, self.store.feed)
        if self.context.settings.ratelimit_metrics:
            instruments.register_ratelimit_loads(metrics, self.store)

    def readiness(self) -> Mapping[str, Any]:
        """Describe the version in force for `/readyz`."""
        status = self.store.status
        return {
            "version": str(status.version),
            "source": status.source,
            "in_sync": status.in_sync,
            "refused_domains": len(status.refused),
            "overlay_in_sync": self.store.overlay.refused is None,
        }
