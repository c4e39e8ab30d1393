"""The decision log of a process, put together from its settings: sinks, recorder, history.

Made first, so that the rules' first version and the node's start are in it; told of the engine when there is one;
closed last. Without a sink there is no log, and the handler is given nothing to call.
"""

import os
import random
import sys
from pathlib import Path
from typing import Any, Final

from opentelemetry.sdk.resources import Resource
from structlog.typing import FilteringBoundLogger

from headgate import __version__
from headgate.clock import Clock
from headgate.config import Settings
from headgate.decision_log.collector import CollectorSink
from headgate.decision_log.expander import Expander
from headgate.decision_log.log import DecisionLog, LogStats, Sink
from headgate.decision_log.recorder import DecisionRecorder, row_writer
from headgate.decision_log.rule_contents import PART, parts_of, save_content
from headgate.decision_log.schema import NodeRun
from headgate.decision_log.segments import Bounds
from headgate.decision_log.sinks import LineSink, SegmentSink
from headgate.limiter.engine import Engine
from headgate.region.engine import RegionalEngine
from headgate.region.node import RegionNode
from headgate.rules.directory import RulesSource
from headgate.telemetry.history import NotedLogger

HOUR_MS: Final = 3_600_000


class DecisionLogging:
    """The log of one process, or nothing where nobody asked for one."""

    def __init__(
        self,
        settings: Settings,
        source: NodeRun,
        *,
        clock: Clock,
        random: random.Random,
        logger: FilteringBoundLogger,
        resource: Resource,
    ) -> None:
        """`source`: names this process in records; `resource`: names it to a collector."""
        self.source = source
        self.log: DecisionLog | None = None
        """None where there is no sink."""
        self.recorder: DecisionRecorder | None = None
        """The handler's recorder; None until there is an engine, and where there is no log."""
        self._settings = settings
        self._clock = clock
        self._random = random
        self._logger = logger
        self._resource = resource
        self._collector: CollectorSink | None = None
        self._node: RegionNode | None = None

    def start(self) -> None:
        """Begin the log. The data directory is there."""
        sinks = self._sinks()
        if not sinks:
            return
        self.log = DecisionLog(
            sinks,
            expand=Expander(values=self._settings.decision_log_values),
            clock=self._clock,
            source=self.source,
            warn=self._warn,
        )
        self.log.start()
        self.note(
            "start",
            {
                "version": __version__,
                "origin": self._settings.origin.partition("://")[0],
                "allowances": self._settings.decision_log_allowances,
                "values": self._settings.decision_log_values,
                "shadow_mode": self._settings.shadow_mode,
                "regions": 1 + len(self._settings.peer),
                "pid": os.getpid(),
            },
        )

    def _sinks(self) -> list[Sink]:
        settings, sinks = self._settings, list[Sink]()
        if settings.data_dir is not None and settings.decision_log:
            bounds = Bounds(settings.decision_log_bytes, settings.decision_log_hours * HOUR_MS)
            sinks.append(SegmentSink(settings.data_dir, self.source, bounds))
        if settings.decision_log_stdout:
            sinks.append(LineSink(sys.__stdout__.fileno() if sys.__stdout__ is not None else 1, self.source))
        if settings.decision_log_otlp and settings.otlp_endpoint is not None:
            self._collector = CollectorSink(settings.otlp_endpoint, self.source, self._resource, self._warn)
            sinks.append(self._collector)
        return sinks

    @property
    def directory(self) -> Path | None:
        """The data directory, where the log is kept in it."""
        return self._settings.data_dir if self._settings.decision_log else None

    def noted(self, logger: FilteringBoundLogger) -> Any:
        """The logger, such that what is history is noted too."""
        return NotedLogger(logger, self.note)

    def note(self, kind: str, fields: dict[str, Any]) -> None:
        """Something happened to this node."""
        if self.log is not None:
            self.log.note(kind, self._now_ms(), **fields)

    def attach(self, engine: Engine | RegionalEngine, node: RegionNode | None) -> None:
        """The engine is there: decisions can be recorded from now on."""
        self._node = node
        if self.log is None:
            return
        self.recorder = DecisionRecorder(
            self.log,
            row_writer(engine, node, self._clock),
            allowances=self._settings.decision_log_allowances,
            random=self._random,
        )

    def keep_rules(self, source: RulesSource) -> None:
        """Rules come into force: keep what is in them, once per version, and ship it with the lines."""
        if self.log is not None:
            self.log.later(lambda: self._keep_content(source))

    def _keep_content(self, source: RulesSource) -> None:
        """On the log's thread. Raises OSError."""
        settings = self._settings
        files, merge = [(file.name, file.data) for file in source.files], settings.merge_domains
        if settings.decision_log_stdout or self._collector is not None:
            for part in parts_of(source.digest, files, merge_domains=merge):
                self.note(PART, part)
        directory = self.directory
        if directory is not None and not save_content(directory, source.digest, files, merge_domains=merge):
            self.note("rules_not_kept", {"reason": "they are too large"})

    def live_nodes_changed(self, live_nodes: int) -> None:
        """The region has more nodes, or fewer."""
        self.note("live_nodes", {"live_nodes": live_nodes})

    def flush(self) -> None:
        """Have what was logged lately written. Called every now and then."""
        if self.log is not None:
            self.log.flush()

    @property
    def waiting(self) -> bool:
        """True while `flush` is to be called again soon."""
        return self.log is not None and self.log.waiting

    @property
    def stats(self) -> LogStats:
        """Counts of entries; all 0 where there is no log."""
        return LogStats() if self.log is None else self.log.stats

    @property
    def failed(self) -> int:
        """Records that a sink did not take, at once or later."""
        return self.stats.failed + (0 if self._collector is None else self._collector.failed)

    def close(self) -> None:
        """Write what is left."""
        if self.log is not None:
            self.note("stop", {})
            self.log.close()

    def _now_ms(self) -> int:
        """Time by the clock that the decisions have: the shards', or this node's where it counts alone."""
        return self._clock.now_ms() if self._node is None else self._node.earliest_ms()

    def _warn(self, sink: str, error: Exception) -> None:
        self._logger.warning("decision_log_failed", sink=sink, reason=str(error))
