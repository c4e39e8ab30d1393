"""One process's side of the exchange: all that its parts have in common."""

import random
from dataclasses import dataclass

from structlog.typing import FilteringBoundLogger

from headgate.clock import Clock
from headgate.origin.interface import Origin


@dataclass(frozen=True, slots=True)
class ExchangeSite:
    """Region and origin of an exchanger, and its name, time, chance and log."""

    region: str
    origin: Origin
    owner: bytes
    """Name that its leases have in the origin."""
    clock: Clock
    random: random.Random
    logger: FilteringBoundLogger
