"""Decisions without a server: `Headgate.local(rules)`, for one process and for tests.

The engine is the server's own, from the distribution `headgate`, which is imported here and nowhere else: `pip install
headgate-client[local]`. Counts are this process's, and end with it; several processes, or machines, need a server.
"""

import random
import threading
from collections.abc import Callable
from typing import Any, Final

from headgate.clock import SystemClock
from headgate.embedded import EmbeddedServer, load_rules
from headgate.errors import RequestError
from headgate.rules.problems import RulesError

from headgate_client.arguments import Rules
from headgate_client.clock import Clock
from headgate_client.in_process import InProcessAsyncHeadgate, InProcessHeadgate
from headgate_client.values import RateLimitError

_ADDRESS: Final = "in-process.headgate:8081"
DOMAIN: Final = "local"
"""The domain where there are no rules: every limit comes with its descriptor."""
NO_RULES: Final = {"domain": DOMAIN, "descriptors": []}


class _ServerClock:
    """The client's clock as the engine reads it: a test that moves the one moves both."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now_ms(self) -> int:
        return round(self._clock.now_s() * 1000)

    def monotonic(self) -> float:
        return self._clock.now_s()


class LocalServer:
    """The engine behind a lock, for threads. Raises ValueError for rules that are wrong."""

    def __init__(self, rules: Rules | None, clock: Clock | None) -> None:
        try:
            loaded = load_rules(NO_RULES if rules is None else rules)
        except RulesError as error:
            raise ValueError(f"rules: {error}") from error
        seen_by_engine = SystemClock() if clock is None else _ServerClock(clock)
        self._server = EmbeddedServer(loaded, seen_by_engine, random.Random())  # noqa: S311  spreads callers out
        self._lock = threading.Lock()

    def domain(self, named: str | None) -> str:
        """Return the domain to ask about: the one that is named, or the only one. Raises ValueError."""
        found = self._server.domains
        if named is None and len(found) == 1:
            return found[0]
        if named not in found:
            raise ValueError(f"domain: one of {', '.join(map(repr, found))}, got {named!r}")
        return named

    def answer(self, payload: bytes) -> bytes:
        """Decide a RateLimitRequest."""
        return self._ask(self._server.answer, payload)

    def reserve(self, payload: bytes) -> bytes:
        """Decide a ReserveRequest."""
        return self._ask(self._server.reserve, payload)

    def settle(self, payload: bytes) -> bytes:
        """Decide a SettleRequest."""
        return self._ask(self._server.settle, payload)

    def _ask(self, method: Callable[[bytes], bytes], payload: bytes) -> bytes:
        with self._lock:
            try:
                return method(payload)
            except RequestError as error:
                raise RateLimitError(error.status.name, str(error)) from None


class LocalHeadgate(InProcessHeadgate):
    """What `Headgate.local` returns."""

    def __init__(self, rules: Rules | None, domain: str | None, **options: Any) -> None:
        server = LocalServer(rules, options.get("clock"))
        super().__init__(server, _ADDRESS, server.domain(domain), **options)

    def __repr__(self) -> str:
        return f"<Headgate {self._core.domain!r} in this process>"


class LocalAsyncHeadgate(InProcessAsyncHeadgate):
    """What `AsyncHeadgate.local` returns."""

    def __init__(self, rules: Rules | None, domain: str | None, **options: Any) -> None:
        server = LocalServer(rules, options.get("clock"))
        super().__init__(server, _ADDRESS, server.domain(domain), **options)

    def __repr__(self) -> str:
        return f"<AsyncHeadgate {self._core.domain!r} in this process>"
