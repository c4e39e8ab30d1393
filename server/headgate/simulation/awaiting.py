"""Waiting for a decision with a future, where the request path has a callback."""

import asyncio

from headgate.limiter.decision import Decision
from headgate.region.waiting import WaitingRequest


def future_of(waiting: WaitingRequest) -> "asyncio.Future[Decision]":
    """Return a future of the request's decision, on the running loop."""
    future: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()

    def decided(decision: Decision) -> None:
        if not future.done():  # the caller may have gone away; what was decided is counted all the same
            future.set_result(decision)

    waiting.on_decided = decided
    return future
