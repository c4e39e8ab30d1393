"""Logs: structured, bounded, and never in the way."""

import contextlib
import json
import logging
import os
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from headgate.telemetry.bounded import MAX_KINDS, BoundedLogger
from headgate.telemetry.logs import LIBRARY_BURST, MAX_LINE_BYTES, LogSink, open_logs

from tests.support.clock import ManualClock
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    read, write = os.pipe()
    yield read, write
    for fd in (read, write):
        with contextlib.suppress(OSError):
            os.close(fd)


def read_lines(read: int, write: int) -> list[str]:
    os.close(write)
    with os.fdopen(os.dup(read), "rb") as file:
        return file.read().decode().splitlines()


def test_a_line_is_one_json_object_that_leads_with_time_level_and_event(pipe: tuple[int, int]) -> None:
    logs = open_logs("info", "json", pipe[1])
    logs.logger.info("serving", grpc="127.0.0.1:8081", odd="Zoë\n\ud800")
    logs.close()
    (line,) = read_lines(*pipe)
    event = json.loads(line)
    assert list(event)[:3] == ["time", "level", "event"]
    assert (event["level"], event["event"], event["grpc"]) == ("info", "serving", "127.0.0.1:8081")


def test_levels_below_the_chosen_one_are_left_out(pipe: tuple[int, int]) -> None:
    logs = open_logs("warning", "json", pipe[1])
    logs.logger.info("no")
    logs.logger.warning("yes")
    logs.close()
    assert [json.loads(line)["event"] for line in read_lines(*pipe)] == ["yes"]


def test_errors_carry_their_traceback_in_the_same_line(pipe: tuple[int, int]) -> None:
    logs = open_logs("info", "json", pipe[1])
    try:
        raise RuntimeError("broken")
    except RuntimeError as error:
        logs.logger.error("failed", exc_info=error)
    logs.close()
    (line,) = read_lines(*pipe)
    assert "RuntimeError: broken" in json.loads(line)["exception"]


def test_console_lines_are_for_people(pipe: tuple[int, int]) -> None:
    logs = open_logs("info", "console", pipe[1])
    logs.logger.info("serving", grpc="x")
    logs.close()
    (line,) = read_lines(*pipe)
    assert "serving" in line
    assert "grpc=x" in line
    assert "\x1b[" not in line


@pytest.mark.parametrize("form", ["json", "console"])
@pytest.mark.parametrize("steering", ["a\x9b31m", "\x1b[2Jb", "user\u202egnp.exe", "\u2066", "x\ny", "\u2028", "\x7f"])
def test_no_line_has_signs_that_steer_whoever_shows_it(pipe: tuple[int, int], form: str, steering: str) -> None:
    logs = open_logs("info", form, pipe[1])
    logs.logger.info("denied", caller=steering, callers=[steering], by_name={steering: 1})
    try:
        raise RuntimeError(steering)
    except RuntimeError as error:
        logs.logger.error("failed", exc_info=error)
    logs.close()
    first, *others = read_lines(*pipe)
    assert "denied" in first
    assert "failed" in others[0]
    assert all(line.isprintable() for line in (first, *others))


def test_the_standard_librarys_loggers_end_in_the_same_log(pipe: tuple[int, int]) -> None:
    logs = open_logs("info", "json", pipe[1])
    logging.getLogger("some.library").warning("only %d left", 3)
    bad = {"name": "some.library", "levelno": logging.WARNING, "msg": "bad format %d", "args": ("x",)}
    logs._bridge.emit(logging.makeLogRecord(bad))
    logging.getLogger("some.library").info("chatter")
    logs.close()
    logging.getLogger("some.library").debug("after the end")
    events = [json.loads(line) for line in read_lines(*pipe)]
    assert [(event["event"], event["logger"], event["message"]) for event in events] == [
        ("library_logged", "some.library", "only 3 left"),
        ("library_logged", "some.library", "bad format %d"),
    ]


def test_a_library_that_repeats_itself_is_kept_short(pipe: tuple[int, int]) -> None:
    logs = open_logs("info", "json", pipe[1])
    for number in range(100):
        logging.getLogger("chatty").warning("again %d", number)
    logging.getLogger("other").warning("once")
    logs.close()
    messages = [json.loads(line)["message"] for line in read_lines(*pipe)]
    assert messages == [*(f"again {number}" for number in range(LIBRARY_BURST)), "once"]


def test_a_reader_that_does_not_read_blocks_nobody_and_losses_are_counted(pipe: tuple[int, int]) -> None:
    sink = LogSink(pipe[1], max_bytes=100_000)

    def write() -> None:
        for _ in range(1_000):
            sink.write("x" * 1_000)

    writer = threading.Thread(target=write, daemon=True)
    writer.start()
    writer.join(PATIENCE_S)
    assert not writer.is_alive(), "it waits for the reader"
    # The pipe holds 64 KiB, the queue 100 kB, the writer's hand one line.
    assert 1_000 - 64 - 100 - 2 <= sink.dropped <= 1_000 - 100
    dropped = sink.dropped
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(read_lines_until_closed(pipe[0])))
    reader.start()
    sink.close(PATIENCE_S)
    os.close(pipe[1])
    reader.join(PATIENCE_S)
    assert len(lines) == 1_000 - dropped


def read_lines_until_closed(read: int) -> list[str]:
    with os.fdopen(os.dup(read), "rb") as file:
        return file.read().decode().splitlines()


def test_closing_gives_up_on_a_reader_that_never_reads(pipe: tuple[int, int]) -> None:
    sink = LogSink(pipe[1])
    for _ in range(100):
        sink.write("x" * 10_000)
    begun = time.monotonic()
    sink.close(0.1)
    assert 0.1 <= time.monotonic() - begun < PATIENCE_S
    sink.write("late")
    assert sink.dropped == 1
    # Let the writer go before its descriptor becomes somebody else's.
    left = 100 * 10_001
    while left:
        left -= len(os.read(pipe[0], left))
    sink.close(PATIENCE_S)


