"""The client for asyncio: the same calls and values as `Headgate`'s, awaited.

It may be made anywhere, before there is a loop too: connections belong to the loop that first uses
them, and a client that is used in another loop, or another process, has connections of its own there.
It starts no task. A fork ends the connections; both processes connect again at their next use. Only where calls
were under way at the fork, or somebody else has channels of grpc.aio, the child's gRPC is no good for asyncio:
calls there are answered by `on_error`, with the error FORKED.
"""

import asyncio
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

import grpc
import grpc.aio

from headgate_client import extras, telling
from headgate_client.arguments import Descriptors, OnError, Rules
from headgate_client.backoff import CLOSED, CLOSED_MESSAGE, Backoff
from headgate_client.channel import Address, Tls, Token
from headgate_client.clock import Clock
from headgate_client.core import CONNECT_TIMEOUT_S, KEEP_DENIALS_S, TIMEOUT_S, Ask, Attempt, Core, Link
from headgate_client.deadline import Lane
from headgate_client.forks import settle
from headgate_client.limits import AsyncLimited, Cost, Guarded, Key, Rate
from headgate_client.report import OnDegraded
from headgate_client.reservations import (
    TTL_S,
    AsyncReservation,
    AwaitedReservation,
    Reserving,
    check_actual,
    check_estimate,
    reserve_ask,
)
from headgate_client.telling import Telling
from headgate_client.values import Decision, RateLimitError

_clients: "weakref.WeakSet[AsyncHeadgate]" = weakref.WeakSet()
_parents: list[object] = []
"""Links of the process that this one was forked from. Neither used nor ended here: the sockets are shared."""


@dataclass(slots=True)
class _Connections:
    """Those of one loop."""

    links: Sequence[Link] | None = None
    connecting: asyncio.Lock = field(default_factory=asyncio.Lock)
    lane: Lane = field(default_factory=Lane)


