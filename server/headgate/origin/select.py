"""Opening of the origin that the `origin` setting names."""

from typing import Any, Final

import structlog

from headgate.clock import Clock
from headgate.errors import ConfigError
from headgate.origin.interface import Origin
from headgate.origin.memory import MemoryOrigin
from headgate.origin.redis_origin.base import Opening, RedisOrigin
from headgate.origin.redis_origin.cluster import ClusterOrigin
from headgate.origin.redis_origin.scripts import Scripts
from headgate.origin.redis_origin.secrets import FILE_SCHEME, login, read_url, sentinel_login
from headgate.origin.redis_origin.sentinel import open_sentinel
from headgate.origin.redis_origin.shards import open_shards
from headgate.origin.redis_origin.url import ACCEPTED, Topology, is_redis_url
from headgate.telemetry.bounded import BoundedLogger

DEFAULT_PREFIX: Final = "headgate:"
"""Before the region's name, where no prefix is given: regions on one Redis never share counts."""


def open_origin(
    url: str,
    *,
    clock: Clock,
    region: str = "local",
    prefix: str | None = None,
    logger: Any = None,
    scripts: Scripts | None = None,
    shared: bool = False,
) -> Origin:
    """Raises ConfigError for a URL that names no origin; connects to nothing yet.

    `shared`: an exchanger works behind the origin too, so that counts in memory must be there and not in a node.
    """
    if url == "memory://":
        return MemoryOrigin(clock, region=region.encode(), exclusive=not shared)
    if not is_redis_url(url) and not url.startswith(FILE_SCHEME):
        # Not repeated: it may hold a password.
        raise ConfigError(f"origin: the scheme is not known: accepted is memory://, {', '.join(ACCEPTED)}")
    opening = Opening(
        read_url(url),
        login(url),
        sentinel_login(url),
        (prefix if prefix is not None else DEFAULT_PREFIX + region).encode(),
        region.encode(),
        scripts or Scripts(),
        clock,
        BoundedLogger(logger if logger is not None else structlog.get_logger(), clock),
    )
    return _open(opening)


def _open(opening: Opening) -> RedisOrigin:
    match opening.url.kind:
        case Topology.SHARDS:
            return open_shards(opening)
        case Topology.CLUSTER:
            return ClusterOrigin(opening)
        case Topology.SENTINEL:
            return open_sentinel(opening)
