"""From the `origin` setting to an origin."""

from typing import Any

import structlog

from headgate.clock import Clock
from headgate.errors import ConfigError
from headgate.origin.interface import Origin
from headgate.origin.memory import MemoryOrigin
from headgate.origin.redis_origin.cluster import open_cluster
from headgate.origin.redis_origin.scripts import Scripts, load_scripts
from headgate.origin.redis_origin.sentinel import open_sentinel
from headgate.origin.redis_origin.shards import open_shards
from headgate.origin.redis_origin.url import ACCEPTED, Topology, is_redis_url, parse_redis_url
from headgate.telemetry.bounded import BoundedLogger


def open_origin(
    url: str,
    *,
    clock: Clock,
    region: str = "local",
    logger: Any = None,
    scripts: Scripts | None = None,
) -> Origin:
    """Raises ConfigError for a URL that names no origin; connects to nothing yet."""
    if url == "memory://":
        return MemoryOrigin(clock, region=region.encode(), exclusive=True)
    if not is_redis_url(url):
        # Up to the scheme: what follows may hold a password.
        scheme = url.partition("://")[0]
        raise ConfigError(f"origin {scheme + '://'!r} is not known: accepted is memory://, {', '.join(ACCEPTED)}")
    parsed = parse_redis_url(url)
    bounded = BoundedLogger(logger if logger is not None else structlog.get_logger(), clock)
    openers = {Topology.SHARDS: open_shards, Topology.CLUSTER: open_cluster, Topology.SENTINEL: open_sentinel}
    return openers[parsed.kind](parsed, scripts or load_scripts(), region.encode(), clock, bounded)
