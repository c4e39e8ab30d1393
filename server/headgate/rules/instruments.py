"""Metrics of the rule set in force, and of its reloading."""

from typing import Final

from headgate.rules.store import RuleStore
from headgate.telemetry.metrics import Metrics

FINGERPRINT_DIGITS: Final = 12
"""Hex digits of a rule set's digest that fit a float exactly (48 of 53 bits)."""


def register(metrics: Metrics, store: RuleStore) -> None:
    """Export the version in force, and how well the store keeps up with its source."""
    metrics.gauge(
        "headgate_rules_version",
        "The number of the rule set in force: it rises with each new one.",
        lambda: store.current.version.counter,
    )
    metrics.gauge(
        "headgate_rules_fingerprint",
        "A number made from the rules: equal on nodes that have equal rules.",
        lambda: int(store.current.version.digest[:FINGERPRINT_DIGITS], 16),
    )
    metrics.gauge("headgate_rules_limits", "Rules with a limit.", lambda: store.status.rules)
    metrics.gauge("headgate_rules_domains", "Domains with rules.", lambda: store.status.domains)
    metrics.gauge(
        "headgate_rules_loaded_timestamp_seconds",
        "When the rules in force were loaded, in unix time.",
        lambda: store.status.loaded_at,
    )
    metrics.gauge(
        "headgate_rules_in_sync",
        "1 while the rules in force are those that their feed has.",
        lambda: int(store.status.in_sync),
    )
    metrics.gauge(
        "headgate_rules_refused_domains",
        "Domains whose newest rules were refused; the last good ones serve on.",
        lambda: len(store.status.refused),
    )
    metrics.gauge(
        "headgate_rules_overlay_in_sync",
        "1 while the overlay in force is the one that its directory has, or there is none.",
        lambda: int(store.overlay.refused is None),
    )
    metrics.gauge(
        "headgate_rules_overlay_clashes",
        "Entries of the overlay that make no sense with a rule; such rules are as if there were no overlay.",
        lambda: len(store.current.overlay.clashes),
    )
    metrics.gauge(
        "headgate_rules_overlay_unmatched",
        "Entries of the overlay that name no limit in force.",
        lambda: len(store.current.overlay.unmatched),
    )
    metrics.gauge(
        "headgate_rules_last_look_timestamp_seconds",
        "When the feed of the rules last knew that it has nothing newer, in unix time.",
        lambda: store.feed.looked_at,
    )
    metrics.gauge(
        "headgate_rules_loading",
        "1 while newer rules are being checked and compiled: a large set takes its time, and no look is due meanwhile.",
        lambda: int(store.loading),
    )
    metrics.counter("headgate_rules_reloads", "Rule sets that came into force.", lambda: store.status.accepted)
    metrics.counter(
        "headgate_rules_reload_failures", "Changes of the rules that were refused.", lambda: store.status.rejected
    )


def register_ratelimit_loads(metrics: Metrics, store: RuleStore) -> None:
    """Export loads of rules under the names of envoyproxy/ratelimit."""
    metrics.bare_counter(
        "ratelimit_service_config_load_success",
        "Rule sets that came into force.",
        (),
        lambda: [(store.status.accepted, {})],
    )
    metrics.bare_counter(
        "ratelimit_service_config_load_error",
        "Changes of the rules that were refused.",
        (),
        lambda: [(store.status.rejected, {})],
    )
