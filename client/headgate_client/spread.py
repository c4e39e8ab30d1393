"""How times to wait are spread, so that callers who were denied together come back apart."""

from typing import Final

SPREAD: Final = 0.2
"""A time that callers are told is up to this share longer than needed. A server's answers keep to it, too."""


def stretched_s(wait_s: float, uniform: float) -> float:
    """Stretch a wait, by `uniform` from 0 to 1: never too early, and not when everybody else comes."""
    return wait_s * (1 + SPREAD * uniform)


def earliest_s(told_s: float) -> float:
    """The earliest time that a server may have meant by what it told."""
    return told_s / (1 + SPREAD)
