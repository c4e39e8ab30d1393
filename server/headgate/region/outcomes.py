"""Outcomes of one charge before its request is decided: the whole set, in one place.

An outcome of 0 or more is what remains after the charge: it was admitted here. The others are
negative, so that the request path tells them apart by one comparison.
"""

from typing import Final

from headgate.limiter.algorithm import OVER

COLD: Final = -2
"""The shard must be asked: what this node knows of the key is not fresh enough to admit."""
NEAR: Final = -3
"""The shard must be asked: the node's allowance does not cover it."""

__all__ = ["COLD", "NEAR", "OVER", "admitted", "must_ask"]


def admitted(outcome: int) -> bool:
    """It was charged here, or at the shard."""
    return outcome >= 0


def must_ask(outcome: int) -> bool:
    """Only the shard can say."""
    return outcome <= COLD
