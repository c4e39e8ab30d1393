"""Metrics of the stream to an xDS server.

The rules in force, their age and what was refused of them are the store's own metrics (rules/instruments.py).
"""

from headgate.telemetry.metrics import Metrics
from headgate.xds.feed import XdsFeed


def register(metrics: Metrics, feed: XdsFeed) -> None:
    """Export how the stream fares."""
    state = feed.state
    metrics.gauge(
        "headgate_xds_connected", "1 once the server has answered on the present stream.", lambda: int(state.connected)
    )
    metrics.gauge(
        "headgate_xds_held_resources",
        "Resources of former streams that the present one has not shown yet; they are in force until its grace ends.",
        lambda: len(feed.names_held),
    )
    metrics.counter("headgate_xds_streams", "Streams that were begun.", lambda: state.streams)
    metrics.counter("headgate_xds_responses", "Responses that came.", lambda: state.responses)
    metrics.counter("headgate_xds_refusals", "Responses that were refused (NACK).", lambda: state.refusals)
