"""Waiting for a decision with a future, where the request path has a callback."""

import asyncio
from functools import partial

from headgate.limiter.decision import Decision
from headgate.region.waiting import WaitingRequest
from headgate.simulation.network import settle


def future_of(waiting: WaitingRequest) -> "asyncio.Future[Decision]":
    """Return a future of the request's decision, on the running loop."""
    future: asyncio.Future[Decision] = asyncio.get_running_loop().create_future()
    waiting.on_decided = partial(settle, future)
    return future
