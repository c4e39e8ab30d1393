"""Where telemetry is sent, and how sending ends."""

import threading
from typing import Any

import pytest
from headgate.telemetry.bounded_sender import BoundedSender
from headgate.telemetry.sending import end_sending, export, signal_url

from tests.support.waiting import PATIENCE_S


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
        self.trying = threading.Event()
        self.given_up = threading.Event()
        self._ended = threading.Event()

    def export(self, _: Any) -> None:
        self.trying.set()
        self._ended.wait()
        self.given_up.set()

    def shutdown(self) -> None:
        self._ended.set()


def test_whoever_ends_leaves_no_thread_that_goes_on_trying() -> None:
    exporter = Exporter()
    sender: BoundedSender[str] = BoundedSender("test", exporter.export)
    sender.start()
    sender.offer("x")
    assert exporter.trying.wait(PATIENCE_S)
    end_sending(sender, exporter, timeout_s=0)
    assert exporter.given_up.wait(PATIENCE_S)


class Answer:
    def __init__(self, name: str) -> None:
        self.name = name

    def export(self, data: Any) -> "Answer":
        return self


def test_what_a_collector_does_not_take_is_an_error() -> None:
    export(Answer("SUCCESS"), [])
    with pytest.raises(OSError, match="did not take"):
        export(Answer("FAILURE"), [])
    with pytest.raises(OSError, match="no attribute"):
        export(None, [])
