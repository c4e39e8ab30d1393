"""Everything about a call but the call itself: the same for threads and for asyncio.

A client makes an `Ask` of its arguments, looks whether the answer is known, and otherwise makes
the attempts that `Core.attempts` hands it, in its own way of waiting:

```python
attempts = core.attempts(ask, links)
for attempt in attempts:
    with attempt:
        attempt.response = attempt.link.call(ask.request, timeout=attempt.timeout_s, metadata=…)
return attempts.decision()
```

There is one attempt, as a rule: an answer that comes late is of no use, and a second call might be
charged a second time. Only a call that was never sent, because its server is not connected, goes to
the next address.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

import grpc
from google.protobuf.message import DecodeError

from headgate_client import arguments, channel
from headgate_client.arguments import Descriptors, OnError
from headgate_client.backoff import CLOSED, CLOSED_MESSAGE, Backoff, Waiting
from headgate_client.breaker import BREAKER_OPEN, Breaker
from headgate_client.channel import Address, Metadata, Tls, Token
from headgate_client.clock import SYSTEM_CLOCK, Clock
from headgate_client.denials import Denials
from headgate_client.report import FAILED_CLOSED, FAILED_OPEN, RAISED, OnDegraded, Report
from headgate_client.tls_mistake import tls_mistake
from headgate_client.values import Code, Decision, RateLimitError, decode_response
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitResponse

TIMEOUT_S: Final = 0.03
"""Well above the 5 ms that the server waits for its origin: it is near a limit that it waits, and there its
decision matters most."""
CONNECT_TIMEOUT_S: Final = 1.0
"""For name, TCP and TLS, once; a call's deadline does not pay for it."""
TIMER_LATE_S: Final = 0.002
"""By how much gRPC's timers are late nineteen times in twenty, whatever they are set to (their median is 3 ms, as
benchmarks/client.py shows): a thread's call is given that much less than the caller asked for. More would end calls
early. A task's call is ended by the loop's own timer, which wakes one thread where gRPC's wakes three."""
KEEP_DENIALS_S: Final = 60.0
"""A limit that is raised, or a key that is reset, is seen after that time at the latest by who was denied before."""

_NOT_SENT: Final = (
    "failed to connect to all addresses",
    "connections to all backends failing",
    "DNS resolution failed",
)
"""How gRPC says that there was no connection for a call. Unknown words only cost the second attempt."""
_LATE: Final = (grpc.StatusCode.DEADLINE_EXCEEDED,)
_AWAY: Final = (
    grpc.StatusCode.UNAVAILABLE,
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.INTERNAL,
    grpc.StatusCode.UNKNOWN,
    grpc.StatusCode.ABORTED,
    grpc.StatusCode.DATA_LOSS,
)
"""All other statuses are answers: the server is there, and refuses the request."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One question, checked and encoded."""

    request: bytes
    """What is sent, and what a denial of it is remembered by."""
    timeout_s: float
    on_error: OnError
    cost: int | None = None
    """None where it is not known."""


def _nothing(*_: Any, **__: Any) -> Any:
    raise RateLimitError("UNIMPLEMENTED", "this link has no such method")


@dataclass(slots=True)
class Link:
    """One channel, and whether to use it."""

    call: Callable[..., Any]
    """`call(request, timeout=…, metadata=…)`: the response's bytes, or an awaitable of them."""
    breaker: Breaker
    channel: Any = None
    probe: Any = None
    """A call that any server answers, if only to say that it doesn't know it; what it is for is to connect."""

    reserve: Callable[..., Any] = _nothing
    settle: Callable[..., Any] = _nothing
    """As `call`, for `headgate.v1.Limits`."""

    @classmethod
    def of(cls, channel_of_grpc: Any, clock: Clock) -> "Link":
        # Both ways as bytes: what was sent is also what denials are remembered by.
        call, probe, reserve, settle = [
            channel_of_grpc.unary_unary(method)
            for method in (channel.METHOD, channel.PROBE, channel.RESERVE, channel.SETTLE)
        ]
        return cls(call, Breaker(clock), channel_of_grpc, probe, reserve, settle)

    def probed(self, error: grpc.RpcError | None) -> None:
        """What became of the probe. A server that refuses connections is left to say why at the call."""
        if error is not None and error.code() in _LATE:
            self.breaker.was_unreachable("no connection was made in time", for_sure=True)


