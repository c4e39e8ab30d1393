"""Histories made from seeds: one of a few kinds of bad day, with its traffic and its faults."""

import dataclasses
import random
from typing import Final, NamedTuple

from headgate.limiter.limit import Algorithm, Limit, OnError, Unit
from headgate.simulation.draw_faults import draw_faults
from headgate.simulation.history import Ask, FaultKind, Key, SimulationHistory
from headgate.simulation.network import shard_of

UNIX_MS: Final = 1_700_000_000_000
LEAST_REQUESTS: Final = 1_000
RUSH_REQUESTS: Final = 1_500
"""Most requests of a rush, so that a history still takes a fraction of a second."""
RUSH_EVERY: Final = 6
"""Interval of histories of a kind with a rush: one key is far over its limit, on every node, for most of the time."""


class Day(NamedTuple):
    """A kind of bad day: what breaks in it, and how tight things are."""

    name: str
    kinds: tuple[FaultKind, ...]
    deadlines_ms: tuple[int, ...] = (5, 10, 30)
    delays_ms: tuple[float, ...] = (0.3, 1.0, 2.0)
    max_cells: tuple[int, ...] = (1000,)
    late: bool = False
    """Most limits are of the kind whose costs are known later."""
    refunds: bool = False
    """Most limits let hits be given back, and some of the requests do."""


_NETWORK = (
    FaultKind.SLOW,
    FaultKind.LOST_CALLS,
    FaultKind.LOST_REPLIES,
    FaultKind.DUPLICATES,
    FaultKind.LATE,
    FaultKind.PATH_STALL,
    FaultKind.PARTITION,
)
_MILD = (FaultKind.DUPLICATES, FaultKind.LATE, FaultKind.NODE_CLOCK, FaultKind.FOREIGN, FaultKind.ECHO, FaultKind.DRAIN)
_AWAY = (
    FaultKind.PARTITION,
    FaultKind.REFUSED,
    FaultKind.BLACKOUT,
    FaultKind.SHARD_STALL,
    FaultKind.SHARD_DOWN,
    FaultKind.PATH_STALL,
)
_LOSS = (FaultKind.FLUSH, FaultKind.RESTART, FaultKind.FAILOVER)
_UPSETS = (FaultKind.CLOCK_STEP, FaultKind.GARBLED)
_ACTIONS = (FaultKind.RESET,)
"""Actions of operators while things break: on days of their own."""
IN_TESTS: Final = (FaultKind.RELISTED, FaultKind.LISTED)
"""On no day: histories of tests have them."""
_EVERYTHING = tuple([kind for kind in FaultKind if kind not in (*_ACTIONS, *IN_TESTS)])
_EVERYTHING_SMALL = tuple([kind for kind in _EVERYTHING if kind not in _UPSETS])

DAYS: Final[tuple[Day, ...]] = (
    # Long deadlines: no request misses one, so the budget must hold throughout.
    Day("calm", _MILD, (2_000,), (1.0, 8.0, 40.0)),
    Day("network", _NETWORK),
    Day(
        "loss", (*_LOSS, FaultKind.LOST_REPLIES, FaultKind.CRASH, FaultKind.ECHO, FaultKind.LATE, FaultKind.SHARD_STALL)
    ),
    Day("nodes", (FaultKind.CRASH, FaultKind.DRAIN, FaultKind.PARTITION, FaultKind.NODE_CLOCK, FaultKind.LOST_REPLIES)),
    Day("outage", (*_AWAY, FaultKind.CRASH)),
    Day("clocks", (FaultKind.NODE_CLOCK, FaultKind.SHARD_CLOCK, FaultKind.SLOW, FaultKind.LATE, FaultKind.FAILOVER)),
    Day(
        "rules",
        (
            FaultKind.RULE,
            FaultKind.LOST_CALLS,
            FaultKind.LOST_REPLIES,
            FaultKind.FLUSH,
            FaultKind.DRAIN,
            FaultKind.FOREIGN,
        ),
    ),
    Day(
        "crowded",
        (FaultKind.LOST_REPLIES, FaultKind.SLOW, FaultKind.PARTITION, FaultKind.FLUSH, FaultKind.CRASH),
        max_cells=(3, 6, 10),
    ),
    Day("storm", _EVERYTHING_SMALL, max_cells=(8, 1000)),
    Day(
        "queue",
        (FaultKind.DUPLICATES, FaultKind.LATE, FaultKind.LOST_REPLIES, FaultKind.SHARD_STALL),
        (2_000,),
        (2.0, 15.0, 60.0),
    ),
)
"""Days by a seed's last digit; every second, third or fourth day of a kind may be another one instead."""

