"""What HTTP middleware shares: a request as key functions see it, and the headers of answers."""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, NamedTuple

from headgate_client.clock import SYSTEM_CLOCK
from headgate_client.spread import stretched_s
from headgate_client.values import Decision, Limit

BODY: Final = b'{"error": "too many requests"}'
CONTENT_TYPE: Final = "application/json"
REMAINING: Final = "RateLimit-Remaining"
RETRY_AFTER: Final = "Retry-After"
UNIT_S: Final[Mapping[str, int]] = {
    "SECOND": 1,
    "MINUTE": 60,
    "HOUR": 3_600,
    "DAY": 86_400,
    "WEEK": 7 * 86_400,
    "MONTH": 30 * 86_400,
    "YEAR": 365 * 86_400,
}
"""Seconds of a window by its unit; a window of several units has none on the wire."""


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


def limit_headers(decision: Decision, random: Callable[[], float] = SYSTEM_CLOCK.random) -> list[tuple[str, str]]:
    """What is left and when it resets, in two forms; on a denial also when to come back.

    The first three are of early versions of the IETF's draft, `RateLimit-Policy` and `RateLimit` of its version 10.
    All times are stretched alike: whole seconds, never too early, and `Retry-After` never 0 and not before the reset.
    """
    uniform, nearest = random(), decision.nearest
    headers: list[tuple[str, str]] = []
    if nearest is not None and nearest.limit is not None:
        reset_s = math.ceil(stretched_s(nearest.reset_after or 0, uniform))
        limits = [status.limit for status in decision.statuses if status.limit is not None]
        headers = [
            ("RateLimit-Limit", str(nearest.limit.requests_per_unit)),
            (REMAINING, str(nearest.remaining)),
            ("RateLimit-Reset", str(reset_s)),
            ("RateLimit-Policy", ", ".join(dict.fromkeys(_policy(limit) for limit in limits))),
            ("RateLimit", f"{_policy_name(nearest.limit)};r={nearest.remaining};t={reset_s}"),
        ]
    if not decision.allowed:
        headers.append((RETRY_AFTER, str(max(1, math.ceil(stretched_s(decision.retry_after, uniform))))))
    return headers


def _policy(limit: Limit) -> str:
    window = f";w={UNIT_S[limit.unit]}" if limit.unit in UNIT_S else ""
    return f"{_policy_name(limit)};q={limit.requests_per_unit}{window}"


def _policy_name(limit: Limit) -> str:
    """The limit's name as a String of RFC 9651, which is ASCII; without one its quota, as the server names it."""
    window = f" per {UNIT_S[limit.unit]} s" if limit.unit in UNIT_S else ""
    name = limit.name or f"{limit.requests_per_unit}{window}"
    plain = "".join(char if " " <= char <= "~" else "?" for char in name)
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
