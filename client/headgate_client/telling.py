"""What a client tells the server when something is over, and to which no decision comes back: settlements and refunds.

What fails is counted (`unsettled`) and logged, and never raised unless `on_error` is "raise". Whatever makes
room has the client ask again for all that it remembers as denied: keys may share a limit, so whom the room is for
the server must say.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from google.protobuf.message import DecodeError, Message

from headgate_client.backoff import CLOSED, CLOSED_MESSAGE
from headgate_client.breaker import BREAKER_OPEN
from headgate_client.core import Ask, Attempt, Core, Link
from headgate_client.values import RateLimitError
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse
from headgate_client.wire.headgate.v1.limits_pb2 import SettleRequest, SettleResponse

SETTLE_TRIES: Final = 2
"""A settlement counts once, however often it is sent."""


@dataclass(slots=True)
class Telling:
    """One of them on its way."""

    core: Core
    ask: Ask
    what: str
    """For the log."""
    method: Callable[[Link], Callable[..., Any]]
    answer: type[Message]
    gives_back: bool
    """Whether there may be room afterwards that was not there before."""
    counts: Callable[[Any], bool] = lambda answer: True
    """True of an answer by which this is what holds, and nothing that was said before."""
    tries: int = 1
    error: RateLimitError | None = None
    done: bool = False
    counted: bool = False

    def take(self, attempt: Attempt | None) -> None:
        """What came of one try."""
        if attempt is None and self.core.closed:
            self.error = RateLimitError(CLOSED, CLOSED_MESSAGE)
        elif attempt is None:
            self.error = RateLimitError(BREAKER_OPEN, "not asked: the server was away lately")
        elif attempt.error is not None:
            self.error = attempt.error
        else:
            try:
                answer = self.answer.FromString(attempt.response)
            except DecodeError:
                self.error = RateLimitError("INTERNAL", f"the answer is no {self.answer.__name__}")
            else:
                self.error, self.done, self.counted = None, True, self.counts(answer)

    def finish(self) -> bool:
        """Whether the server has it, and it counts. Raises the error if `on_error` says so."""
        if self.counted and self.gives_back:
            self.core.denials.forget()
        if self.error is not None:
            self.core.report.untold(self.what, self.error)
            if self.ask.on_error == "raise":
                raise self.error
        return self.counted


def settlement(core: Core, reservation: str, actual: int, ask: Ask) -> Telling:
    """What a reservation came to; of `ask`, the estimate, the timeout and the policy count."""
    payload = SettleRequest(id=reservation, actual=actual).SerializeToString()
    return Telling(
        core,
        replace(ask, request=payload),
        "what a reservation came to",
        lambda link: link.settle,
        SettleResponse,
        gives_back=ask.cost is None or actual < ask.cost,
        counts=lambda answer: bool(answer.actual == actual),
        tries=SETTLE_TRIES,
    )


def refund(core: Core, ask: Ask) -> Telling:
    """That what `ask` charged is given back. Once: sent again it would be given back again. Raises ValueError."""
    request = RateLimitRequest.FromString(ask.request)
    for number, descriptor in enumerate(request.descriptors):
        descriptor.is_negative_hits = True
        if not (descriptor.hits_addend.value if descriptor.HasField("hits_addend") else ask.cost):
            raise ValueError(f"cost: 1 or more is given back, got 0 for descriptors[{number}]")
    ask = replace(ask, request=request.SerializeToString())
    return Telling(core, ask, "what is given back", lambda link: link.call, RateLimitResponse, gives_back=True)
