"""The handler: what decides every request, whichever transport received it."""

from collections.abc import Iterable, Mapping
from functools import partial

from headgate.handler import HandlerStats, RateLimitHandler, Recorder
from headgate.runtime.context import ProcessContext
from headgate.runtime.from_settings import answer_settings
from headgate.runtime.room import Room, Rooms
from headgate.runtime.rooms.blocks import BlocksRoom
from headgate.runtime.rooms.decision_log import DecisionLogRoom
from headgate.runtime.rooms.keys import KeysRoom
from headgate.runtime.rooms.region import RegionRoom
from headgate.runtime.rooms.rules import RulesRoom
from headgate.runtime.rooms.telemetry import TelemetryRoom
from headgate.runtime.top import Top
from headgate.runtime.tracing import SpanRecorder
from headgate.runtime.trend import Trend
from headgate.telemetry.metrics import Metrics
from headgate.telemetry.rule_instruments import register_ratelimit_names, register_rules


class HandlerRoom(Room):
    """Makes the handler of the rules, the engine and what records decisions."""

    handler: RateLimitHandler
    top: Top
    trend: Trend

    def __init__(self, context: ProcessContext, rooms: Rooms) -> None:
        super().__init__(context, rooms)
        self._log = rooms.get(DecisionLogRoom)
        self._telemetry = rooms.get(TelemetryRoom)
        self._rules = rooms.get(RulesRoom)
        self._region = rooms.get(RegionRoom)
        self._keys = rooms.get(KeysRoom)
        self._blocks = rooms.get(BlocksRoom)

    async def start(self) -> None:
        context, region = self.context, self._region
        self.handler = RateLimitHandler(
            rules=partial(getattr, self._rules.store, "current"),  # asked at every request: no frame of Python's
            engine=region.decider,
            random=context.random,
            settings=answer_settings(context.settings),
            limits=region.limits,
            overrides=self._keys.overrides,
            blocks=self._blocks.blocks,
            shadows=self._blocks.shadows,
            record=self._recorder(),
            on_unknown_domain=lambda domain: context.logger.warning("unknown_domain", domain=domain),
        )
        self._rules.count_rollouts(self.handler.tallies.decided)
        self.top = Top(self.handler.take_over_limit, region.engine.counters, context.clock, region.time_of)
        self.trend = Trend(self.handler.stats, self.handler.tallies, context.clock)

    def _recorder(self) -> Recorder | None:
        own = self._log.recorder_for(self._region.engine, self._region.node)
        return own if self._telemetry.tracing is None else SpanRecorder(own)

    def tidy(self) -> None:
        """Look at what deciding has made since it was last looked at, if it is enough: counters and kept plans."""
        self.context.memory.tick(self._region.engine.counters.stats.created + self.handler.stats.charges_kept)

    def tick(self) -> None:
        self.top.take_denied()
        self.trend.look()

    def register(self, metrics: Metrics) -> None:
        _register_decisions(metrics, self.handler.stats)
        register_rules(metrics, self.handler.tallies)
        if self.context.settings.ratelimit_metrics:
            register_ratelimit_names(metrics, self.handler.tallies)


def _register_decisions(metrics: Metrics, stats: HandlerStats) -> None:
    def decisions() -> Iterable[tuple[int, Mapping[str, str]]]:
        for outcome, counts in (("admitted", stats.admitted), ("denied", stats.denied)):
            for path, count in counts.items():
                yield count, {"outcome": outcome, "path": path}

    metrics.labelled_counter("headgate_decisions", "Decisions, by outcome and path.", ("outcome", "path"), decisions)
    metrics.counter("headgate_requests_refused", "Requests answered INVALID_ARGUMENT.", lambda: stats.refused)
    metrics.counter(
        "headgate_match_cache_misses",
        "Requests that had to be parsed and matched; all other decisions were hits.",
        lambda: stats.planned,
    )
    metrics.gauge("headgate_match_cache_bytes", "Estimated memory of cached requests.", lambda: stats.plan_bytes)
    metrics.counter(
        "headgate_match_cache_evicted", "Cached requests dropped to make room for others.", lambda: stats.plans_evicted
    )
