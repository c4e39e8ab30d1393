"""Headers of an answer: what is left, when to come back, and the quota policies that the request met.

The first three are the headers of the IETF draft's early versions, under names that are settings. `RateLimit-Policy`
and `RateLimit` are those of draft-ietf-httpapi-ratelimit-headers-10, Structured Fields of RFC 9651: of every limit
that the request met its policy, which is the same in every answer, and of the one that matters most its state.
"""

from collections.abc import Iterable
from functools import lru_cache
from typing import Final, NamedTuple

from headgate.limiter.limit import Limit

POLICY: Final = "RateLimit-Policy"
SERVICE_LIMIT: Final = "RateLimit"


class HeaderNames(NamedTuple):
    """Names of the headers that may have others."""

    limit: str
    remaining: str
    reset: str
    retry_after: str


def limit_headers(
    names: HeaderNames, limits: Iterable[Limit], deciding: Limit, remaining: int, reset_ms: int
) -> list[tuple[str, str]]:
    """Return names and values. `limits` are all that the request met, `deciding` is the one that matters most, and
    `reset_ms` the time that its callers are told."""
    reset_s = _whole_s(reset_ms)
    policies = dict.fromkeys([f"{_name(limit)};{_quota(limit)}" for limit in limits])
    return [
        (names.limit, str(deciding.requests_per_unit)),
        (names.remaining, str(remaining)),
        (names.reset, str(reset_s)),
        (POLICY, ", ".join(policies)),
        (SERVICE_LIMIT, f"{_name(deciding)};r={remaining};t={reset_s}"),
    ]


def retry_after(names: HeaderNames, reset_ms: int) -> tuple[str, str]:
    """Return name and value of the header of a denial: as long as the reset, and at least a second."""
    return names.retry_after, str(max(1, _whole_s(reset_ms)))


def _whole_s(ms: int) -> int:
    return -(-ms // 1000)


def _quota(limit: Limit) -> str:
    return f"q={limit.requests_per_unit};w={limit.window_ms // 1000}"


def _name(limit: Limit) -> str:
    """Return the rule's name as a String; without one the quota itself: then one name is one policy."""
    return _string(limit.name or f"{limit.requests_per_unit} per {limit.window_ms // 1000} s")


@lru_cache(maxsize=4096)
def _string(text: str) -> str:
    """Write a String of RFC 9651: printable ASCII in quotes; any other character becomes a question mark."""
    plain = "".join([char if " " <= char <= "~" else "?" for char in text])
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
