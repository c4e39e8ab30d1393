"""Waiting for a condition on the loop, with a deadline."""

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], bool], what: str, timeout_s: float = 10.0) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            while not condition():  # noqa: ASYNC110 - what is waited for has no event to offer
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"waited {timeout_s} s for {what}") from None