class AsyncHeadgate:
    """Asks for decisions: `await AsyncHeadgate("127.0.0.1:8081", "edge").check(user="alice")`.

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
        # Held until they are let go in so many words: gRPC's thread runs until its last channel is gone.
        self._loops: dict[asyncio.AbstractEventLoop, _Connections] = {}
        _clients.add(self)

    @staticmethod
    def local(rules: Rules | None = None, domain: str | None = None, **options: Any) -> "AsyncHeadgate":
        """Decide in this process, without a server: for one process, and for tests.

        `rules` are a file, a directory, or what rules files hold; without any, limits come with descriptors
        (`limit("5/minute", …)`). `domain` may be left out where there is one. Options are the constructor's. Raises
        ImportError where `headgate-client[local]` is not installed, and ValueError for rules that are wrong.
        """
        limiter: AsyncHeadgate = extras.local().LocalAsyncHeadgate(rules, domain, **options)
        return limiter

    def __repr__(self) -> str:
        return f"<AsyncHeadgate {self._core.domain!r} at {', '.join(self._core.targets)}>"

    async def check(
        self,
        descriptors: Descriptors | None = None,
        /,
        *,
        cost: int = 1,
        timeout: float | None = None,  # noqa: ASYNC109  gRPC keeps it
        on_error: OnError | None = None,
        **entries: str,
    ) -> Decision:
        """Whether this is within its limits; if so it is charged.

        Keywords form one descriptor, in their order; several are a list of mappings, admitted all or none. Keys that
        are no Python names, or that are names of arguments, go into a list too. A `cost` of 0 only looks.
        """
        return await self._decide(self._core.ask(descriptors, entries, cost, timeout, on_error))

    async def _decide(self, ask: Ask, call: Callable[[Attempt], Awaitable[None]] | None = None) -> Decision:
        known = self._core.recall(ask)
        if known is not None:
            return known
        if _fork.unusable:
            return self._core.give_up(ask, _forked_error())
        attempts = self._core.attempts(ask, await self._connected())
        for attempt in attempts:
            with attempt:
                if call is None:
                    attempt.response = await self._asked(attempt.link.call, ask.request, attempt.left_s)
                else:
                    await call(attempt)
        return attempts.decision()

    async def _asked(self, method: Callable[..., Awaitable[bytes]], request: bytes, left_s: float) -> bytes:
        """Raises TimeoutError at the deadline, or RateLimitError where it came before the call's turn."""
        lane = self._loops[asyncio.get_running_loop()].lane
        with lane.deadline(left_s) as deadline:
            async with lane.slots:
                timeout_s = deadline.send()
                try:
                    answer: bytes = await method(request, timeout=timeout_s, metadata=self._core.metadata())
                except asyncio.CancelledError:
                    # A channel that is closed cancels its calls; the task itself was not cancelled.
                    task = asyncio.current_task()
                    if self._core.closed and (task is None or not task.cancelling()):
                        raise RateLimitError(CLOSED, CLOSED_MESSAGE) from None
                    raise
        return answer

    def undecided(self, error: RateLimitError, on_error: OnError | None = None) -> Decision:
        """Decide by `on_error` what could not be asked, as if the server had not answered: counted, logged and told."""
        return self._core.undecided(error, on_error)

    async def acquire(
        self,
        descriptors: Descriptors | None = None,
        /,
        *,
        cost: int = 1,
        timeout: float | None = None,  # noqa: ASYNC109  None of the waits is longer
        on_error: OnError | None = None,
        **entries: str,
    ) -> Decision:
        """Wait until it is within its limits, for `timeout` seconds at most, or as long as it takes.

        The denial comes back at once when the next try would be after the timeout.
        """
        ask = self._core.ask(descriptors, entries, cost, None, on_error)
        waiting = self._core.waiting(timeout)
        while True:
            decision = await self._decide(ask)
            wait_s = waiting.next_s(decision)
            if wait_s is None:
                return decision
            await self._core.clock.sleep_async(wait_s)

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
    ) -> AwaitedReservation:
        """Charge an estimate, to be settled when it is known what it came to: `async with limiter.reserve(…)`.

        Descriptors are those of `check`. After `ttl` seconds without a settlement the estimate stands. Awaited instead
        of entered it gives the reservation, denied or not.
        """
        ask = reserve_ask(self._core.ask(descriptors, entries, check_estimate(estimate), timeout, on_error), ttl)
        return AwaitedReservation(lambda: self._reserve(ask))

    async def _reserve(self, ask: Ask) -> AsyncReservation:
        reserving = Reserving()

        async def call(attempt: Attempt) -> None:
            answer = await self._asked(attempt.link.reserve, ask.request, attempt.left_s)
            reserving.take(attempt, answer)

        return AsyncReservation(await self._decide(ask, call), reserving.id, ask, self._settle)

    async def settle(self, reservation: str, actual: int) -> bool:
        """Settle by its id, also one that another process made. True if the server has it settled with that."""
        return await self._settle(reservation, check_actual(actual), self._core.settle_ask())

    async def _settle(self, reservation: str, actual: int, ask: Ask) -> bool:
        return await self._tell(telling.settlement(self._core, reservation, actual, ask))

    async def refund(
        self,
        descriptors: Descriptors | None = None,
        /,
        *,
        cost: int = 1,
        timeout: float | None = None,  # noqa: ASYNC109  gRPC keeps it
        on_error: OnError | None = None,
        **entries: str,
    ) -> bool:
        """Give back what a `check` of the same charged, as far as it still counts. Whether the server was told.

        For rules with `refund: true`; on others it fails. It is not repeated: twice would be given back twice.
        """
        ask = self._core.ask(descriptors, entries, cost, timeout, on_error)
        return await self._tell(telling.refund(self._core, ask))

    async def _tell(self, told: Telling) -> bool:
        if _fork.unusable:
            told.error = _forked_error()
            return told.finish()
        for _ in range(told.tries):
            last = None
            for last in self._core.attempts(told.ask, await self._connected()):
                with last:
                    last.response = await self._asked(told.method(last.link), told.ask.request, last.left_s)
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
    ) -> AsyncLimited:
        """A decorator and a context manager: what it guards is done within its limits, or RateLimited is raised.

        `key` is a descriptor, a list of them, or a function that makes one of the arguments of the decorated function;
        None from it is an exemption. `cost` may be such a function too. `wait` seconds are waited for room. A `rate`
        such as `5/minute` before it goes along with each descriptor; what holds then is up to the server.
        """
        return AsyncLimited(self, Guarded.of(rate, key, entries, cost, wait, on_error))

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
        links = [link for connections in list(self._loops.values()) for link in connections.links or ()]
        return not links or any(link.breaker.closed for link in links)

    async def close(self) -> None:
        """End the connections of this loop. Calls after it are answered by `on_error`."""
        self._core.closed = True
        connections = self._loops.get(asyncio.get_running_loop())
        if connections is None:
            return
        async with connections.connecting:
            links, connections.links = connections.links or (), ()
        for link in links:
            await link.channel.close()

    async def __aenter__(self) -> Self:
        await self._connected()
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.close()

    async def _connected(self) -> Sequence[Link]:
        """This loop's links; the first to need them makes them, and all wait for that, `connect_timeout` at most."""
        loop = asyncio.get_running_loop()
        connections = self._loops.get(loop)
        if connections is None:
            self._loops = {known: value for known, value in self._loops.items() if not known.is_closed()}
            connections = self._loops[loop] = _Connections()
        if connections.links is None:
            async with connections.connecting:
                if connections.links is None and not self._core.closed:
                    connections.links = await self._open_links()
        return connections.links or ()

    async def _open_links(self) -> Sequence[Link]:
        links = [_open(self._core, target) for target in self._core.targets]
        try:
            await asyncio.gather(*(_connect(link, self._core.connect_timeout_s) for link in links))
        except BaseException:
            for link in links:
                await link.channel.close()
            raise
        return links

    def _let_go(self) -> bool:
        """Before a fork: connections that no call uses end here, and are made again at the next use."""
        held = [connections for connections in list(self._loops.values()) if connections.links]
        for connections in held:
            connections.links = None
        return bool(held)

    def _forked(self) -> None:
        # Whatever is in it belongs to the parent's loops; with it goes the lock that a task may have held.
        _parents.append(self._loops)
        self._loops = {}
        self._core.begin()


def _open(core: Core, target: str) -> Link:
    if core.credentials is None:
        opened = grpc.aio.insecure_channel(target, core.options)
    else:
        opened = grpc.aio.secure_channel(target, core.credentials, core.options)
    return Link.of(opened, core.clock)


async def _connect(link: Link, timeout_s: float) -> None:
    try:
        await link.probe(b"", timeout=timeout_s)
    except grpc.RpcError as error:
        link.probed(error)


def _forked_error() -> RateLimitError:
    return RateLimitError("FORKED", "gRPC's asyncio was in use when the process forked")


class _Fork:
    """gRPC's asyncio has a thread that polls while there are channels. A child of a process in which it runs has a gRPC
    that waits for that thread for ever, or aborts."""

    def __init__(self) -> None:
        self._polled = False
        self.unusable = False

    def before(self) -> None:
        let_go = [client._let_go() for client in list(_clients)]
        if any(let_go):
            settle()
        # Calls under way, and channels of others, keep it.
        self._polled = any("_poll_wrapper" in thread.name for thread in threading.enumerate())

    def in_child(self) -> None:
        self.unusable = self.unusable or self._polled
        for client in list(_clients):
            client._forked()


_fork = _Fork()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_fork.before, after_in_child=_fork.in_child)
