"""The decision log: written by the handler's recorder, read by operators over HTTP and gRPC.

Without a sink there is no log, and the handler is given nothing to call.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from headgate import __version__
from headgate.decision_log import instruments
from headgate.decision_log.collector import CollectorSink
from headgate.decision_log.expander import Expander
from headgate.decision_log.log import DecisionLog, Sink
from headgate.decision_log.recorder import DecisionRecorder, row_writer
from headgate.decision_log.rule_contents import PART, parts_of, save_content
from headgate.decision_log.schema import NodeRun
from headgate.decision_log.segments import Bounds, SegmentSink
from headgate.decision_log.service import DecisionsService
from headgate.decision_log.sinks import LineSink
from headgate.decision_log.views import DecisionViews
from headgate.limiter.engine import Engine
from headgate.region.engine import RegionalEngine
from headgate.region.node import RegionNode
from headgate.rules.ruleset import RuleSet
from headgate.runtime.context import ProcessContext
from headgate.runtime.room import Room, Rooms
from headgate.runtime.rooms.peers import PeersRoom
from headgate.telemetry.history import NotedLogger
from headgate.telemetry.metrics import Metrics
from headgate.telemetry.paced import PacedLogger
from headgate.transport.admin import Method

HOUR_MS: Final = 3_600_000


class DecisionLogRoom(Room):
    """Starts before what it tells of, so that the first rules and the node's start are in the log; closes last."""

    def __init__(self, context: ProcessContext, rooms: Rooms) -> None:
        super().__init__(context, rooms)
        identity = context.identity
        self._peers = rooms.get(PeersRoom).list
        self.log: DecisionLog | None = None
        """None where there is no sink."""
        self._paced = PacedLogger(context.logger, context.clock)
        self.history: Any = NotedLogger(self._paced, self.note)
        """The logger for events that an explanation needs later: rules, shards, other regions, operators."""
        self.views = DecisionViews(self._directory, context.clock)
        self._service = DecisionsService(self._directory)
        self._source = NodeRun(identity.region, identity.node, identity.run)
        self._collector: CollectorSink | None = None
        self._node: RegionNode | None = None

    @property
    def _directory(self) -> Path | None:
        """The data directory, where the log is kept in it."""
        return self.context.settings.data_dir if self.context.settings.decision_log else None

    # Life

    async def start(self) -> None:
        settings, sinks = self.context.settings, self._sinks()
        if not sinks:
            return
        self.log = DecisionLog(
            sinks,
            expand=Expander(values=settings.decision_log_values),
            clock=self.context.clock,
            source=self._source,
            warn=self._warn,
        )
        self.log.start()
        self.note(
            "start",
            {
                "version": __version__,
                "origin": settings.origin.partition("://")[0],
                "allowances": settings.decision_log_allowances,
                "values": settings.decision_log_values,
                "shadow_mode": settings.shadow_mode,
                "regions": 1 + len(self._peers.now),
                "pid": os.getpid(),
            },
        )

    def _sinks(self) -> list[Sink]:
        settings, sinks = self.context.settings, list[Sink]()
        if self._directory is not None:
            bounds = Bounds(settings.decision_log_bytes, settings.decision_log_hours * HOUR_MS)
            sinks.append(SegmentSink(self._directory, self._source, bounds))
        if settings.decision_log_stdout:
            sinks.append(LineSink(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1, self._source))
        if settings.decision_log_otlp and settings.otlp_endpoint is not None:
            resource = self.context.metrics.resource
            self._collector = CollectorSink(settings.otlp_endpoint, self._source, resource, self._warn)
            sinks.append(self._collector)
        return sinks

    def _warn(self, sink: str, error: Exception) -> None:
        self.context.logger.warning("decision_log_failed", sink=sink, reason=str(error))

    def tick(self) -> None:
        if self.log is not None:
            self.log.flush()

    @property
    def waiting(self) -> bool:
        """True while something is to be flushed soon, even if nobody calls."""
        return self.log is not None and self.log.waiting

    def close(self, patience_s: float) -> None:
        self._paced.close()
        self.views.close()
        self._service.close()
        if self.log is not None:
            self.note("stop", {})
            self.log.close()

    # What is logged

    def recorder_for(self, engine: Engine | RegionalEngine, node: RegionNode | None) -> DecisionRecorder | None:
        """Return the recorder of decisions that `engine` makes; None where there is no log."""
        self._node = node
        if self.log is None:
            return None
        write_row = row_writer(engine, node, self.context.clock)
        allowances = self.context.settings.decision_log_allowances
        return DecisionRecorder(self.log, write_row, allowances=allowances, random=self.context.random)

    def note(self, kind: str, fields: dict[str, Any]) -> None:
        """Log that something happened to this node, at the time of its decisions: the shards', or its own where it
        counts alone."""
        if self.log is not None:
            now_ms = self.context.clock.now_ms() if self._node is None else self._node.earliest_ms()
            self.log.note(kind, now_ms, **fields)

    def keep_rules(self, rules: RuleSet) -> None:
        """Rules come into force: keep what is in them, once per version, and ship it with the lines."""
        if self.log is not None:
            self.log.later(lambda: self._keep_content(rules))

    def _keep_content(self, rules: RuleSet) -> None:
        """On the log's thread. Raises OSError."""
        files, merge = [(file.name, file.data) for file in rules.files()], self.context.settings.merge_domains
        digest = rules.version.digest
        if self.context.settings.decision_log_stdout or self._collector is not None:
            for part in parts_of(digest, files, merge_domains=merge):
                self.note(PART, part)
        directory = self._directory
        if directory is not None and not save_content(directory, digest, files, merge_domains=merge):
            self.note("rules_not_kept", {"reason": "they are too large"})

    # Who looks at it

    def admin_methods(self) -> Mapping[str, Method]:
        return self._service.methods()

    def register(self, metrics: Metrics) -> None:
        if self.log is not None:
            collector = self._collector
            instruments.register(metrics, self.log.stats, lambda: 0 if collector is None else collector.failed)
