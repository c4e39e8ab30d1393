"""Metrics per rule, and of domains that have no rules. The number of series is bounded (telemetry/tallies.py).

With `ratelimit_metrics` the same counts are there a second time under the names that
envoyproxy/ratelimit gives them, so that dashboards made for it go on.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping

from headgate.telemetry.metrics import Metrics
from headgate.telemetry.tallies import OVER, SHADOW, WITHIN, Tallies, Tally

LABELS = ("domain", "rule", "value")
"""`value` only where a rule asks for it, by `detailed_metric` or `value_to_metric`."""

STEP = " > "
"""Between the levels of a rule, in its text."""

_IPV4 = re.compile(r"\d{1,3}(?:\.\d{1,3}){3}")

Series = Iterable[tuple[int, Mapping[str, str]]]


def register_rules(metrics: Metrics, tallies: Tallies) -> None:
    """Export what became of decisions, rule by rule."""

    def decisions() -> Series:
        for tally in tallies.all():
            labels = tally.labels()
            for result, path, count in tally.results():
                yield count, {**labels, "result": result, "path": path}

    def costs() -> Series:
        for tally in tallies.all():
            labels = tally.labels()
            for result, cost in tally.costs():
                if cost:
                    yield cost, {**labels, "result": result}

    metrics.labelled_counter(
        "headgate_rule_decisions",
        "Decisions on a rule: whether it had room (within_limit) or not, and what it would have denied in shadow mode "
        "(shadow_over_limit); by the path of the request's decision.",
        (*LABELS, "result", "path"),
        decisions,
    )
    metrics.labelled_counter(
        "headgate_rule_cost", "Cost of these decisions: 1 each, or more.", (*LABELS, "result"), costs
    )
    metrics.labelled_counter(
        "headgate_rule_near_limit",
        "Admissions that left a rule near its limit: more than near_limit_ratio of it was used.",
        LABELS,
        lambda: ((tally.near, tally.labels()) for tally in tallies.all()),
    )
    metrics.labelled_counter(
        "headgate_rule_refunds",
        "Cost that requests asked to refund; the origin knows how much of it was granted.",
        LABELS,
        lambda: ((tally.refunded, tally.labels()) for tally in tallies.all() if tally.refunded),
    )
    metrics.counter(
        "headgate_rule_overflows",
        "Requests planned on rules or values that have no series of their own: they are counted as (overflow).",
        lambda: tallies.overflowed,
    )
    metrics.labelled_counter(
        "headgate_unknown_domain_requests",
        "Requests for domains that no file of rules names: they pass.",
        ("domain",),
        lambda: [(sum(t.within.values()), {"domain": t.name.domain}) for t in tallies.unknown_domains()],
    )


def register_ratelimit_names(metrics: Metrics, tallies: Tallies) -> None:
    """Export the same counts under the names of envoyproxy/ratelimit, as its own Prometheus endpoint maps them."""

    def per_rule(value: Callable[[Tally], int]) -> Callable[[], Series]:
        return lambda: _summed((_ratelimit_labels(tally), value(tally)) for tally in tallies.all())

    def cost(tally: Tally, *results: str) -> int:
        return sum(cost for result, cost in tally.costs() if result in results)

    for name, text, value in (
        ("total_hits", "Hits on a rule.", lambda tally: cost(tally, WITHIN, OVER, SHADOW)),
        ("over_limit", "Hits over a rule's limit.", lambda tally: cost(tally, OVER, SHADOW)),
        ("within_limit", "Hits within a rule's limit.", lambda tally: cost(tally, WITHIN)),
        ("near_limit", "Hits near a rule's limit.", lambda tally: tally.near),
        ("shadow_mode", "Hits that a rule in shadow mode would have denied.", lambda tally: cost(tally, SHADOW)),
        ("total_negative_hits", "Hits that were asked to be given back.", lambda tally: tally.refunded),
    ):
        metrics.bare_counter(f"ratelimit_service_rate_limit_{name}", text, ("domain", "key1", "key2"), per_rule(value))


def _summed(counts: Iterable[tuple[dict[str, str], int]]) -> Series:
    """Add up the rules that differ only in levels that no label shows."""
    sums: Counter[tuple[tuple[str, str], ...]] = Counter()
    for labels, count in counts:
        sums[tuple(labels.items())] += count
    return [(count, dict(labels)) for labels, count in sums.items()]


def _ratelimit_labels(tally: Tally) -> dict[str, str]:
    """The first level of a rule and the second, as Envoy Gateway's mapping has them: `user_alice`, `path_/login`."""
    levels = [level.replace("=", "_", 1) for level in tally.text.split(STEP)]
    labels = {"domain": _sanitised(tally.name.domain), "key1": _sanitised(levels[0])}
    if len(levels) > 1:
        labels["key2"] = _sanitised(levels[1])
    return labels


def _sanitised(name: str) -> str:
    """Replace what ratelimit replaces, because statsd gives it a meaning: `:` and `|`, and the dots of addresses."""
    return _IPV4.sub(lambda found: found[0].replace(".", "_"), name.replace(":", "_").replace("|", "_"))
