"""Sending to an OpenTelemetry collector: where to, for how long, and how it ends.

Metrics, spans and the decision log each go by a `BoundedSender` through OpenTelemetry's exporter, which tries again for
some seconds. Whoever ends one leaves no thread behind that goes on trying.
"""

import contextlib
from typing import Any, Final
from urllib.parse import urlsplit

from headgate.telemetry.bounded_sender import BoundedSender

SEND_TIMEOUT_S: Final = 10.0
"""For one request, with the exporter's own retries: OpenTelemetry's default."""
CLOSE_TIMEOUT_S: Final = 1.0
"""Time that a process which ends waits for the last ones to be taken."""

_METRICS: Final = "/v1/metrics"


def signal_url(endpoint: str, signal: str) -> str:
    """The URL that `metrics`, `logs` or `traces` go to: below the collector's address, unless a path says where.

    A path that is the metrics' own stands for its neighbours too.
    """
    path = urlsplit(endpoint).path.strip("/")
    base = endpoint.rstrip("/") if not path else endpoint.removesuffix(_METRICS)
    return endpoint if path and base == endpoint else f"{base}/v1/{signal}"


def export(exporter: Any, data: Any) -> None:
    """Hand data to an exporter, which logs why if it fails. Raises OSError where the collector did not take it."""
    try:
        result = exporter.export(data)
    except Exception as error:  # it is not ours
        raise OSError(str(error)) from error
    if result.name != "SUCCESS":
        raise OSError("the collector did not take them")


def end_sending(sender: BoundedSender[Any], exporter: Any, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
    """Send what waits, for at most `timeout_s`; then what is under way is its last try."""
    sender.close(timeout_s)
    with contextlib.suppress(Exception):  # it is not ours, and we are leaving
        exporter.shutdown()
