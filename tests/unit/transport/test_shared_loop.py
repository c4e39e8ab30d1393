"""A loop and a thread that take turns: never both, and neither is kept from its turn."""

import asyncio
import threading
import time
import zlib
from collections import deque

import pytest
from headgate.transport.shared_loop import LoopLock, SharedLoop

from tests.support.waiting import PATIENCE_S, wait_until

ROUNDS = 200
BUSY_S = 0.0005
"""Time for which a thread that decides has the lock."""
SOME_BYTES = b"x" * 6_000
"""More than 5 KB: their sum is worked out without the interpreter, in some microseconds."""


def test_a_callback_and_a_thread_with_the_turn_never_run_together() -> None:
    """Each leaves a mark while it works, and gives up the processor in between: the other would see it."""
    inside: list[str] = []
    met: list[str] = []
    over = threading.Event()

    def work(name: str) -> None:
        met.extend(inside)
        inside.append(name)
        time.sleep(0.0001)
        inside.remove(name)

    def beside(lock: LoopLock) -> None:
        while not over.is_set():
            with lock:
                work("thread")

    async def on_the_loop() -> None:
        for _ in range(ROUNDS):
            work("loop")
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=SharedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SharedLoop)
        thread = threading.Thread(target=beside, args=(loop.lock,))
        thread.start()
        runner.run(on_the_loop())
        over.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert met == []


@pytest.mark.parametrize("busy", ["thread", "loop"])
def test_who_is_always_busy_lets_the_other_have_its_turn(busy: str) -> None:
    """Fair: with every turn of the one there is a turn of the other who waits for it."""
    over = threading.Event()
    turns = {"thread": 0, "loop": 0}

    def beside(lock: LoopLock) -> None:
        while not over.is_set():
            with lock:
                turns["thread"] += 1
            if busy == "loop" and turns["thread"] >= ROUNDS:
                over.set()

    async def on_the_loop() -> None:
        while not over.is_set():
            turns["loop"] += 1
            await asyncio.sleep(0)
            if busy == "thread" and turns["loop"] >= ROUNDS:
                over.set()

    with asyncio.Runner(loop_factory=SharedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SharedLoop)
        thread = threading.Thread(target=beside, args=(loop.lock,))
        thread.start()
        runner.run(asyncio.wait_for(on_the_loop(), PATIENCE_S))
        over.set()
    thread.join(PATIENCE_S)
    assert not thread.is_alive()


def test_a_loop_that_is_due_gets_its_turn_from_a_thread_that_gives_up_the_interpreter_for_moments_only() -> None:
    """As one does that decides calls and asks for more: too short for the loop to wake up. It has to have asked."""
    turns = {"thread": 0, "loop": 0}

    def beside(lock: LoopLock) -> None:
        while turns["loop"] < ROUNDS and turns["thread"] < 100 * ROUNDS:
            with lock:
                turns["thread"] += 1
                until = time.perf_counter() + BUSY_S
                while time.perf_counter() < until:
                    pass
            zlib.crc32(SOME_BYTES)

    async def on_the_loop() -> None:
        while turns["loop"] < ROUNDS:
            turns["loop"] += 1
            await asyncio.sleep(0.001)

    with asyncio.Runner(loop_factory=SharedLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SharedLoop)
        thread = threading.Thread(target=beside, args=(loop.lock,))
        thread.start()
        runner.run(on_the_loop())
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    assert turns["thread"] <= 20 * ROUNDS


def test_the_lock_is_handed_to_who_waits_whether_or_not_it_has_woken_up() -> None:
    """Who releases it can't have it again first, however busy the cores are."""
    lock, over = LoopLock(), threading.Event()

    def wait_for_it() -> None:
        with lock:
            over.wait(PATIENCE_S)

    lock.acquire()
    thread = threading.Thread(target=wait_for_it)
    thread.start()
    wait_until(lambda: len(lock._line) == 1, "the other stands in line")
    lock.release()
    assert not lock._held.acquire(False)
    over.set()
    with lock:
        assert not lock._line
    thread.join(PATIENCE_S)


def test_who_stands_in_line_just_when_the_lock_is_released_has_it() -> None:
    lock = LoopLock()
    lock._wait()
    assert (lock._held.locked(), len(lock._line)) == (True, 0), "it was free when it stood in line"

    class StoodInLineLater(deque[threading.Lock]):
        looks = 0

        def __bool__(self) -> bool:
            self.looks += 1
            return self.looks > 1

    gate = threading.Lock()
    gate.acquire()
    lock._line = StoodInLineLater([gate])
    lock.release()
    assert (lock._held.locked(), gate.locked()) == (True, False), "it was not free yet"


def test_a_closed_loop_leaves_the_turn_to_whoever_is_left() -> None:
    loop = SharedLoop()
    loop.close()
    loop.close()
    with loop.lock:
        pass