def test_a_reader_that_is_gone_is_counted(pipe: tuple[int, int]) -> None:
    os.close(pipe[0])
    sink = LogSink(pipe[1])
    sink.write("a")
    sink.close(PATIENCE_S)
    assert sink.dropped == 1


def test_a_non_blocking_descriptor_loses_nothing(pipe: tuple[int, int]) -> None:
    os.set_blocking(pipe[1], False)
    sink = LogSink(pipe[1])
    for _ in range(20):
        sink.write("x" * 10_000)
    lines: list[str] = []
    reader = threading.Thread(target=lambda: lines.extend(read_lines_until_closed(pipe[0])))
    reader.start()
    sink.close(PATIENCE_S)
    os.close(pipe[1])
    reader.join(PATIENCE_S)
    assert [len(line) for line in lines] == [10_000] * 20


def test_a_line_that_is_too_long_is_cut(pipe: tuple[int, int]) -> None:
    sink = LogSink(pipe[1], max_bytes=1_000_000)
    sink.write("x" * (MAX_LINE_BYTES - 10) + "y" * 20)
    reader: list[str] = []
    thread = threading.Thread(target=lambda: reader.extend(read_lines_until_closed(pipe[0])))
    thread.start()
    sink.close(PATIENCE_S)
    os.close(pipe[1])
    thread.join(PATIENCE_S)
    assert reader == ["x" * (MAX_LINE_BYTES - 10) + "y" * 10 + " [cut]"]


class Recorder:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, Any]]] = []

    def __getattr__(self, level: str) -> Any:
        return lambda event, **fields: self.lines.append((level, event, fields))


def test_a_bounded_logger_writes_a_few_lines_per_event_and_says_what_it_kept_back() -> None:
    recorder, clock = Recorder(), ManualClock()
    logger = BoundedLogger(recorder, clock, burst=2, interval_s=10)
    for number in range(5):
        logger.warning("refused", number=number)
    logger.error("other")
    clock.advance(9_999)
    logger.warning("refused", number=5)
    clock.advance(1)
    logger.warning("refused", number=6)
    logger.warning("refused", number=7)
    assert recorder.lines == [
        ("warning", "refused", {"number": 0}),
        ("warning", "refused", {"number": 1}),
        ("error", "other", {}),
        ("warning", "refused", {"number": 6, "suppressed": 4}),
        ("warning", "refused", {"number": 7}),
    ]


def test_a_bounded_loggers_memory_is_bounded_too() -> None:
    recorder = Recorder()
    logger = BoundedLogger(recorder, ManualClock(), burst=1, interval_s=10)
    for number in range(MAX_KINDS * 3):
        logger.info(f"event {number}")
    assert len(recorder.lines) == MAX_KINDS + 1
    assert len(logger._budgets) == MAX_KINDS + 1


def test_the_level_changes_while_the_process_runs(pipe: tuple[int, int]) -> None:
    logs = open_logs("warning", "json", pipe[1])
    for expected in ("debug", "warning"):
        logs.logger.debug("before", expected=expected)
        logs.switch_level()
        logs.logger.debug("after", expected=expected)
    logs.close()
    lines = [json.loads(line) for line in read_lines(*pipe)]
    assert [(line["event"], line.get("log_level", line.get("expected"))) for line in lines] == [
        ("log_level_changed", "debug"),
        ("after", "debug"),
        ("before", "warning"),
        ("log_level_changed", "warning"),
    ]


def test_auto_is_json_where_nobody_looks(pipe: tuple[int, int]) -> None:
    logs = open_logs("info", "auto", pipe[1])
    logs.logger.info("serving")
    logs.close()
    assert json.loads(read_lines(*pipe)[0])["event"] == "serving"


def test_auto_is_for_people_on_a_terminal() -> None:
    ours, theirs = os.openpty()
    logs = open_logs("info", "auto", theirs)
    logs.logger.info("serving", grpc="x")
    logs.close()
    text = os.read(ours, 4096).decode()
    os.close(ours)
    os.close(theirs)
    assert "serving" in text
    assert not text.startswith("{")


def test_secrets_are_hidden_wherever_they_stand(pipe: tuple[int, int]) -> None:
    secrets = {"redis_password": "hunter2", "token": "hunter2"}
    logs = open_logs("info", "json", pipe[1])
    logs.logger.info(
        "odd",
        url="can't reach redis://bob:hunter2@h:1/0 now",
        header="Authorization: Bearer hunter2.x-y",
        tokens=3,
        nested={"api_key": "hunter2", "urls": ["rediss://:hunter2@h"]},
        **secrets,
    )
    try:
        raise RuntimeError("redis://:hunter2@h: refused")
    except RuntimeError as error:
        logs.logger.error("failed", exc_info=error)
    logs.close()
    text = "\n".join(read_lines(*pipe))
    assert "hunter2" not in text
    first = json.loads(text.splitlines()[0])
    assert (first["url"], first["tokens"]) == ("can't reach redis://***@h:1/0 now", 3)
    assert "refused" in text


def test_what_is_bound_to_a_context_is_in_its_lines(pipe: tuple[int, int]) -> None:
    logs = open_logs("info", "json", pipe[1])
    with structlog.contextvars.bound_contextvars(request_id="r-1"):
        logs.logger.info("inside")
    logs.logger.info("outside")
    logs.close()
    lines = [json.loads(line) for line in read_lines(*pipe)]
    assert [line.get("request_id") for line in lines] == ["r-1", None]
