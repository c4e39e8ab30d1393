"""Signals and orders to stop: what each does, in which order, and with which exit status the process ends."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from headgate.runtime.stopping import Stopping

TERM, INT = signal.SIGTERM, signal.SIGINT
LONG_S = 600.0
"""An alarm that never rings while a test runs."""


class Log:
    def __init__(self) -> None:
        self.lines: list[dict[str, Any]] = []

    def info(self, event: str, **fields: Any) -> None:
        self.lines.append({"event": event, **fields})


class Cut(BaseException):
    """Instead of the process's end."""


@pytest.fixture(autouse=True)
def _handlers_stay_as_they_are() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (TERM, INT, signal.SIGALRM)}
    yield
    assert {number: signal.getsignal(number) for number in (TERM, INT)} == {TERM: before[TERM], INT: before[INT]}
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0), "no alarm is left"
    signal.signal(signal.SIGALRM, before[signal.SIGALRM])


def send(number: signal.Signals) -> Callable[[Stopping], None]:
    return lambda _: os.kill(os.getpid(), number)


def stop(it: Stopping) -> None:
    it.stop("somebody asks")


def hurry(it: Stopping) -> None:
    it.hurry()


BY_SIGNAL = {"event": "stopping", "signal": "SIGTERM", "state": "serving"}
BY_ORDER = {"event": "stopping", "reason": "somebody asks", "state": "serving"}


@pytest.mark.parametrize(
    ("steps", "forced", "status", "lines"),
    [
        pytest.param([send(TERM)], None, 0, [BY_SIGNAL], id="one signal drains"),
        pytest.param([send(TERM), send(TERM)], TERM, 143, [BY_SIGNAL], id="a second SIGTERM hurries"),
        pytest.param([send(TERM), send(INT)], INT, 130, [BY_SIGNAL], id="the second signal is the status"),
        pytest.param([stop], None, 0, [BY_ORDER], id="an order drains"),
        pytest.param([stop, stop], None, 0, [BY_ORDER], id="a second order changes nothing"),
        pytest.param([send(TERM), stop], None, 0, [BY_SIGNAL], id="an order after a signal changes nothing"),
        pytest.param([stop, send(TERM)], None, 0, [BY_ORDER, BY_SIGNAL], id="a first signal never hurries"),
        pytest.param([stop, hurry], TERM, 143, [BY_ORDER], id="an order to hurry"),
        pytest.param([send(TERM), hurry], TERM, 143, [BY_SIGNAL], id="an order to hurry after a signal"),
        pytest.param([hurry], TERM, 143, [], id="an order to hurry alone stops too"),
    ],
)
async def test_what_each_signal_and_order_does(
    steps: list[Callable[[Stopping], None]], forced: signal.Signals | None, status: int, lines: list[dict[str, str]]
) -> None:
    log, stops = Log(), []
    it = Stopping(
        log, state=lambda: "serving", cut_after_s=LONG_S, before_cut=pytest.fail, on_stop=lambda: stops.append(1)
    )
    with it:
        for step in steps:
            step(it)
            assert it.asked, "known at once, whatever the loop is doing"
            await asyncio.sleep(0)  # the loop's turn: signals are noted on it
        await it.wait()
        assert it.hurried.is_set() is (forced is not None)
        assert (it.forced, it.exit_status) == (forced, status)
        armed_s = signal.getitimer(signal.ITIMER_REAL)[0]
        assert (0 < armed_s <= LONG_S) if forced else armed_s == 0
    assert log.lines == lines
    assert len(stops) == len(lines)


async def test_nothing_happens_before_it_is_asked() -> None:
    it = Stopping(Log(), state=lambda: "serving", cut_after_s=LONG_S, before_cut=pytest.fail)
    with it:
        await asyncio.sleep(0)
        assert not it.asked
        assert not it.hurried.is_set()
        waiting = asyncio.create_task(it.wait())
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
    assert it.exit_status == 0


@pytest.mark.parametrize(
    ("steps", "status"),
    [
        pytest.param([send(TERM), send(TERM), send(INT)], 143, id="a third signal"),
        pytest.param([send(INT), send(INT), hurry], 130, id="an order to hurry after the second"),
        pytest.param([stop, hurry, hurry], 143, id="two orders to hurry"),
    ],
)
async def test_who_insists_once_more_cuts_it_with_the_status_of_the_second(
    monkeypatch: pytest.MonkeyPatch, steps: list[Callable[[Stopping], None]], status: int
) -> None:
    done: list[Any] = []

    def leave(with_status: int) -> None:
        done.append(with_status)
        raise Cut

    monkeypatch.setattr(os, "_exit", leave)
    it = Stopping(Log(), state=lambda: "", cut_after_s=LONG_S, before_cut=lambda: done.append("nothing stays behind"))
    *first, last = steps
    with it:
        for step in first:
            step(it)
        assert done == []
        with pytest.raises(Cut):
            last(it)
    assert done == ["nothing stays behind", status]


async def test_signals_that_were_ignored_by_inheritance_count_and_are_ignored_again_afterwards() -> None:
    """A shell without job control lets what it starts with `&` ignore SIGINT."""
    before = signal.signal(INT, signal.SIG_IGN)
    try:
        with Stopping(Log(), state=lambda: "", cut_after_s=LONG_S, before_cut=pytest.fail) as it:
            os.kill(os.getpid(), INT)
            assert it.asked
        assert signal.getsignal(INT) is signal.SIG_IGN
    finally:
        signal.signal(INT, before)


STUCK = """
import asyncio, os, signal, sys, time
from headgate.runtime.stopping import Stopping

class Log:
    def info(self, event, **fields): pass

async def life():
    with Stopping(Log(), state=str, cut_after_s=0.05, before_cut=lambda: os.write(1, b"cut")):
        os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGINT)
        while True:
            time.sleep(0.01)

asyncio.run(life())
"""


def test_an_alarm_cuts_a_process_whose_loop_is_stuck() -> None:
    ended = subprocess.run([sys.executable, "-c", STUCK], capture_output=True, timeout=60, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"cut", b"")


async def test_a_process_that_drains_says_how_long_and_how_to_end_it() -> None:
    log = Log()
    with Stopping(log, state=lambda: "serving", cut_after_s=LONG_S, before_cut=pytest.fail, drain_s=5.0) as it:
        send(TERM)(it)
        await it.wait()
    assert log.lines == [{**BY_SIGNAL, "drain_s": 5.0, "again": "a second signal ends it at once"}]
