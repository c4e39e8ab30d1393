"""What HTTP middleware shares: a request as key functions see it, and the headers of answers."""

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from headgate_client.values import Decision

RETRY_JITTER: Final = 0.2
"""`Retry-After` is up to so much longer than needed: who was denied together comes back apart."""
BODY: Final = b'{"error": "too many requests"}'
CONTENT_TYPE: Final = "application/json"
REMAINING: Final = "RateLimit-Remaining"


class Peer(NamedTuple):
    """The other end of the connection."""

    host: str
    port: int


@dataclass(frozen=True)
class HttpRequest:
    """A request of ASGI or WSGI, so far as keys are made of it; the same for both, and much like Starlette's."""

    method: str
    path: str
    client: Peer | None
    """Who is connected: behind a proxy, the proxy (see `ClientAddress`). None on a Unix socket."""
    raw: Mapping[str, Any]
    """ASGI's scope, or WSGI's environ."""

    @cached_property
    def headers(self) -> Mapping[str, str]:
        """By lower-case name; several of one name are joined with commas."""
        joined: dict[str, str] = {}
        for name, value in self._pairs():
            joined[name] = f"{joined[name]}, {value}" if name in joined else value
        return joined

    def _pairs(self) -> Iterable[tuple[str, str]]:
        if "headers" in self.raw:
            for name, value in self.raw["headers"]:
                yield name.decode("latin-1").lower(), value.decode("latin-1")
            return
        for name, value in self.raw.items():
            if name.startswith("HTTP_"):
                yield name[5:].replace("_", "-").lower(), value
            elif name in ("CONTENT_TYPE", "CONTENT_LENGTH"):
                yield name.replace("_", "-").lower(), value


def stretched_s(decision: Decision) -> float:
    """When to come back: never too early, and not when everybody else does."""
    return decision.retry_after * (1 + RETRY_JITTER * random.random())  # noqa: S311  spreads callers out


def retry_after_s(decision: Decision) -> int:
    """Whole seconds, as the header has them: never 0, and never too early."""
    return max(1, math.ceil(stretched_s(decision)))


def limit_headers(decision: Decision) -> list[tuple[str, str]]:
    """What is left and when it resets; on a denial also when to come back."""
    headers: list[tuple[str, str]] = []
    if decision.limit is not None:
        headers = [
            ("RateLimit-Limit", str(decision.limit)),
            (REMAINING, str(decision.remaining or 0)),
            ("RateLimit-Reset", str(math.ceil(decision.reset_after or 0))),
        ]
    if not decision.allowed:
        headers.append(("Retry-After", str(retry_after_s(decision))))
    return headers
