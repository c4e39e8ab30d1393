"""`limiter.limit(…)`: the same object decorates functions and guards blocks."""

import contextlib
import functools
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from types import TracebackType
from typing import Any, ParamSpec, Protocol, TypeVar, overload

from headgate_client.arguments import (
    Descriptors,
    OnError,
    check_cost,
    check_on_error,
    check_seconds,
    request_of,
)
from headgate_client.rates import check_rate
from headgate_client.values import Code, Decision, Descriptor, RateLimited

P = ParamSpec("P")
R = TypeVar("R")

Given = Mapping[str, Any] | Descriptors
"""One descriptor as a mapping, or a list of descriptors. Values that are no text become text: `{"user": 42}`."""
Key = Given | Callable[..., Given | None]
Cost = int | Callable[..., int]
Rate = str
"""A limit in place: `5/minute`."""

EXEMPT = Decision(Code.OK)
"""The decision of who is exempt: nobody was asked."""


def as_descriptors(given: Given) -> Descriptors:
    """Make of what a key function returned what `check` takes; what it can't be is refused there."""
    if isinstance(given, Mapping | Descriptor):
        return [_with_text(given)]
    return [_with_text(one) for one in given] if isinstance(given, Sequence) and not isinstance(given, str) else given


def _with_text(one: Any) -> Any:
    """Return the descriptor with values that are text. Only a mapping's are looked at: a pair says what it means."""
    if isinstance(one, Descriptor):
        return replace(one, entries=_with_text(one.entries))
    if not isinstance(one, Mapping) or all(type(value) is str for value in one.values()):
        return one
    return {key: _text(key, value) for key, value in one.items()}


def _text(key: object, value: object) -> str:
    """Return the value as text. None is refused: `str` would count all who have no value as one caller."""
    if value is None:
        raise TypeError(f"{key}: None is no value; a key function returns None to exempt a request")
    if isinstance(value, bytes):
        return value.decode()
    return str(value.value) if isinstance(value, Enum) else str(value)


class Checks(Protocol):
    """A client for threads."""

    def check(
        self, descriptors: Descriptors | None, /, *, cost: int = ..., on_error: OnError | None = ...
    ) -> Decision: ...

    def acquire(
        self,
        descriptors: Descriptors | None,
        /,
        *,
        cost: int = ...,
        timeout: float | None = ...,
        on_error: OnError | None = ...,
    ) -> Decision: ...


class AsyncChecks(Protocol):
    """A client for asyncio."""

    async def check(
        self, descriptors: Descriptors | None, /, *, cost: int = ..., on_error: OnError | None = ...
    ) -> Decision: ...

    async def acquire(
        self,
        descriptors: Descriptors | None,
        /,
        *,
        cost: int = ...,
        timeout: float | None = ...,  # noqa: ASYNC109  as `acquire` has it
        on_error: OnError | None = ...,
    ) -> Decision: ...


@dataclass(frozen=True, slots=True)
class Guarded:
    """What is limited, and how."""

    rate: Rate | None
    """The limit of every descriptor that has none of its own."""
    key: Key | None
    entries: Mapping[str, str]
    cost: Cost
    wait_s: float | None
    on_error: OnError | None

    @classmethod
    def of(cls, first: Rate | Key | None, key: Key | None, entries: Mapping[str, str], *how: Any) -> "Guarded":
        """Take the first argument of `limit(…)` for a rate, if it is text, and else for the key."""
        if isinstance(first, str) or first is None:
            return cls(first, key, entries, *how)
        if key is not None:
            raise TypeError("key: is given twice")
        return cls(None, first, entries, *how)

    def __post_init__(self) -> None:
        """What is wrong is said where it is written, and not at the first call."""
        if self.rate is not None:
            check_rate("limit", self.rate)
        if (self.key is None) == (not self.entries):
            raise TypeError("key: give a descriptor, a list of them or a function; or keywords that form one")
        if not callable(self.cost):
            check_cost("cost", self.cost)
        if self.wait_s is not None:
            check_seconds("wait", self.wait_s, zero=True)
        if self.on_error is not None:
            check_on_error(self.on_error)
        if self.key is None:
            request_of("any", None, self.entries, 1)
        elif not callable(self.key):
            # What is written down is text already; only what functions return is made text.
            request_of("any", [self.key] if isinstance(self.key, Mapping) else self.key, {}, 1)

    def descriptors(self, *args: Any, **kwargs: Any) -> Descriptors | None:
        """For a call with these arguments; None when it is exempt."""
        given = self.key(*args, **kwargs) if callable(self.key) else self.key
        if self.key is None:
            return self._rated([self.entries])
        return None if given is None else self._rated(as_descriptors(given))

    def _rated(self, descriptors: Descriptors) -> Descriptors:
        if self.rate is None or isinstance(descriptors, str) or not isinstance(descriptors, Sequence):
            return descriptors
        return [self._with_rate(one) for one in descriptors]

    def _with_rate(self, one: Descriptor | Any) -> Descriptor:
        if not isinstance(one, Descriptor):
            return Descriptor(one, limit=self.rate)
        return one if one.limit is not None else replace(one, limit=self.rate)

    def cost_of(self, *args: Any, **kwargs: Any) -> int:
        return self.cost(*args, **kwargs) if callable(self.cost) else self.cost

    def name_block(self) -> None:
        if callable(self.key) or callable(self.cost):
            raise TypeError("key: a function gets the arguments of a decorated function, and a `with` block has none")


