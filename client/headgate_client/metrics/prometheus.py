"""For prometheus_client: `REGISTRY.register(HeadgateCollector(limiter, "search"))`."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from headgate_client.metrics import (
    CALLS,
    CALLS_HELP,
    DROPPED,
    DROPPED_HELP,
    ERRORS,
    ERRORS_HELP,
    NO_RULE,
    NO_RULE_HELP,
    REACHABLE,
    REACHABLE_HELP,
    UNSETTLED,
    UNSETTLED_HELP,
    Counted,
)


class HeadgateCollector(Collector):
    """The counters of some clients, each by the name that tells it from the others."""

    def __init__(self, limiter: Counted, name: str = "default", /, **others: Counted) -> None:
        self._limiters = {name: limiter, **others}

    def collect(self) -> Iterator[Metric]:
        calls = CounterMetricFamily(CALLS, CALLS_HELP, labels=("client", "outcome"))
        errors = CounterMetricFamily(ERRORS, ERRORS_HELP, labels=("client", "status"))
        unsettled = CounterMetricFamily(UNSETTLED, UNSETTLED_HELP, labels=("client",))
        no_rule = CounterMetricFamily(NO_RULE, NO_RULE_HELP, labels=("client",))
        dropped = CounterMetricFamily(DROPPED, DROPPED_HELP, labels=("client",))
        reachable = GaugeMetricFamily(REACHABLE, REACHABLE_HELP, labels=("client",))
        for name, limiter in self._limiters.items():
            for outcome, count in limiter.counters.items():
                calls.add_metric((name, outcome), count)
            for status, count in limiter.errors.items():
                errors.add_metric((name, status), count)
            unsettled.add_metric((name,), limiter.unsettled)
            no_rule.add_metric((name,), limiter.no_rule)
            dropped.add_metric((name,), limiter.denials_dropped)
            reachable.add_metric((name,), limiter.reachable)
        yield from (calls, errors, unsettled, no_rule, dropped, reachable)