OTHER_DAYS: Final[dict[str, tuple[int, Day]]] = {
    "rules": (
        3,
        Day(
            "resets",
            (*_ACTIONS, *_ACTIONS, *_ACTIONS, *_LOSS, *_NETWORK, FaultKind.CRASH, FaultKind.ECHO),
            max_cells=(3, 1000, 1000),
        ),
    ),
    "nodes": (
        3,
        Day(
            "costs",
            (*_LOSS, *_NETWORK, FaultKind.CRASH, FaultKind.DRAIN, FaultKind.SHARD_STALL, FaultKind.RULE),
            max_cells=(6, 1000, 1000),
            late=True,
        ),
    ),
    "outage": (
        3,
        Day(
            "refunds",
            (*_LOSS, *_NETWORK, *_ACTIONS, FaultKind.CRASH, FaultKind.DRAIN, FaultKind.RULE, FaultKind.ECHO),
            max_cells=(6, 1000, 1000),
            refunds=True,
        ),
    ),
    "clocks": (2, Day("steps", (*_UPSETS, FaultKind.SLOW, FaultKind.LATE, FaultKind.FAILOVER, FaultKind.CRASH))),
    "storm": (4, Day("tempest", _EVERYTHING, max_cells=(8, 1000))),
}


def day_of(seed: int) -> Day:
    day = DAYS[seed % len(DAYS)]
    every, other = OTHER_DAYS.get(day.name, (0, day))
    return other if every and seed // len(DAYS) % every == every - 1 else day


