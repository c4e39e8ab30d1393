"""An exchanger that moves quota slices too: how processes and simulations make one."""

import random
from collections.abc import Mapping

from structlog.typing import FilteringBoundLogger

from headgate.clock import Clock
from headgate.exchange.exchanger import Exchanger
from headgate.exchange.extension import Teller
from headgate.exchange.messages import PeerLink
from headgate.origin.interface import Origin
from headgate.quota.keeper import QuotaKeeper


def make_exchanger(
    origin: Origin,
    *,
    region: str,
    links: Mapping[str, PeerLink],
    addresses: Mapping[str, str],
    owner: bytes,
    clock: Clock,
    random: random.Random,
    logger: FilteringBoundLogger,
    interval_s: float = 1.0,
) -> Exchanger[QuotaKeeper]:
    """Make an exchanger whose peers hear of quotas as well, from a keeper beside it."""

    def keeper(peers: Mapping[str, Teller]) -> QuotaKeeper:
        return QuotaKeeper(origin, region=region, peers=peers, owner=owner, clock=clock, random=random, logger=logger)

    return Exchanger(
        origin,
        region=region,
        links=links,
        addresses=addresses,
        owner=owner,
        clock=clock,
        random=random,
        logger=logger,
        quotas=keeper,
        interval_s=interval_s,
    )