def _check_function(function: object) -> None:
    if not callable(function):
        raise TypeError(f"limit(…): decorates functions, got {type(function).__name__} {function!r}")


class Limited:
    """For functions, and `with` blocks, of threads."""

    def __init__(self, limiter: Checks, guarded: Guarded) -> None:
        self._limiter = limiter
        self._guarded = guarded

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        _check_function(function)
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{function.__name__}: is a coroutine function; AsyncHeadgate limits those")

        @functools.wraps(function)
        def limited(*args: P.args, **kwargs: P.kwargs) -> R:
            self._pass(*args, **kwargs)
            return function(*args, **kwargs)

        return limited

    def __enter__(self) -> Decision:
        self._guarded.name_block()
        return self._pass()

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        return None

    def _pass(self, *args: Any, **kwargs: Any) -> Decision:
        descriptors = self._guarded.descriptors(*args, **kwargs)
        if descriptors is None:
            return EXEMPT
        cost, on_error, wait_s = self._guarded.cost_of(*args, **kwargs), self._guarded.on_error, self._guarded.wait_s
        if wait_s is None:
            decision = self._limiter.check(descriptors, cost=cost, on_error=on_error)
        else:
            decision = self._limiter.acquire(descriptors, cost=cost, timeout=wait_s, on_error=on_error)
        if not decision:
            raise RateLimited(decision)
        return decision


class AsyncLimited:
    """For coroutine functions and `async with` blocks."""

    def __init__(self, limiter: AsyncChecks, guarded: Guarded) -> None:
        self._limiter = limiter
        self._guarded = guarded

    @overload
    def __call__(self, function: Callable[P, AsyncIterator[R]]) -> Callable[P, AsyncIterator[R]]: ...

    @overload
    def __call__(self, function: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]: ...

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        _check_function(function)
        if inspect.isasyncgenfunction(function):
            return self._generator(function)
        if not inspect.iscoroutinefunction(function):
            raise TypeError(
                f"{getattr(function, '__name__', function)}: is no coroutine function; Headgate limits those"
            )

        @functools.wraps(function)
        async def limited(*args: Any, **kwargs: Any) -> Any:
            await self._pass(*args, **kwargs)
            return await function(*args, **kwargs)

        return limited

    def _generator(self, function: Callable[..., AsyncGenerator[Any, None]]) -> Callable[..., AsyncIterator[Any]]:
        """Limited when its first value is asked for: before that there is nobody to wait."""

        @functools.wraps(function)
        async def limited(*args: Any, **kwargs: Any) -> AsyncIterator[Any]:
            await self._pass(*args, **kwargs)
            async with contextlib.aclosing(function(*args, **kwargs)) as values:
                async for value in values:
                    yield value

        return limited

    async def __aenter__(self) -> Decision:
        self._guarded.name_block()
        return await self._pass()

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        return None

    async def _pass(self, *args: Any, **kwargs: Any) -> Decision:
        descriptors = self._guarded.descriptors(*args, **kwargs)
        if descriptors is None:
            return EXEMPT
        cost, on_error, wait_s = self._guarded.cost_of(*args, **kwargs), self._guarded.on_error, self._guarded.wait_s
        if wait_s is None:
            decision = await self._limiter.check(descriptors, cost=cost, on_error=on_error)
        else:
            decision = await self._limiter.acquire(descriptors, cost=cost, timeout=wait_s, on_error=on_error)
        if not decision:
            raise RateLimited(decision)
        return decision
