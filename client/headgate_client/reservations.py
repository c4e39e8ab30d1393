"""Costs that are known when it is over: `limiter.reserve(…)` charges an estimate, settling it makes up the difference.

```python
with limiter.reserve(estimate=500, user="alice") as reservation:
    answer = ask_the_model()
    reservation.actual = answer.tokens
```

The block is left settled with `actual`, also by an exception; without one nothing is said, and the estimate stands. A
settlement counts once, however often it is sent, so it is tried twice. What fails is counted and logged, and never
raised unless `on_error` is "raise".
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Final, Self

from google.protobuf.message import DecodeError

from headgate_client import arguments
from headgate_client.core import Ask, Attempt
from headgate_client.values import Decision, RateLimited, RateLimitError
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest
from headgate_client.wire.headgate.v1.limits_pb2 import ReserveRequest, ReserveResponse

TTL_S: Final = 600.0
"""For how long a reservation can be settled; then its estimate stands."""
LONGEST_TTL_S: Final = 86_400.0
MAX_ACTUAL: Final = 2**32 - 1


def reserve_ask(ask: Ask, ttl_s: float) -> Ask:
    """The question as `Reserve` takes it. Raises ValueError for a time to live that no server accepts."""
    if arguments.check_seconds("ttl", ttl_s) > LONGEST_TTL_S:
        raise ValueError(f"ttl: at most {LONGEST_TTL_S:g} seconds, got {ttl_s!r}")
    request = RateLimitRequest.FromString(ask.request)
    message = ReserveRequest(request=request, ttl_ms=max(1, round(ttl_s * 1000)))
    return replace(ask, request=message.SerializeToString())


def check_estimate(estimate: int) -> int:
    """Raises TypeError or ValueError."""
    if isinstance(estimate, bool) or not isinstance(estimate, int):
        raise TypeError(f"estimate: an int, got {type(estimate).__name__} {estimate!r}")
    if not 1 <= estimate <= MAX_ACTUAL:
        raise ValueError(f"estimate: from 1 to {MAX_ACTUAL}, got {estimate}")
    return estimate


def check_actual(actual: int) -> int:
    """Raises TypeError or ValueError."""
    if isinstance(actual, bool) or not isinstance(actual, int):
        raise TypeError(f"actual: an int, got {type(actual).__name__} {actual!r}")
    if not 0 <= actual <= MAX_ACTUAL:
        raise ValueError(f"actual: from 0 to {MAX_ACTUAL}, got {actual}")
    return actual


@dataclass(slots=True)
class Reserving:
    """One call of `Reserve` on its way: takes its answers apart."""

    id: str = ""

    def take(self, attempt: Attempt, answer: bytes) -> None:
        """The decision in the answer becomes the attempt's; the id is kept."""
        try:
            response = ReserveResponse.FromString(answer)
        except DecodeError:
            raise RateLimitError("INTERNAL", "the answer is no ReserveResponse") from None
        self.id = response.id
        attempt.response = response.decision.SerializeToString()


class _Held:
    """What both kinds of reservations are."""

    def __init__(self, decision: Decision, id: str, ask: Ask, settle: Callable[[str, int, Ask], Any]) -> None:  # noqa: A002
        self.decision = decision
        """Whether the estimate fitted, and what is left."""
        self.id = id
        """By which it is settled, here or by whoever gets it; empty where there is nothing to settle."""
        self.actual: int | None = None
        """What it came to, as far as it is known: leaving the block settles with it."""
        self._ask = ask
        self._settle = settle
        self._sent = False

    def __repr__(self) -> str:
        """Say how it stands. The id is left out: who has it can settle."""
        if self.decision.degraded:
            state = f"not decided by the server ({self.decision.error})"
        elif not self.decision:
            state = f"denied, again in {self.decision.retry_after:.3f} s"
        elif self._sent:
            state = f"settled with {self.actual}"
        else:
            state = "open" if self.id else "admitted, nothing to settle"
        return f"<{type(self).__name__} of {self._ask.cost}: {state}>"

    def __bool__(self) -> bool:
        return bool(self.decision)

    def _told(self, actual: int, *, counts: bool) -> bool:
        """Note what became of a settlement: one that was made before stands."""
        if counts or not self._sent:
            self.actual = actual
        self._sent = self._sent or counts
        return counts

    def _check(self) -> None:
        if not self.decision:
            raise RateLimited(self.decision)

    def _left(self) -> int | None:
        """What is still to be said when the block ends."""
        return None if self._sent else self.actual


class Reservation(_Held):
    """An estimate that was charged, or denied. As a context manager it raises RateLimited when it was denied."""

    def settle(self, actual: int) -> bool:
        """Say what it came to. True if the server has it settled with that, also by an earlier call; False where
        another amount was said before, which stands, where the server was not told, and where nothing was charged.
        """
        check_actual(actual)
        counts = bool(self.id) and bool(self._settle(self.id, actual, self._ask))
        return self._told(actual, counts=counts)

    def __enter__(self) -> Self:
        self._check()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        left = self._left()
        if left is not None:
            self.settle(left)


class AsyncReservation(_Held):
    """The same for asyncio, with `async with`."""

    async def settle(self, actual: int) -> bool:
        """Say what it came to. True if the server has it settled with that, also by an earlier call; False where
        another amount was said before, which stands, where the server was not told, and where nothing was charged.
        """
        check_actual(actual)
        counts = bool(self.id) and bool(await self._settle(self.id, actual, self._ask))
        return self._told(actual, counts=counts)

    async def __aenter__(self) -> Self:
        self._check()
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        left = self._left()
        if left is not None:
            await self.settle(left)


class AwaitedReservation:
    """What `AsyncHeadgate.reserve` returns: to be awaited, or entered with `async with`."""

    def __init__(self, begin: Callable[[], Any]) -> None:
        self._begin = begin
        self._reservation: AsyncReservation | None = None

    def __await__(self) -> Any:
        return self._begin().__await__()

    async def __aenter__(self) -> AsyncReservation:
        self._reservation = await self._begin()
        return await self._reservation.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reservation is not None:
            await self._reservation.__aexit__(kind, error, trace)