def generate(seed: int) -> SimulationHistory:
    """The history of a seed: the same one every time."""
    chance = random.Random(seed)  # noqa: S311 - to be repeated, not guessed at
    day = day_of(seed)
    nodes, shards = chance.randint(2, 5), chance.randint(1, 3)
    least_ms = chance.choice(day.delays_ms) * chance.uniform(0.2, 1)
    length_us = round(chance.uniform(2.5, 5) * 1e6)
    keys = _late(chance, _keys(chance)) if day.late else _keys(chance)
    if day.refunds:
        keys = _refundable(chance, keys)
    rush = _Rush(seed) if seed // len(DAYS) % RUSH_EVERY == RUSH_EVERY // 2 else None
    if rush is not None:
        keys = (Key(keys[0].name, rush.limit), *keys[1:])
    unix_ms = UNIX_MS + chance.randrange(60_000)
    shard_offsets_ms = tuple([chance.choice([0, 0, 170, -900]) for _ in range(shards)])
    ends_us = [_ends_us(key, unix_ms + shard_offsets_ms[shard_of(key.name, shards)], length_us) for key in keys]
    return SimulationHistory(
        seed=seed,
        name=f"{day.name}-{seed}",
        nodes=nodes,
        shards=shards,
        max_cells=chance.choice(day.max_cells),
        deadline_ms=chance.choice(day.deadlines_ms),
        delay_ms=(round(least_ms, 3), round(least_ms * chance.choice([1, 1.5, 2]), 3)),
        unix_ms=unix_ms,
        node_offsets_ms=tuple([chance.choice([0, 0, 200, -500, 3_600_000]) for _ in range(nodes)]),
        node_drifts_ppm=tuple([chance.choice([0, 500, -500]) for _ in range(nodes)]),
        shard_offsets_ms=shard_offsets_ms,
        shard_drifts_ppm=tuple([chance.choice([0, 0, 200, -200]) for _ in range(shards)]),
        keys=keys,
        asks=_with_refunds(
            seed, keys, _with_rush(rush, _asks(chance, keys, nodes, length_us, ends_us), nodes, length_us)
        ),
        faults=(faults := draw_faults(chance, day.kinds, length_us // 1000, nodes, shards, keys)),
        numbers=tuple(range(len(faults))),
    )


# Rules


def _keys(chance: random.Random) -> tuple[Key, ...]:
    names = chance.sample(range(100), chance.randint(3, 12))
    return tuple([Key(b"key%d" % name, _limit(chance)) for name in names])


def _late(chance: random.Random, keys: tuple[Key, ...]) -> tuple[Key, ...]:
    return tuple([key._replace(limit=dataclasses.replace(key.limit, overdraft=chance.random() < 0.7)) for key in keys])


def _refundable(chance: random.Random, keys: tuple[Key, ...]) -> tuple[Key, ...]:
    """Allow refunds on most keys, under limits that are small enough to be reached often."""
    return tuple(
        [
            key._replace(
                limit=dataclasses.replace(
                    key.limit,
                    refund=chance.random() < 0.9,
                    overdraft=chance.random() < 0.15,
                    requests_per_unit=min(key.limit.requests_per_unit, 100),
                    burst=min(key.limit.burst, 100),
                )
            )
            for key in keys
        ]
    )


REFUNDS: Final = 0.25
"""The share of requests, on keys that have refunds, that give something back."""


def _with_refunds(seed: int, keys: tuple[Key, ...], asks: tuple[Ask, ...]) -> tuple[Ask, ...]:
    """Make some requests refunds: of what they say they took, or far more than was ever taken."""
    if not any(key.limit.refund for key in keys):
        return asks
    chance = random.Random(f"{seed} refunds")  # noqa: S311 - to be repeated, not guessed at

    def given(part: tuple[int, int]) -> tuple[int, int]:
        key, cost = part
        if not keys[key].limit.refund or not cost or chance.random() >= REFUNDS:
            return part
        return key, -cost * chance.choice([1, 1, 1, 2, 10, 500])

    return tuple([ask._replace(parts=tuple(map(given, ask.parts))) for ask in asks])


def _limit(chance: random.Random) -> Limit:
    amount = chance.choice([3, 10, 30, 100, 100, 300, 1000])
    algorithm = chance.choice([Algorithm.SLIDING_WINDOW] * 3 + [Algorithm.FIXED_WINDOW] * 2 + [Algorithm.GCRA])
    kind = chance.random()
    return Limit(
        amount,
        chance.choice([Unit.SECOND] * 8 + [Unit.MINUTE, Unit.HOUR]),
        chance.choice([1, 1, 2, 5]),
        algorithm=algorithm,
        burst=max(1, amount // chance.choice([1, 2, 4])) if algorithm is Algorithm.GCRA else 0,
        precision_millionths=chance.choice([0, 50_000, 50_000, 200_000]),
        on_error=chance.choice([OnError.LOCAL, OnError.LOCAL, OnError.OPEN, OnError.CLOSED]),
        shadow=kind < 0.08,
        quota=0.08 <= kind < 0.16,
    )


# Traffic


def _ends_us(key: Key, shard_ms: int, length_us: int) -> list[int]:
    """Ends of the key's windows by its shard's clock, in µs from the beginning."""
    window_ms = key.limit.window_ms
    return list(range((window_ms - shard_ms % window_ms) * 1000, length_us, window_ms * 1000))


def _asks(
    chance: random.Random, keys: tuple[Key, ...], nodes: int, length_us: int, ends_us: list[list[int]]
) -> tuple[Ask, ...]:
    """A steady stream over Zipf's keys, bursts, and attackers who ask for one key everywhere at once."""
    weights = [1 / (rank + 1) for rank in range(len(keys))]
    count = chance.randint(LEAST_REQUESTS, LEAST_REQUESTS + 500)
    asks: list[Ask] = []
    while len(asks) < count:
        at_us = chance.randrange(length_us)
        shape = chance.random()
        if shape < 0.97:
            asks.append(Ask(at_us, chance.randrange(nodes), _parts(chance, keys, weights)))
        elif shape < 0.985:
            parts, slot = _parts(chance, keys, weights), chance.randrange(nodes)
            asks += [Ask(at_us, slot, parts) for _ in range(chance.randint(5, 40))]
        else:
            asks += _attack(chance, at_us, nodes, ends_us)
    return tuple(sorted(asks))


class _Rush:
    """A key with several times as many requests as its limit admits: nodes pause between their calls for it.

    It has a random generator of its own, so that the rest of the history stays the same.
    """

    def __init__(self, seed: int) -> None:
        self._chance = chance = random.Random(f"{seed} rush")  # noqa: S311 - to be repeated, not guessed at
        self._window_s = chance.choice([1, 1, 2, 2, 5])
        amount = chance.choice([100, 200, 400])
        algorithm = chance.choice([Algorithm.SLIDING_WINDOW] * 2 + [Algorithm.FIXED_WINDOW] + [Algorithm.GCRA] * 2)
        self.limit = Limit(
            amount,
            Unit.SECOND,
            self._window_s,
            algorithm=algorithm,
            burst=amount // chance.choice([1, 1, 2]) if algorithm is Algorithm.GCRA else 0,
            precision_millionths=chance.choice([0, 50_000, 50_000]),
            on_error=chance.choice([OnError.LOCAL, OnError.LOCAL, OnError.OPEN, OnError.CLOSED]),
        )

    def asks(self, nodes: int, length_us: int) -> tuple[Ask, ...]:
        """Requests at all nodes or mostly at one; then perhaps a pause, and once more, perhaps all at once."""
        chance = self._chance
        asks: list[Ask] = []
        per_s = self.limit.requests_per_unit / self._window_s * chance.choice([0.7, 1.5, 3, 6])
        costs = chance.choice([(1,), (1,), (2,), (1, 2, 5), (3, 4)])
        pause = (chance.uniform(0.3, 0.5), chance.uniform(0.5, 0.8)) if chance.random() < 0.5 else (1.0, 1.0)
        haste = chance.choice([1.0, 0.1])
        favourite = chance.choice([None, chance.randrange(nodes)])
        for _ in range(min(RUSH_REQUESTS, round(per_s * length_us / 1e6 / sum(costs) * len(costs)))):
            at = chance.random()
            slot = chance.randrange(nodes) if favourite is None or chance.random() < 0.2 else favourite
            if at >= pause[1]:
                at = pause[1] + haste * (at - pause[1])
            if not pause[0] <= at < pause[1]:
                asks.append(Ask(round(at * length_us), slot, ((0, chance.choice(costs)),)))
        return tuple(asks)


def _with_rush(rush: _Rush | None, asks: tuple[Ask, ...], nodes: int, length_us: int) -> tuple[Ask, ...]:
    return asks if rush is None else tuple(sorted(asks + rush.asks(nodes, length_us)))


def _attack(chance: random.Random, at_us: int, nodes: int, ends_us: list[list[int]]) -> list[Ask]:
    """Requests on one key, at every node; half of the time over the end of a window, when counts change hands."""
    key, over_us, cost = chance.randrange(len(ends_us)), 3_000, 1
    if ends_us[key] and chance.random() < 0.5:
        over_us, cost = chance.choice([5_000, 40_000]), chance.choice([1, 1, 5])
        at_us = max(0, chance.choice(ends_us[key]) - over_us // 2)
    return [
        Ask(at_us + chance.randrange(over_us), slot % nodes, ((key, cost),)) for slot in range(chance.randint(10, 60))
    ]


def _parts(chance: random.Random, keys: tuple[Key, ...], weights: list[float]) -> tuple[tuple[int, int], ...]:
    count = chance.choice([1, 1, 1, 1, 2, 2, 3])
    chosen = chance.choices(range(len(keys)), weights, k=count)
    if chance.random() < 0.98:  # else a key may be in a request twice
        chosen = list(dict.fromkeys(chosen))
    cost = chance.choice([1, 1, 1, 1, 1, 2, 5, 0])
    return tuple([(key, cost) for key in chosen])
