"""Rates as people write them: `5/minute`. Units are those that a request can carry."""

import re
from typing import Final

from headgate_client.wire.envoy.type.v3.ratelimit_unit_pb2 import RateLimitUnit

MAX_REQUESTS: Final = 2**32 - 1
"""What the wire can hold."""
UNITS: Final = tuple(name.lower() for name in RateLimitUnit.keys() if name != "UNKNOWN")  # noqa: SIM118  no mapping
_RATE: Final = re.compile(r"(\d{1,10})/([a-z]+)")


def split_rate(name: str, rate: object) -> tuple[int, str]:
    """Return the number and the unit, which nobody has looked at. Raises TypeError or ValueError that name it."""
    if not isinstance(rate, str):
        raise TypeError(f"{name}: a rate like '5/minute', got {type(rate).__name__} {rate!r}")
    said = _RATE.fullmatch(rate)
    if said is None:
        raise ValueError(f"{name}: like '5/minute', got {rate!r}")
    return int(said[1]), said[2]


def check_rate(name: str, rate: object) -> tuple[int, str]:
    """Return the number, and the unit as the wire has it. Raises TypeError or ValueError that name what is wrong."""
    requests, unit = split_rate(name, rate)
    if unit not in UNITS:
        raise ValueError(f"{name}: one of {', '.join(UNITS)} after the slash, got {rate!r}")
    if requests > MAX_REQUESTS:
        raise ValueError(f"{name}: 0 to {MAX_REQUESTS} before the slash, got {rate!r}")
    return requests, unit.upper()
