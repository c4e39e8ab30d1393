"""What every middleware does, whatever the framework: whom to ask for, and what to make of the answer."""

import logging
from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from headgate_client.arguments import Descriptors, OnError, check_callable, check_on_error
from headgate_client.limits import Given, as_descriptors
from headgate_client.values import Decision

logger = logging.getLogger("headgate_client")

Q = TypeVar("Q")
"""What a framework calls a request."""


class Gate(Generic[Q]):
    """The options that all middleware has.

    `key` makes a descriptor, or a list of them, of a request; None from it is an exemption. `cost` may be such a
    function too. `exempt` are paths, or methods of gRPC, that are never limited; one that ends in `*` stands for all
    that begin so. With `dry_run` everybody is asked for and charged, and nobody is denied: `would_deny` counts whom
    it would have met.
    """

    def __init__(
        self,
        key: Callable[[Q], Given | None],
        *,
        cost: int | Callable[[Q], int] = 1,
        exempt: Sequence[str] = (),
        dry_run: bool = False,
        on_error: OnError | None = None,
    ) -> None:
        if not callable(key):
            raise TypeError(f"key: a function of a request, got {type(key).__name__}")
        if isinstance(exempt, str):
            raise TypeError(f"exempt: a list of paths, got one that is not in a list: write [{exempt!r}]")
        if not isinstance(cost, int):
            check_callable("cost", cost)
        self.on_error = None if on_error is None else check_on_error(on_error)
        self.dry_run = dry_run
        self.would_deny = 0
        self._key = key
        self._cost = cost
        self._exact = frozenset(path for path in exempt if not path.endswith("*"))
        self._prefixes = tuple(path[:-1] for path in exempt if path.endswith("*"))

    def question(self, request: Q, path: str) -> tuple[Descriptors, dict[str, Any]] | None:
        """What to check, and with which options; None when the request is exempt."""
        if path in self._exact or (self._prefixes and path.startswith(self._prefixes)):
            return None
        given = self._key(request)
        if given is None:
            return None
        cost = self._cost(request) if callable(self._cost) else self._cost
        return as_descriptors(given), {"cost": cost, "on_error": self.on_error}

    def passes(self, decision: Decision, path: str) -> bool:
        """Whether the request goes on."""
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
