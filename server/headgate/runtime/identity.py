"""Identity of this process: region, node, and a run number that is new at every start.

The owner of a counter's component is a run of a node, so a restarted node can neither
overwrite nor hide behind what its former self wrote.
"""

import random
import re
import socket
from dataclasses import dataclass

from headgate.clock import Clock

_MAX_HOST_CHARS = 50
_RUN_RANDOM_BITS = 10
"""With the start's milliseconds above them, a run number stays below 2^53: exact in JSON and Lua."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The names under which this process counts: region, node, and run, which is another number at every start."""

    region: str
    node: str
    run: int


def make_identity(region: str, node_id: str | None, clock: Clock, rng: random.Random) -> Identity:
    """The identity of a process that starts now; without a `node_id` it is made from the host's name and chance."""
    node = node_id or f"{_host_part(socket.gethostname())}-{rng.getrandbits(32):08x}"
    run = (clock.now_ms() << _RUN_RANDOM_BITS) | rng.getrandbits(_RUN_RANDOM_BITS)
    return Identity(region, node, run)


def _host_part(hostname: str) -> str:
    """The host's name without its domain, in the characters of a node id."""
    clean = re.sub(r"[^A-Za-z0-9-]+", "-", hostname.partition(".")[0]).strip("-")
    return clean[:_MAX_HOST_CHARS] or "node"


def started_ms(identity: Identity) -> int:
    """Time at which the process began, which its run number has in it."""
    return identity.run >> _RUN_RANDOM_BITS
