"""From the `origin` setting to an origin."""

from headgate.clock import Clock
from headgate.errors import ConfigError
from headgate.origin.interface import Origin
from headgate.origin.memory import MemoryOrigin

ACCEPTED = "memory://"


def open_origin(url: str, *, clock: Clock) -> Origin:
    """Raises ConfigError for a URL that names no origin; connects to nothing yet."""
    if url == "memory://":
        return MemoryOrigin(clock, exclusive=True)
    raise ConfigError(f"origin {url!r} is not available: accepted is {ACCEPTED}")
