"""The client for threads. One is enough for a process: share it, and close it at the end.

Nothing of gRPC exists before the first use, so a client made before a fork is as good as one made
after it; one that was used before has new connections in the child, at its first use there.
"""

import os
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import grpc

from headgate_client import extras, telling
from headgate_client.arguments import Descriptors, OnError, Rules
from headgate_client.backoff import Backoff
from headgate_client.channel import Address, Tls, Token
from headgate_client.clock import Clock
from headgate_client.core import CONNECT_TIMEOUT_S, KEEP_DENIALS_S, TIMEOUT_S, Ask, Core, Link
from headgate_client.forks import GATE
from headgate_client.limits import Cost, Guarded, Key, Limited, Rate
from headgate_client.report import OnDegraded
from headgate_client.reservations import (
    TTL_S,
    Reservation,
    Reserving,
    check_actual,
    check_estimate,
    reserve_ask,
)
from headgate_client.telling import Telling
from headgate_client.values import Decision, RateLimitError

_clients: "weakref.WeakSet[Headgate]" = weakref.WeakSet()
_parents: list[Sequence[Link]] = []
"""Links of the process that this one was forked from. Neither used nor ended here: the sockets are shared."""


class Headgate:
    """Asks for decisions: `Headgate("127.0.0.1:8081", "edge").check(user="alice")`.

    No call takes longer than `timeout`, apart from the first, which connects (`connect_timeout`); and none
    raises because of the server unless `on_error` is "raise". Times are in seconds.
    """

    def __init__(
        self,
        addr: Address,
        domain: str,
        *,
        timeout: float = TIMEOUT_S,
        connect_timeout: float = CONNECT_TIMEOUT_S,
        on_error: OnError = "open",
        tls: Tls | None = None,
        token: Token | None = None,
        keep_denials: float = KEEP_DENIALS_S,
        backoff: Backoff | None = None,
        on_degraded: OnDegraded | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._core = Core(
            addr,
            domain,
            timeout=timeout,
            connect_timeout=connect_timeout,
            on_error=on_error,
            tls=tls,
            token=token,
            keep_denials=keep_denials,
            backoff=backoff,
            on_degraded=on_degraded,
            clock=clock,
        )
        self._links: Sequence[Link] | None = None
        self._connecting = threading.Lock()
        _clients.add(self)

    @staticmethod
    def local(rules: Rules | None = None, domain: str | None = None, **options: Any) -> "Headgate":
        """Decide in this process, without a server: for one process, and for tests.

        `rules` are a file, a directory, or what rules files hold; without any, limits come with descriptors
        (`limit("5/minute", …)`). `domain` may be left out where there is one. Options are the constructor's. Raises
        ImportError where `headgate-client[local]` is not installed, and ValueError for rules that are wrong.
        """
        limiter: Headgate = extras.local().LocalHeadgate(rules, domain, **options)
        return limiter

    def __repr__(self) -> str:
        return f"<Headgate {self._core.domain!r} at {', '.join(self._core.targets)}>"

    def check(
        self,
        descriptors: Descriptors | None = None,
        /,
        *,
        cost: int = 1,
        timeout: float | None = None,
        on_error: OnError | None = None,
        **entries: str,
    ) -> Decision:
        """Whether this is within its limits; if so it is charged.

        Keywords form one descriptor, in their order; several are a list of mappings, admitted all or none. Keys that
        are no Python names, or that are names of arguments, go into a list too. A `cost` of 0 only looks.
        """
        return self._decide(self._core.ask(descriptors, entries, cost, timeout, on_error))

    def _decide(self, ask: Ask) -> Decision:
        known = self._core.recall(ask)
        if known is not None:
            return known
        attempts = self._core.attempts(ask, self._links or self._connected())
        for attempt in attempts:
            with attempt, GATE:
                attempt.response = attempt.link.call(
                    ask.request, timeout=attempt.timeout_s, metadata=self._core.metadata()
                )
        return attempts.decision()

    def undecided(self, error: RateLimitError, on_error: OnError | None = None) -> Decision:
        """Decide by `on_error` what could not be asked, as if the server had not answered: counted, logged and told."""
        return self._core.undecided(error, on_error)

    def acquire(
        self,
        descriptors: Descriptors | None = None,
        /,
        *,
        cost: int = 1,
        timeout: float | None = None,
        on_error: OnError | None = None,
        **entries: str,
    ) -> Decision:
        """Wait until it is within its limits, for `timeout` seconds at most, or as long as it takes.

        The denial comes back at once when the next try would be after the timeout.
        """
        ask = self._core.ask(descriptors, entries, cost, None, on_error)
        waiting = self._core.waiting(timeout)
        while True:
            decision = self._decide(ask)
            wait_s = waiting.next_s(decision)
            if wait_s is None:
                return decision
            self._core.clock.sleep(wait_s)

    def reserve(
        self,
        descriptors: Descriptors | None = None,
        /,
        *,
        estimate: int,
        ttl: float = TTL_S,
        timeout: float | None = None,
        on_error: OnError | None = None,
        **entries: str,
    ) -> Reservation:
        """Charge an estimate, to be settled when it is known what it came to; use it as a context manager.

        Descriptors are those of `check`. After `ttl` seconds without a settlement the estimate stands.
        """
        ask = reserve_ask(self._core.ask(descriptors, entries, check_estimate(estimate), timeout, on_error), ttl)
        reserving = Reserving()
        decision = self._core.recall(ask)
        if decision is None:
            attempts = self._core.attempts(ask, self._links or self._connected())
            for attempt in attempts:
                with attempt, GATE:
                    answer = attempt.link.reserve(
                        ask.request, timeout=attempt.timeout_s, metadata=self._core.metadata()
                    )
                    reserving.take(attempt, answer)
            decision = attempts.decision()
        return Reservation(decision, reserving.id, ask, self._settle)

    def settle(self, reservation: str, actual: int) -> bool:
        """Settle by its id, also one that another process made. True if the server has it settled with that."""
        return self._settle(reservation, check_actual(actual), self._core.settle_ask())

    def _settle(self, reservation: str, actual: int, ask: Ask) -> bool:
        return self._tell(telling.settlement(self._core, reservation, actual, ask))

    def refund(
        self,
        descriptors: Descriptors | None = None,
        /,
        *,
        cost: int = 1,
        timeout: float | None = None,
        on_error: OnError | None = None,
        **entries: str,
    ) -> bool:
        """Give back what a `check` of the same charged, as far as it still counts. Whether the server was told.

        For rules with `refund: true`; on others it fails. It is not repeated: twice would be given back twice.
        """
        ask = self._core.ask(descriptors, entries, cost, timeout, on_error)
        return self._tell(telling.refund(self._core, ask))

    def _tell(self, told: Telling) -> bool:
        for _ in range(told.tries):
            last = None
            for last in self._core.attempts(told.ask, self._links or self._connected()):
                with last, GATE:
                    call = told.method(last.link)
                    last.response = call(told.ask.request, timeout=last.timeout_s, metadata=self._core.metadata())
            told.take(last)
            if told.done:
                break
        return told.finish()

    def limit(
        self,
        rate: Rate | Key | None = None,
        /,
        key: Key | None = None,
        *,
        cost: Cost = 1,
        wait: float | None = None,
        on_error: OnError | None = None,
        **entries: str,
    ) -> Limited:
        """A decorator and a context manager: what it guards is done within its limits, or RateLimited is raised.

        `key` is a descriptor, a list of them, or a function that makes one of the arguments of the decorated function;
        None from it is an exemption. `cost` may be such a function too. `wait` seconds are waited for room. A `rate`
        such as `5/minute` before it goes along with each descriptor; what holds then is up to the server.
        """
        return Limited(self, Guarded.of(rate, key, entries, cost, wait, on_error))

    @property
    def counters(self) -> Mapping[str, int]:
        """Calls by outcome: `allowed`, `denied`, `denied_from_memory`, `failed_open`, `failed_closed`, `raised`."""
        return self._core.report.outcomes

    @property
    def errors(self) -> Mapping[str, int]:
        """Calls that the server did not decide, by why: `UNAVAILABLE`, `DEADLINE_EXCEEDED`, `BREAKER_OPEN`…"""
        return self._core.report.errors

    @property
    def unsettled(self) -> int:
        """Settlements and refunds that the server was not told: what was charged stands."""
        return self._core.report.unsettled_so_far

    @property
    def no_rule(self) -> int:
        """Calls that no rule applied to, by what the server says: a typo in the domain or in a key leaves them
        unlimited."""
        return self._core.report.unlimited_so_far

    @property
    def denials_dropped(self) -> int:
        """Denials forgotten before their time because too many were remembered: each is asked for again."""
        return self._core.denials.dropped

    @property
    def reachable(self) -> bool:
        """False while every breaker is open: nobody is asked. (True before the first use.)"""
        return not self._links or any(link.breaker.closed for link in self._links)

    def close(self) -> None:
        """End the connections. Calls after it are answered by `on_error`."""
        self._core.closed = True
        with self._connecting:
            links, self._links = self._links or (), ()
        for link in links:
            link.channel.close()

    def __enter__(self) -> Self:
        self._connected()
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self.close()

    def _connected(self) -> Sequence[Link]:
        """The links; the first to need them makes them, and all wait for that, `connect_timeout` at most."""
        with self._connecting:
            if self._links is None and not self._core.closed:
                self._links = self._open_links()
            return self._links or ()

    def _open_links(self) -> Sequence[Link]:
        links = [_open(self._core, target) for target in self._core.targets]
        timeout_s = self._core.connect_timeout_s
        with GATE:
            # Several at a time; a single one needs no thread of gRPC's for it.
            others = [(link, link.probe.future(b"", timeout=timeout_s)) for link in links[1:]]
            links[0].probed(_failure(lambda: links[0].probe(b"", timeout=timeout_s)))
            for link, call in others:
                link.probed(_failure(call.result))
        return links

    def _forked(self) -> None:
        if self._links:
            _parents.append(self._links)
        self._links = () if self._core.closed else None
        self._connecting = threading.Lock()
        self._core.begin()


def _open(core: Core, target: str) -> Link:
    if core.credentials is None:
        opened = grpc.insecure_channel(target, core.options)
    else:
        opened = grpc.secure_channel(target, core.credentials, core.options)
    return Link.of(opened, core.clock)


def _failure(call: Callable[[], object]) -> grpc.RpcError | None:
    try:
        call()
    except grpc.RpcError as error:
        return error
    return None


def _after_fork_in_child() -> None:
    for client in list(_clients):
        client._forked()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
