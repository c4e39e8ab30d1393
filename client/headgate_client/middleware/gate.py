"""What every middleware does, whatever the framework: whom to ask for, and what to make of the answer.

A limiter must not take down what it protects: where the caller's `key` or `cost` function fails, or returns what is no
descriptor, `on_error` decides, as where the server does not answer. The first failure is logged with its traceback.
"""

import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from headgate_client.aio import AsyncHeadgate
from headgate_client.arguments import OnError, check_callable, check_cost, check_on_error
from headgate_client.client import Headgate
from headgate_client.limits import Given, as_descriptors
from headgate_client.values import Decision, RateLimitError

logger = logging.getLogger("headgate_client")

Q = TypeVar("Q")
"""What a framework calls a request."""


KeyFunction = Callable[[Q], Given | Awaitable[Given | None] | None]
CostGiven = int | Callable[[Q], int | Awaitable[int]]

KEY_FAILED: Final = "KEY_FAILED"
"""The status of a question that could not be asked because the caller's own function failed."""


def never_meant(error: Exception) -> bool:
    """Say that no error of a key function is the framework's way to answer by itself."""
    return False


class Gate(Generic[Q]):
    """The options that all middleware has.

    `key` makes a descriptor, or a list of them, of a request; None from it is an exemption. `cost` may be such a
    function too. In frameworks of asyncio both may be coroutine functions. `exempt` are paths, or methods of gRPC, that
    are never limited; one that ends in `*` stands for all that begin so. With `dry_run` everybody is asked for and
    charged, and nobody is denied: `would_deny` counts whom it would have met. Errors of a key function that are
    `meant`, because the framework answers a request by them, are let through.
    """

    def __init__(
        self,
        key: KeyFunction[Q],
        *,
        cost: CostGiven[Q] = 1,
        exempt: Sequence[str] = (),
        dry_run: bool = False,
        on_error: OnError | None = None,
        meant: Callable[[Exception], bool] = never_meant,
    ) -> None:
        if not callable(key):
            raise TypeError(f"key: a function of a request, got {type(key).__name__}")
        if isinstance(exempt, str):
            raise TypeError(f"exempt: a list of paths, got one that is not in a list: write [{exempt!r}]")
        if isinstance(cost, int):
            check_cost("cost", cost)
        else:
            check_callable("cost", cost)
        self.on_error = None if on_error is None else check_on_error(on_error)
        self.dry_run = dry_run
        self.would_deny = 0
        self._key = key
        self._cost = cost
        self._meant = meant
        self._failed = False
        self._exact = frozenset(path for path in exempt if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in exempt if path.endswith("*"))

    def check(self, limiter: Headgate, request: Q, path: str) -> Decision | None:
        """Ask for the request; None when it is exempt."""
        if self._is_exempt(path):
            return None
        try:
            given = _now("key", self._key(request))
            if given is None:
                return None
            cost = _now("cost", self._cost(request)) if callable(self._cost) else self._cost
            return limiter.check(as_descriptors(given), cost=cost, on_error=self.on_error)
        except RateLimitError:
            raise
        except Exception as error:
            return limiter.undecided(self._failure(error), self.on_error)

    async def check_async(self, limiter: AsyncHeadgate, request: Q, path: str) -> Decision | None:
        """Ask for the request; None when it is exempt."""
        if self._is_exempt(path):
            return None
        try:
            given = await _later(self._key(request))
            if given is None:
                return None
            cost = await _later(self._cost(request)) if callable(self._cost) else self._cost
            return await limiter.check(as_descriptors(given), cost=cost, on_error=self.on_error)
        except RateLimitError:
            raise
        except Exception as error:
            return limiter.undecided(self._failure(error), self.on_error)

    def _is_exempt(self, path: str) -> bool:
        return path in self._exact or bool(self._prefixes and path.startswith(self._prefixes))

    def _failure(self, error: Exception) -> RateLimitError:
        """Name a failure of the caller's function, for `on_error` to decide. Raises what is meant for the framework."""
        if self._meant(error):
            raise error
        if not self._failed:
            self._failed = True
            logger.error("the key function %s failed; on_error decides", _name(self._key), exc_info=error)
        return RateLimitError(KEY_FAILED, f"{_name(self._key)}: {type(error).__name__}: {error}")

    def passes(self, decision: Decision, path: str) -> bool:
        """Return true if the request goes on."""
        if decision.allowed:
            return True
        if not self.dry_run:
            return False
        self.would_deny += 1
        logger.debug("dry run: %s would have been denied", path)
        return True


def need(limiter: object, kind: type, where: str) -> None:
    """A client of the other kind would block the loop, or return a coroutine that is always true."""
    if not isinstance(limiter, kind):
        raise TypeError(f"limiter: {where} needs a headgate_client.{kind.__name__}, got {type(limiter).__name__}")


def check_body(body: object) -> bytes:
    """Return the body of denials. Raises TypeError: a text would break each denial when it is sent."""
    if not isinstance(body, bytes):
        raise TypeError(f"body: bytes, got {type(body).__name__}; write b'…', or text.encode()")
    return body


def refuse_coroutines(gate_key: object, cost: object, where: str) -> None:
    """Raises TypeError where a function of asyncio is given to a framework of threads: nobody would await it."""
    for name, function in (("key", gate_key), ("cost", cost)):
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{name}: {_name(function)} is a coroutine function, and {where} has no loop to await it")


def _now(name: str, value: Any) -> Any:
    if inspect.iscoroutine(value):
        value.close()  # else Python warns that nobody awaited it
        raise TypeError(f"{name}: returned a coroutine, and nobody awaits it here")
    return value


async def _later(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _name(function: object) -> str:
    return str(getattr(function, "__qualname__", None) or function)
