"""Faults of a history, drawn from its seed: one maker for each kind."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from headgate.simulation.history import Fault, FaultKind, Key


class _Place(NamedTuple):
    """Size of a world: its length, nodes, shards and keys."""

    length_ms: int
    nodes: int
    shards: int
    keys: tuple[Key, ...]

    def spell(self, chance: random.Random, kind: FaultKind, most_ms: int, amount: int = 0) -> Fault:
        """Draw a fault that lasts up to `most_ms`, at any node, shard and key."""
        for_ms = chance.randint(min(50, most_ms), most_ms)
        at_ms = chance.randrange(max(1, self.length_ms - for_ms // 2))
        slot = chance.choice([-1, *range(self.nodes)])
        return Fault(kind, at_ms, for_ms, slot, chance.randrange(self.shards), chance.randrange(len(self.keys)), amount)


def draw_faults(
    chance: random.Random, kinds: tuple[FaultKind, ...], length_ms: int, nodes: int, shards: int, keys: tuple[Key, ...]
) -> tuple[Fault, ...]:
    """Draw three to five kinds and up to three faults of each, in the order of their times."""
    place = _Place(length_ms, nodes, shards, keys)
    chosen = chance.sample(kinds, min(len(kinds), chance.randint(3, 5)))
    faults = [_MAKERS[kind](chance, place, kind) for kind in chosen for _ in range(chance.choice([1, 1, 2, 3]))]
    return tuple(sorted(faults, key=lambda fault: fault.at_ms))


def _path_spell(most_ms: int, amounts: tuple[int, ...] = (0,)) -> Callable[[random.Random, _Place, FaultKind], Fault]:
    return lambda chance, place, kind: place.spell(chance, kind, most_ms, chance.choice(amounts))


def _set_clock(*amounts_ms: int) -> Callable[[random.Random, _Place, FaultKind], Fault]:
    def make(chance: random.Random, place: _Place, kind: FaultKind) -> Fault:
        fault = place.spell(chance, kind, 0, chance.choice(amounts_ms))
        return replace(fault, slot=chance.randrange(place.nodes), for_ms=0)

    return make


STEPS_MS: Final = (1_000, 3_000, 12_000, 120_000, 7_200_000, 31_536_000_000)
"""Steps of a clock, from a second to a year."""


def _step(chance: random.Random, place: _Place, kind: FaultKind) -> Fault:
    """Set a clock forward or back, for good or for a while."""
    fault = place.spell(chance, kind, 1_500, chance.choice(STEPS_MS) * chance.choice([-1, 1]))
    return fault if chance.random() < 0.6 else replace(fault, for_ms=0)


def _one_node(chance: random.Random, place: _Place, kind: FaultKind) -> Fault:
    return replace(place.spell(chance, kind, 1_500), slot=chance.randrange(place.nodes))


def _rule(chance: random.Random, place: _Place, kind: FaultKind) -> Fault:
    fault = place.spell(chance, kind, 300)
    now = place.keys[fault.key].limit.requests_per_unit
    return replace(fault, amount=max(1, int(now * chance.choice([0.3, 0.5, 2, 5]))))


_MAKERS: Final[dict[FaultKind, Callable[[random.Random, _Place, FaultKind], Fault]]] = {
    FaultKind.SLOW: _path_spell(2_000, (5, 20, 60)),
    FaultKind.LOST_CALLS: _path_spell(2_000, (2, 10, 40)),
    FaultKind.LOST_REPLIES: _path_spell(2_000, (2, 10, 40)),
    FaultKind.DUPLICATES: _path_spell(2_000, (20, 100)),
    FaultKind.LATE: _path_spell(2_000, (5, 20)),
    FaultKind.PATH_STALL: _path_spell(900),
    FaultKind.PARTITION: _path_spell(2_000),
    FaultKind.REFUSED: _path_spell(1_500),
    FaultKind.BLACKOUT: _path_spell(1_500),
    FaultKind.SHARD_STALL: _path_spell(800),
    FaultKind.SHARD_DOWN: _path_spell(1_500),
    FaultKind.FLUSH: lambda chance, place, kind: place.spell(chance, kind, 0),
    FaultKind.RESTART: _path_spell(800),
    FaultKind.FAILOVER: _path_spell(400),
    FaultKind.CRASH: _one_node,
    FaultKind.DRAIN: _one_node,
    FaultKind.RELISTED: _one_node,
    FaultKind.LISTED: _one_node,
    FaultKind.NODE_CLOCK: _set_clock(-700, 200, 3_600_000, -3_600_000),
    FaultKind.SHARD_CLOCK: _set_clock(-1_200, -80, 90, 1_300, 3_000),
    FaultKind.CLOCK_STEP: _step,
    FaultKind.GARBLED: _path_spell(600, (0, 1)),
    FaultKind.RULE: _rule,
    FaultKind.RESET: _one_node,
    FaultKind.FOREIGN: _path_spell(1_500, (5, 20)),
    FaultKind.ECHO: _path_spell(600),
}
