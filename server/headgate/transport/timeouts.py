"""The time that a caller waits: the `grpc-timeout` header, at most eight digits and a unit.

The native front can tell the time that is left with each call, but only together with
all its metadata, which costs a fifth of a call. The header alone costs nothing; what it
misses is the moment that a call waits in the front before it is received.
"""

import math

TIMEOUT_HEADER = "grpc-timeout"
_UNITS_S = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
_MAX_DIGITS = 8
# Proxies send the same few values; callers who pass on what is left of theirs send any.
_MAX_KNOWN = 1024


def parse_timeout_s(header: bytes) -> float:
    """Seconds; infinite where the header can't be understood, as if there were none."""
    digits, unit_s = header[:-1], _UNITS_S.get(header[-1:])
    if unit_s is None or not digits.isdigit() or len(digits) > _MAX_DIGITS:
        return math.inf
    return int(digits) * unit_s


class Timeouts(dict[bytes, float]):
    """Parsed headers: a lookup that fills itself, up to a bound."""

    def __missing__(self, header: bytes) -> float:
        if len(self) >= _MAX_KNOWN:
            self.clear()
        self[header] = timeout_s = parse_timeout_s(header)
        return timeout_s
