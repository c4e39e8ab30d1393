"""Metrics of reservations."""

from collections.abc import Iterable, Mapping

from headgate.reservations.service import ReservationService
from headgate.telemetry.metrics import Metrics

Rows = Iterable[tuple[int, Mapping[str, str]]]


def register(metrics: Metrics, limits: ReservationService) -> None:
    """Export what was reserved and settled here, and what waits."""
    stats = limits.stats

    def reserved() -> Rows:
        yield stats.reserved, {"outcome": "reserved"}
        yield stats.denied, {"outcome": "denied"}

    def settled() -> Rows:
        yield stats.settled, {"outcome": "settled"}
        yield stats.repeated, {"outcome": "repeated"}
        yield stats.expired, {"outcome": "expired"}

    def refused() -> Rows:
        yield stats.refused_open, {"reason": "open"}
        yield stats.refused_waiting, {"reason": "waiting"}

    metrics.labelled_counter("headgate_reservations", "Estimates that were asked for.", ("outcome",), reserved)
    metrics.labelled_counter("headgate_settlements", "Settlements that were answered.", ("outcome",), settled)
    metrics.labelled_counter(
        "headgate_reservations_refused",
        "Reservations and settlements that were refused, because there are as many as there may be.",
        ("reason",),
        refused,
    )
    metrics.gauge(
        "headgate_reservations_open",
        "Reservations that were made at this node and are neither settled here nor expired.",
        lambda: limits.open,
    )
    metrics.gauge(
        "headgate_settlements_waiting", "Settlements that wait for the region's origin.", lambda: limits.waiting
    )
