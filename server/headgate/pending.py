"""Methods of callers, and answers that come later: how whoever takes a request in gets the answer, on any thread and
with any transport.
"""

import asyncio
from collections.abc import Callable
from contextvars import Context

OnAnswer = Callable[[bytes | Exception], None]
"""Called once, on the loop: with the answer, or with the error that takes its place (`errors.status_of`)."""


class PendingAnswer:
    """A request that is not answered yet. Set `on_answer` at once, with the loop's lock held or on the loop."""

    __slots__ = ("context", "on_answer")

    on_answer: OnAnswer

    def __init__(self) -> None:
        self.context: Context | None = None
        """The context variables that the answer is written with; None: those of whoever decides."""


CallerMethod = Callable[[bytes, str], bytes | PendingAnswer]
"""Answers a message of a caller, at once where that is possible, else later. Raises, or hands on later, what
`errors.status_of` maps to a status. Called on the loop, or on a thread that holds its lock: so it does not wait."""


def answer_future(answer: bytes | PendingAnswer) -> "asyncio.Future[bytes]":
    """Return a future of the answer. Call it on the loop. Cancelling the future changes nothing for the decision."""
    future: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    if isinstance(answer, PendingAnswer):
        answer.on_answer = _Settling(future).settle
    else:
        future.set_result(answer)
    return future


class _Settling:
    """Settles a future with an answer. No closure: compiled, one would hold itself until the garbage collector runs."""

    __slots__ = ("_future",)

    def __init__(self, future: "asyncio.Future[bytes]") -> None:
        self._future = future

    def settle(self, answer: bytes | Exception) -> None:
        if self._future.done():
            return  # the caller went away; what was charged stays charged
        if isinstance(answer, Exception):
            self._future.set_exception(answer)
        else:
            self._future.set_result(answer)
