"""Waiting for conditions, with one deadline for all: patience, which is never what a test asserts.

A test waits for what it needs to see, however long a busy machine takes for it; only what
would never come runs into the deadline. Where a machine that is too busy changes what is
decided (a request waits for the origin for a second at most, then its rule's policy
decides), the attempt says so, and another one is made.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

PATIENCE_S: Final = 60.0
"""For what takes milliseconds, or a second or two, on a machine that has nothing else to do."""
ATTEMPTS: Final = 5
"""Of which one must be undisturbed. What comes every time is no disturbance."""


def wait_until(
    condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S, every_s: float = 0.01
) -> None:
    """`every_s` is how often it looks: seldom, where looking is work for those who are waited for."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {timeout_s} s for {what}"
        time.sleep(every_s)


async def until(condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    """The same on the loop, which goes on meanwhile."""
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline_s, f"waited {timeout_s} s for {what}"
        await asyncio.sleep(0.005)


def undisturbed(attempt: Callable[[int], object]) -> None:
    """Attempts, by their number, until one has nothing to say of a machine that was too busy for it."""
    for number in range(ATTEMPTS):
        disturbance = attempt(number)
        if not disturbance:
            return
    raise AssertionError(f"{ATTEMPTS} times in a row: {disturbance}")
