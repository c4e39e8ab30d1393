"""Shares of the loop's time: what one caller's HTTP requests may take of it, whatever they are.

Decisions over gRPC are made by the same process. So the time that a request takes on the loop is measured, step by
step, and who has taken more than his share waits before his next one is begun: requests of one network begin so far
apart that they take a quarter of the time. Scrapes have a part of their own, so that whoever looks from the address of
a flood sees it; and so have health checks, which do not wait.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, Generic, TypeVar


class RequestKind(Enum):
    """Kinds of requests, each with a share of its own."""

    REQUEST = "request"
    SCRAPE = "scrape"
    """For `/metrics`, which are rendered already."""
    PROBE = "probe"
    """Health checks."""


SHARES: Final = {RequestKind.REQUEST: 4, RequestKind.SCRAPE: 16, RequestKind.PROBE: 4}
"""One network may take one part in so many: of scrapes some two hundred in a second, far more than anybody needs."""
CREDIT_S: Final = 0.005
"""Time that a network may be ahead of its share: nobody waits who asks now and then."""
OVERHEAD_S: Final = 0.0003
"""Time that a request takes beside its handler: reading it, and writing its answer."""
OPENING_S: Final = {RequestKind.REQUEST: 0.0003, RequestKind.SCRAPE: 0.0003, RequestKind.PROBE: 0.001}
"""Time that a new connection takes, until its first request; a health check's with its answer."""
MOST_BEHIND_S: Final = 1.0
"""Time that a network may have ahead of it when it opens another connection: some hundred connections or requests."""
MOST_SHARES: Final = 1_024
"""Shares of networks that are known; of more, those from which nothing was asked for longest are forgotten."""

Answer = TypeVar("Answer")


@dataclass(slots=True)
class _Share:
    until_s: float
    """Time at which what the network has begun is paid for."""
    usual_s: float = OVERHEAD_S
    """Time that its requests of this kind take lately."""


class LoopShares:
    """Says how long a network is to wait before its next request is begun."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._shares: OrderedDict[tuple[str, RequestKind], _Share] = OrderedDict()

    def begin(self, network: str, kind: RequestKind = RequestKind.REQUEST) -> float:
        """Take the place of one request, for what one takes usually; return how long to wait for it, in seconds."""
        now_s = self._monotonic()
        share = self._of(network, kind, now_s)
        begins_s = max(share.until_s, now_s)
        share.until_s = begins_s + SHARES[kind] * share.usual_s
        return begins_s - now_s if begins_s - now_s > CREDIT_S else 0.0

    def may_open(self, network: str, kind: RequestKind = RequestKind.REQUEST) -> bool:
        """Take the time of a new connection; False: what the network has begun takes too long already."""
        now_s = self._monotonic()
        share = self._of(network, kind, now_s)
        if share.until_s - now_s > MOST_BEHIND_S:
            return False
        share.until_s = max(share.until_s, now_s) + SHARES[kind] * OPENING_S[kind]
        return True

    def ended(self, network: str, took_s: float, kind: RequestKind = RequestKind.REQUEST) -> None:
        """Make up the difference to what the request took."""
        share = self._shares.get((network, kind))
        if share is not None:
            took_s += OVERHEAD_S
            share.until_s += SHARES[kind] * (took_s - share.usual_s)
            share.usual_s += (took_s - share.usual_s) / 8

    def _of(self, network: str, kind: RequestKind, now_s: float) -> _Share:
        share = self._shares.setdefault((network, kind), _Share(now_s))
        self._shares.move_to_end((network, kind))
        if len(self._shares) > MOST_SHARES:
            self._shares.popitem(last=False)
        return share


class Timed(Generic[Answer]):
    """A coroutine to await, and the time that its own steps took on the loop."""

    def __init__(self, coroutine: Coroutine[Any, Any, Answer]) -> None:
        self.took_s = 0.0
        self._coroutine = coroutine

    def __await__(self) -> Generator[Any, Any, Answer]:
        step: Callable[[], Any] = lambda: self._coroutine.send(None)  # noqa: E731 - replaced at every step
        while True:
            began_s = time.monotonic()
            try:
                waits_for = step()
            except StopIteration as end:
                answer: Answer = end.value
                return answer
            finally:
                self.took_s += time.monotonic() - began_s
            step = yield from self._wait(waits_for)

    def _wait(self, waits_for: Any) -> Generator[Any, Any, Callable[[], Any]]:
        """Hand the loop what the coroutine waits for; return its next step: to go on, or to take an error."""
        try:
            sent = yield waits_for
        except BaseException as error:
            thrown = error
            return lambda: self._coroutine.throw(thrown)
        return lambda: self._coroutine.send(sent)
