"""The fixed set: histories that nothing may violate, each with a thousand requests or more."""

from typing import Final

from headgate.simulation.generate import generate
from headgate.simulation.history import SimulationHistory

SEEDS: Final = (*range(240), 539, 568, 957, 1987, 3479, 11590, 40248, 2244, 502)
"""Beyond the first: 539, where credit that a call offers to the shard is wanted here meanwhile; 568, 957 and 1987,
where after a loss a shard takes new hits for lost ones; 3479, where a charge is answered after its window's end,
into one that others have filled; 11590, where the shard is a little behind the nodes as a window ends;
40248, where a node whose clock is off starts without its shard; 2244, where a shard loses its memory again while
the first refill is under way, after a reset; 502, where one report does not restore all that a shard lost."""

LONG: Final = frozenset(range(80, 240))
"""Those that `make verify` runs and `make test` does not: more of the same kinds of day as the first."""


def named(name: str) -> SimulationHistory:
    """A history by its name: the kind of its day, and its seed."""
    history = generate(int(name.rsplit("-", 1)[1]))
    if history.name != name or history.seed not in SEEDS:
        raise KeyError(name)
    return history
