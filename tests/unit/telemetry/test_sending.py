"""Where telemetry is sent, and how sending ends."""

import threading

import pytest
from headgate.telemetry.sending import end_sending, signal_url


@pytest.mark.parametrize(
    ("endpoint", "signal", "url"),
    [
        ("http://c:4318", "metrics", "http://c:4318/v1/metrics"),
        ("http://c:4318", "logs", "http://c:4318/v1/logs"),
        ("http://c:4318/", "traces", "http://c:4318/v1/traces"),
        ("http://c:4318/v1/metrics", "metrics", "http://c:4318/v1/metrics"),
        ("http://c:4318/v1/metrics", "logs", "http://c:4318/v1/logs"),
        ("http://c/otlp/v1/metrics", "traces", "http://c/otlp/v1/traces"),
        ("http://c:4318/mine", "metrics", "http://c:4318/mine"),
        ("http://c:4318/mine", "logs", "http://c:4318/mine"),
    ],
)
def test_signals_go_beside_each_other(endpoint: str, signal: str, url: str) -> None:
    assert signal_url(endpoint, signal) == url


class Exporter:
    """Tries for ever, until it is shut down; as OpenTelemetry's does for some seconds."""

    def __init__(self) -> None:
        self._ended = threading.Event()

    def export(self) -> None:
        self._ended.wait()

    def shutdown(self) -> None:
        self._ended.set()


def test_whoever_ends_leaves_no_thread_that_goes_on_trying() -> None:
    exporter = Exporter()
    thread = threading.Thread(target=exporter.export, daemon=True)
    thread.start()
    end_sending(thread, exporter, timeout_s=0)
    thread.join(60)
    assert not thread.is_alive()
