"""What the three that send to an OpenTelemetry collector have in common: where to, how long, and how to end.

Each sends by a thread of its own, through OpenTelemetry's exporter, which tries again for some seconds. Whoever ends
one leaves no thread behind that goes on trying.
"""

import contextlib
import threading
from typing import Any, Final
from urllib.parse import urlsplit

SEND_TIMEOUT_S: Final = 10.0
"""For one request, with the exporter's own retries: OpenTelemetry's default."""
CLOSE_TIMEOUT_S: Final = 1.0
"""What a process that ends waits for the last ones to be taken."""

_METRICS: Final = "/v1/metrics"


def signal_url(endpoint: str, signal: str) -> str:
    """Where `metrics`, `logs` or `traces` go: below the collector's address, unless a path says where.

    A path that is the metrics' own stands for its neighbours too.
    """
    path = urlsplit(endpoint).path.strip("/")
    base = endpoint.rstrip("/") if not path else endpoint.removesuffix(_METRICS)
    return endpoint if path and base == endpoint else f"{base}/v1/{signal}"


def end_sending(thread: threading.Thread, exporter: Any, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
    """Wait until the thread has sent what it has, for at most `timeout_s`; then what is under way is its last try."""
    thread.join(timeout_s)
    with contextlib.suppress(Exception):  # it is not ours, and we are leaving
        exporter.shutdown()