class Core:
    """A client's settings and what it remembers."""

    def __init__(
        self,
        addr: Address,
        domain: str,
        *,
        timeout: float,
        connect_timeout: float,
        on_error: OnError,
        tls: Tls | None,
        token: Token | None,
        keep_denials: float,
        backoff: Backoff | None,
        on_degraded: OnDegraded | None,
        clock: Clock | None,
    ) -> None:
        self.targets = channel.targets(addr)
        self.domain = arguments.check_domain(domain)
        self.timeout_s = arguments.check_seconds("timeout", timeout)
        self.connect_timeout_s = arguments.check_seconds("connect_timeout", connect_timeout)
        self.on_error = arguments.check_on_error(on_error)
        if tls is not None and not isinstance(tls, Tls):
            raise TypeError(f"tls: a headgate_client.Tls, got {type(tls).__name__}")
        if backoff is not None and not isinstance(backoff, Backoff):
            raise TypeError(f"backoff: a headgate_client.Backoff, got {type(backoff).__name__}")
        channel.check_token(token)
        arguments.check_callable("on_degraded", on_degraded)
        # Files are read here, so that one that is missing is an error of the start and not of the first request.
        self.credentials = None if tls is None else channel.credentials(tls)
        self._tls = tls
        self.options = [
            *channel.options(tls, channel.OPTIONS),
            # How long a connection may take before gRPC gives it up: longer than we wait for the first.
            ("grpc.min_reconnect_backoff_ms", max(1, int(2 * self.connect_timeout_s * 1000))),
            *channel.authority(self.targets),
        ]
        self.clock = clock or SYSTEM_CLOCK
        self._backoff = backoff or Backoff()
        self._token = token
        self._on_degraded = on_degraded
        self.closed = False
        self._keep_denials_s = arguments.check_seconds("keep_denials", keep_denials, zero=True)
        self._turn = itertools.count()
        self.begin()

    def begin(self) -> None:
        """Nothing counted, nothing remembered; in a child process too, where locks may be as a thread left them."""
        self.denials = Denials(self._keep_denials_s)
        self.report = Report(f"headgate at {','.join(self.targets)}", self.clock, self._on_degraded)

    def ask(
        self,
        descriptors: Descriptors | None,
        entries: Mapping[str, Any],
        cost: int,
        timeout: float | None = None,
        on_error: OnError | None = None,
    ) -> Ask:
        """A question of checked arguments. Raises TypeError or ValueError that name the wrong one."""
        return Ask(
            arguments.request_of(self.domain, descriptors, entries, cost),
            self.timeout_s if timeout is None else arguments.check_seconds("timeout", timeout),
            self.on_error if on_error is None else arguments.check_on_error(on_error),
            cost,
        )

    def undecided(self, error: RateLimitError, on_error: OnError | None) -> Decision:
        """Decide by `on_error` what could not be asked. Raises the error if that says so."""
        return self.give_up(Ask(b"", self.timeout_s, on_error or self.on_error), error)

    def settle_ask(self) -> Ask:
        """As this client is set, for a settlement by id."""
        return Ask(b"", self.timeout_s, self.on_error)

    def recall(self, ask: Ask) -> Decision | None:
        """The decision that needs no server: a denial that is still known, or, when closed, none at all."""
        if self.closed:
            return self.give_up(ask, RateLimitError(CLOSED, CLOSED_MESSAGE))
        known = self.denials.find(ask.request, self.clock.now_s())
        if known is not None:
            self.report.recalled()
        return known

    def attempts(self, ask: Ask, links: Sequence[Link]) -> "Attempts":
        return Attempts(self, ask, links, next(self._turn))

    def waiting(self, timeout: float | None) -> Waiting:
        """For `acquire`."""
        timeout_s = None if timeout is None else arguments.check_seconds("timeout", timeout, zero=True)
        return Waiting(self._backoff, self.clock, timeout_s)

    def metadata(self) -> Metadata:
        """Raises RateLimitError when the caller's function has no token to give."""
        if not callable(self._token):
            return channel.metadata(self._token)
        try:
            token = self._token()
            channel.check_token(token)
        except Exception as error:
            raise RateLimitError("UNAUTHENTICATED", f"token: the function failed: {error!r}") from error
        return channel.metadata(token)

    def accept(self, ask: Ask, response: bytes) -> Decision:
        """What the server decided."""
        try:
            message = RateLimitResponse.FromString(response)
        except DecodeError:
            return self.give_up(ask, RateLimitError("INTERNAL", "the answer is no RateLimitResponse"))
        decision = decode_response(message)
        # One with a `quota` says itself how long it holds: late costs are charged each time, denied or not.
        if not decision.allowed and not message.HasField("quota"):
            self.denials.keep(ask.request, decision, self.clock.now_s())
        self.report.decided(decision)
        if decision.no_rule:
            self.report.unlimited(ask.request, decision)
        return decision

    def _with_hint(self, error: RateLimitError) -> RateLimitError:
        """Add to an error of the connection what may be wrong with TLS."""
        if error.status not in ("UNAVAILABLE", BREAKER_OPEN):
            return error
        tls = self._tls
        mistake = tls_mistake(error.message, tls=tls is not None, certificate=tls is not None and tls.cert is not None)
        return error if mistake is None else RateLimitError(error.status, error.message, mistake.value)

    def give_up(self, ask: Ask, error: RateLimitError) -> Decision:
        """What `on_error` says. Raises the error if it says so."""
        error = self._with_hint(error)
        if ask.on_error == "raise":
            self.report.failed(RAISED, error)
            raise error
        is_open = ask.on_error == "open"
        decision = Decision(Code.OK if is_open else Code.OVER_LIMIT, error=error)
        self.report.failed(FAILED_OPEN if is_open else FAILED_CLOSED, error)
        self.report.call_back(decision)
        return decision


