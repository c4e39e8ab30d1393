"""Structured logs to stderr that never hold up a decision.

A line is rendered where it is logged and put into a bounded queue; a thread writes it.
When whoever reads stderr is slow or gone, the queue fills, further lines are dropped
and counted, and the loop goes on. The standard library's loggers (asyncio, aiohttp,
grpc) end in the same queue. The level can be changed while the process runs, secrets are
hidden (redaction.py), and what is bound to a context (a request's id) is in every line from it.
"""

import logging
import os
import select
import sys
from collections.abc import Callable, Mapping, MutableMapping
from typing import Any

import structlog

from headgate import plain_json
from headgate.clock import SystemClock
from headgate.telemetry.bounded import BoundedLogger
from headgate.telemetry.bounded_sender import BoundedSender
from headgate.telemetry.redaction import redact

MAX_QUEUED_BYTES = 4 * 1024 * 1024
"""Bytes that may wait for a slow reader: seconds of a very busy log. Beyond it lines are dropped."""

MAX_LINE_BYTES = 64 * 1024
"""A longer line is cut: one event must not fill the queue."""

LIBRARY_BURST = 10
"""The most lines of one library's logger that are written in ten seconds."""

LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


class LogSink:
    """A file descriptor behind a bounded queue and a thread. `write` never blocks."""

    def __init__(self, fd: int, *, max_bytes: int = MAX_QUEUED_BYTES) -> None:
        self._fd = fd
        self._sender = BoundedSender("headgate-logs", self._write_lines, max_bytes=max_bytes)
        self._sender.start()

    @property
    def dropped(self) -> int:
        """Lines for which there was no room, or no reader any more: logging that could not help."""
        return self._sender.dropped + self._sender.failed

    def write(self, line: str) -> None:
        """Queue one line, or count it as dropped where the queue is full."""
        data = line.encode(errors="backslashreplace")
        if len(data) > MAX_LINE_BYTES:
            data = data[:MAX_LINE_BYTES] + b" [cut]"
        self._sender.offer(data + b"\n", size=len(data))

    def close(self, timeout_s: float) -> None:
        """Write what is queued, for at most `timeout_s`; later lines are dropped."""
        self._sender.close(timeout_s)

    def _write_lines(self, lines: list[bytes]) -> None:
        """On the thread. Raises OSError where the reader is gone."""
        data = b"".join(lines)
        while data:
            try:
                data = data[os.write(self._fd, data) :]
            except BlockingIOError:
                # Somebody made the descriptor non-blocking: wait until it takes more.
                select.select([], [self._fd], [])


class Logs:
    """The process's logger and its sink, from `open_logs` to `close`."""

    def __init__(self, logger: Any, sink: LogSink, bridge: logging.Handler, gate: "_Gate") -> None:
        self.logger = logger
        self.sink = sink
        self._bridge = bridge
        self._gate = gate
        self.chosen = self.level = _name_of(gate.level)
        """The level of the settings, and the one in force."""
        self.on_level: Callable[[], None] = lambda: None
        """Called after the level was switched by a signal."""

    def switch_level(self) -> None:
        """From the level of the settings to debug, and back."""
        self.set_level(self.chosen if self.level == "debug" else "debug")
        self.on_level()

    def set_level(self, name: str) -> None:
        """Log from this level on."""
        self.level = name
        self._gate.level = min(LEVELS[name], LEVELS["info"])  # so that this line is always there
        self.logger.info("log_level_changed", log_level=name)
        self._gate.level = LEVELS[name]

    def close(self, timeout_s: float = 1.0) -> None:
        logging.getLogger().removeHandler(self._bridge)
        self.sink.close(timeout_s)


def _name_of(level: int) -> str:
    return next(name for name, number in LEVELS.items() if number == level)


def open_logs(level: str, log_format: str, fd: int | None = None, **fields: Any) -> Logs:
    """Log at `level` and above, as `json` or `console` lines, to `fd` (stderr unless told).

    `auto` is `console` on a terminal and `json` elsewhere.

    Every line has the `fields`.
    """
    fd = _stderr_fd() if fd is None else fd
    sink, gate = LogSink(fd), _Gate(LEVELS[level])
    if log_format == "auto":
        log_format = "console" if os.isatty(fd) else "json"
    logger = structlog.wrap_logger(
        _Lines(sink),
        processors=[gate, *_processors(log_format, colors=os.isatty(fd))],
        wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG),
        cache_logger_on_first_use=True,
        **fields,
    )
    return Logs(logger, sink, _bridge_standard_logging(logger, level), gate)


def _stderr_fd() -> int:
    if sys.stderr is None:
        # Started with stderr closed: descriptor 2 may by now be somebody's socket.
        return os.open(os.devnull, os.O_WRONLY)
    return sys.stderr.fileno()


class _Lines:
    """Takes rendered lines from structlog, whatever their level."""

    def __init__(self, sink: LogSink) -> None:
        self._write = sink.write

    def __getattr__(self, level: str) -> Any:
        return self._write


class _Gate:
    """Lets events of a level and above pass: the first processor, and one whose level can change."""

    def __init__(self, level: int) -> None:
        self.level = level

    def __call__(self, _: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if LEVELS.get(method, logging.ERROR) < self.level:
            raise structlog.DropEvent
        return event


def _processors(log_format: str, *, colors: bool) -> list[Any]:
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
        structlog.processors.format_exc_info,
        redact,
    ]
    if log_format == "json":
        return [*shared, _first_things_first, structlog.processors.JSONRenderer(plain_json.dumps)]
    renderer = structlog.dev.ConsoleRenderer(
        colors=colors, timestamp_key="time", exception_formatter=structlog.dev.plain_traceback
    )
    return [*shared, _plain, renderer]


def _plain(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Write text that would steer a terminal, or begin another line, as JSON. (All but text is shown by its repr.)"""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            lines = value.splitlines() if name == "exception" else [value]
            event[name] = "\n".join([line if line.isprintable() else plain_json.dumps(line) for line in lines])
    return event


def _first_things_first(_: Any, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Time, level and event lead every line, so that lines can be read by eye."""
    return {"time": event.pop("time"), "level": event.pop("level"), "event": event.pop("event"), **event}


class _Bridge(logging.Handler):
    """Turns lines of the standard library's loggers into `library_logged` events, a bounded number of them.

    Some libraries log once per bad client; what a client can cause must be bounded.
    """

    def __init__(self, logger: Any) -> None:
        super().__init__()
        self._logger = BoundedLogger(logger, SystemClock(), burst=LIBRARY_BURST)

    def emit(self, record: logging.LogRecord) -> None:
        try:
            message = record.getMessage()
        except (TypeError, ValueError):
            message = str(record.msg)
        level = "error" if record.levelno >= logging.ERROR else "warning"
        fields = {"logger": record.name, "message": message, "exc_info": record.exc_info}
        self._logger.emit(level, record.name, "library_logged", fields)


def _bridge_standard_logging(logger: Any, level: str) -> logging.Handler:
    bridge = _Bridge(logger)
    root = logging.getLogger()
    root.addHandler(bridge)
    # Libraries' own debug and info lines are about themselves, not about the service.
    root.setLevel(max(LEVELS[level], logging.WARNING))
    return bridge