class Attempts:
    """To get one answer: goes round the links, from the one whose turn it is."""

    def __init__(self, core: Core, ask: Ask, links: Sequence[Link], turn: int) -> None:
        self._core = core
        self._ask = ask
        self._links = links
        self._turn = turn
        self._last: Attempt | None = None

    def __iter__(self) -> "Iterator[Attempt]":
        deadline_s = self._core.clock.now_s() + self._ask.timeout_s
        for number in range(len(self._links)):
            link = self._links[(self._turn + number) % len(self._links)]
            left_s = self._ask.timeout_s if number == 0 else deadline_s - self._core.clock.now_s()
            if left_s <= 0:
                return
            if not link.breaker.admits():
                continue
            self._last = attempt = Attempt(link, left_s)
            yield attempt
            if attempt.error is None or not attempt.error.message.startswith(_NOT_SENT):
                return

    def decision(self) -> Decision:
        """The server's, or else what `on_error` says."""
        if self._core.closed and (self._last is None or self._last.error is not None):
            return self._core.give_up(self._ask, RateLimitError(CLOSED, CLOSED_MESSAGE))
        if self._last is None:
            why = "; ".join(link.breaker.why for link in self._links)
            return self._core.give_up(self._ask, RateLimitError(BREAKER_OPEN, f"not asked, after: {why}"))
        if self._last.error is not None:
            return self._core.give_up(self._ask, self._last.error)
        return self._core.accept(self._ask, self._last.response)


class Attempt:
    """One call. As a context manager it takes what gRPC raises, or TimeoutError, and tells the breaker."""

    def __init__(self, link: Link, left_s: float) -> None:
        self.link = link
        self.left_s = left_s
        """Until the caller's deadline."""
        self.response = b""
        self.error: RateLimitError | None = None

    @property
    def timeout_s(self) -> float:
        """What to set gRPC's timer to, so that it ends the call after `left_s`; never less than half of it."""
        return max(self.left_s / 2, self.left_s - TIMER_LATE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        breaker = self.link.breaker
        if error is None:
            breaker.answered()
            return False
        if isinstance(error, TimeoutError):
            breaker.was_late()
            self.error = RateLimitError("DEADLINE_EXCEEDED", f"no answer in {self.left_s * 1000:.0f} ms")
            return True
        if not isinstance(error, grpc.RpcError):
            breaker.abandoned()
            self.error = error if isinstance(error, RateLimitError) else RateLimitError("INTERNAL", repr(error))
            # Whatever goes wrong here must not be the caller's trouble; to be cancelled or interrupted is its wish.
            return isinstance(error, Exception)
        status = error.code()
        self.error = RateLimitError(status.name, error.details() or "")
        if status in _LATE:
            breaker.was_late()
        elif status in _AWAY:
            breaker.was_unreachable(str(self.error))
        else:
            breaker.answered()
        return True
