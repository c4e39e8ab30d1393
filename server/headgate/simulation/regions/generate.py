"""Histories of several regions made from seeds: one of a few kinds of bad day."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Final, NamedTuple

from headgate.limiter.limit import Algorithm, Limit, Scope, TrafficClass, Unit
from headgate.simulation.history import Key
from headgate.simulation.regions.history import LINK_FAULTS, RegionAsk, RegionFault, RegionFaultKind, RegionsHistory
from headgate.simulation.regions.hostile import HostileHistory

UNIX_MS: Final = 1_700_000_000_000
LENGTH_S: Final = (12.0, 22.0)
REQUESTS: Final = (600, 1_000)
CROWD: Final = 4
"""Factor for the requests on a day without faults, on which limits must hold."""

_LOSSES = (
    RegionFaultKind.REGION_FLUSH,
    RegionFaultKind.REGION_RESTART,
    RegionFaultKind.REGION_FAILOVER,
    RegionFaultKind.REGION_LOST,
)
_ORIGINS = (RegionFaultKind.ORIGIN_STALL, RegionFaultKind.LOST_IMPORTS)


_WORLD = tuple(
    kind for kind in RegionFaultKind if kind not in (RegionFaultKind.REGION_REMOVED, RegionFaultKind.REGION_LISTED)
)


class RegionDay(NamedTuple):
    """A kind of bad day for regions."""

    name: str
    kinds: tuple[RegionFaultKind, ...]
    most_faults: int


DAYS: Final = (
    RegionDay("quiet", (), 0),
    RegionDay("links", LINK_FAULTS, 10),
    RegionDay("exchangers", (RegionFaultKind.EXCHANGER_CRASH, RegionFaultKind.LOST_ACKS, RegionFaultKind.REPEATED), 12),
    RegionDay("wiped", (*_LOSSES, RegionFaultKind.LOST_ACKS, RegionFaultKind.REPEATED, RegionFaultKind.ONE_WAY), 7),
    RegionDay("skewed", (RegionFaultKind.REGION_CLOCK, RegionFaultKind.SLOW_LINK, *_ORIGINS), 6),
    RegionDay("world", _WORLD, 14),
)


SCOPES_EVERY: Final = 5
SCOPES_AT: Final = 3
"""Every fifth history, from the third on, is a longer one in which limits of all scopes are used."""
SCOPES_LENGTH_S: Final = (40.0, 60.0)
"""Seconds that such a day lasts: it takes about 13 s until regions follow their slices, and some windows until those
have followed the traffic.
"""
MOVING_LENGTH_S: Final = (24.0, 40.0)
"""Seconds that a day lasts on which lists change: a region goes by its slices after about 13 s."""
SCOPES_REQUESTS: Final = (2_500, 3_500)
HOSTILE_EVERY: Final = 25
HOSTILE_AT: Final = 24
"""Every twenty-fifth history is one in which a region is in the wrong hands."""
JOINING_AT: Final = 22
"""Another one of twenty-five is one in which regions are removed and added again."""
MOVING_AT: Final = 16
MOVING_QUOTAS_AT: Final = 21
"""Two more of twenty-five are such on which lists of shards change: one with limits that regions count together, one
with limits of all scopes."""
LISTED_MS: Final = (3_000, 12_000)
REMOVED_MS: Final = (1_000, 12_000)
LONG_FAULTS: Final = (RegionFaultKind.ONE_WAY, RegionFaultKind.PARTITION, RegionFaultKind.EXCHANGER_CRASH)
LONG_MS: Final = (15_000, 45_000)
SHIFTS: Final = 3
"""Number of times that demand moves from region to region."""


def generate(seed: int) -> RegionsHistory:
    """The history of a seed: the same one every time."""
    match seed % HOSTILE_EVERY:
        case at if at == HOSTILE_AT:
            return _hostile(seed)
        case at if at == JOINING_AT:
            return _joining(seed)
        case at if at == MOVING_AT:
            return _moving(seed, _keys, _asks_everywhere)
        case at if at == MOVING_QUOTAS_AT:
            return _moving(seed, _keys_of_all_scopes, _shifting_asks)
        case _:
            return _plain(seed)


def _moving(
    seed: int,
    make_keys: Callable[[random.Random, int], tuple[Key, ...]],
    make_asks: Callable[[random.Random, tuple[Key, ...], int, int], tuple[RegionAsk, ...]],
) -> RegionsHistory:
    """A day on which lists of shards change, with nothing else, or with links and exchangers as bad as on others."""
    chance = random.Random(f"moving {seed}")  # noqa: S311 - to be repeated, not guessed at
    regions, shards = chance.choice([2, 3]), chance.randint(1, 2)
    length_us = round(chance.uniform(*MOVING_LENGTH_S) * 1e6)
    keys = make_keys(chance, regions)
    asks = make_asks(chance, keys, regions, length_us)
    changes = [
        RegionFault(
            RegionFaultKind.REGION_LISTED,
            chance.randrange(length_us // 5_000, length_us // 2_000),
            chance.randint(*LISTED_MS),
            region,
            amount=chance.choice([0, 1, 2, 3] if shards > 1 else [0, 2]),
        )
        for region in chance.sample(range(regions), chance.randint(1, 2))
    ]
    # Some of what moves has not been told, and what is told while it moves does not arrive.
    cuts = [
        RegionFault(
            RegionFaultKind.PARTITION,
            max(0, change.at_ms - chance.randrange(4_000)),
            chance.randint(2_000, 9_000),
            change.region,
        )
        for change in changes
        if chance.random() < 0.5
    ]
    day = RegionDay("moving", (*LINK_FAULTS, RegionFaultKind.EXCHANGER_CRASH, RegionFaultKind.LOST_IMPORTS), 5)
    others = _faults(chance, day, length_us // 1000, regions, shards) if chance.random() < 0.6 else ()
    faults = tuple(sorted([*others, *changes, *cuts], key=lambda fault: fault.at_ms))
    return RegionsHistory(
        seed=seed,
        name=f"moving-{seed}",
        regions=regions,
        nodes=2,
        shards=shards,
        exchangers=chance.choice([1, 2, 2]),
        deadline_ms=200,
        link_ms=(1.0, chance.choice([1.0, 20.0, 80.0])),
        unix_ms=UNIX_MS + chance.randrange(60_000),
        offsets_ms=tuple([chance.choice([0, 0, 40, -60]) for _ in range(regions)]),
        keys=keys,
        asks=asks,
        faults=faults,
        numbers=tuple(range(len(faults))),
    )


def _joining(seed: int) -> RegionsHistory:
    """A day on which regions come and go, with links and exchangers as bad as on others. One may not be there at first.

    Limits that all regions count together only: those of other scopes are another number for each set of regions.
    """
    chance = random.Random(f"joining {seed}")  # noqa: S311 - to be repeated, not guessed at
    regions, shards = chance.choice([3, 3, 4]), chance.randint(1, 2)
    length_us = round(chance.uniform(*LENGTH_S) * 1e6)
    keys = _keys(chance, regions)
    day = RegionDay("joining", (*LINK_FAULTS, RegionFaultKind.EXCHANGER_CRASH), 5)
    removals = [
        RegionFault(
            RegionFaultKind.REGION_REMOVED,
            chance.choice([0, chance.randrange(length_us // 1000)]),
            chance.randint(*REMOVED_MS),
            region,
            amount=chance.randint(0, 1),
        )
        for region in chance.sample(range(regions), chance.randint(1, 2))
    ]
    others = _faults(chance, day, length_us // 1000, regions, shards)
    faults = tuple(sorted([*others, *removals], key=lambda fault: fault.at_ms))
    return RegionsHistory(
        seed=seed,
        name=f"joining-{seed}",
        regions=regions,
        nodes=2,
        shards=shards,
        exchangers=chance.choice([1, 2, 2]),
        deadline_ms=chance.choice([50, 200]),
        link_ms=(1.0, chance.choice([1.0, 20.0, 80.0])),
        unix_ms=UNIX_MS + chance.randrange(60_000),
        offsets_ms=tuple([chance.choice([0, 0, 40, -60]) for _ in range(regions)]),
        keys=keys,
        asks=_asks(chance, keys, regions, length_us, times=1),
        faults=faults,
        numbers=tuple(range(len(faults))),
    )


def _hostile(seed: int) -> HostileHistory:
    """A day of all scopes without faults, on which one region lies."""
    chance = random.Random(f"hostile {seed}")  # noqa: S311 - to be repeated, not guessed at
    regions = chance.choice([2, 3, 3])
    length_us = round(chance.uniform(*LENGTH_S) * 1e6)
    keys = _keys_of_all_scopes(chance, regions)
    return HostileHistory(
        seed=seed,
        name=f"hostile-{seed}",
        regions=regions,
        nodes=2,
        shards=chance.randint(1, 2),
        exchangers=2,
        deadline_ms=200,
        link_ms=(1.0, 4.0),
        unix_ms=UNIX_MS + chance.randrange(60_000),
        offsets_ms=(0,) * regions,
        keys=keys,
        asks=_shifting_asks(chance, keys, regions, length_us),
        faults=(),
        numbers=(),
        hostile=chance.randrange(regions),
    )


def _plain(seed: int) -> RegionsHistory:
    scopes = seed % SCOPES_EVERY == SCOPES_AT
    day = DAYS[seed % len(DAYS)]
    name = "scopes" if scopes else day.name
    chance = random.Random(f"{'scopes' if scopes else 'regions'} {seed}")  # noqa: S311 - to be repeated, not guessed at
    regions = chance.choice([2, 3, 3, 3, 4] if scopes else [2, 3, 3, 3, 3, 4])
    shards = chance.randint(1, 2)
    length_us = round(chance.uniform(*(SCOPES_LENGTH_S if scopes else LENGTH_S)) * 1e6)
    keys = _keys_of_all_scopes(chance, regions) if scopes else _keys(chance, regions)
    least_ms = chance.choice([1.0, 20.0, 80.0])
    faults = _faults(chance, day, length_us // 1000, regions, shards)
    if scopes:
        faults = tuple([_longer(chance, fault) for fault in faults])
    offsets = [0, 300, -2_500, 4_000] if name == "skewed" else [0, 0, 40, -60, 700]
    return RegionsHistory(
        seed=seed,
        name=f"{name}-{seed}",
        regions=regions,
        nodes=2,
        shards=shards,
        exchangers=chance.choice([1, 2, 2]),
        deadline_ms=chance.choice([50, 200]),
        link_ms=(least_ms, least_ms * chance.choice([1, 2, 4])),
        unix_ms=UNIX_MS + chance.randrange(60_000),
        offsets_ms=tuple([chance.choice(offsets) for _ in range(regions)]),
        keys=keys,
        asks=_shifting_asks(chance, keys, regions, length_us)
        if scopes
        else _asks(chance, keys, regions, length_us, times=1 if faults else CROWD),
        faults=faults,
        numbers=tuple(range(len(faults))),
    )


def _keys(chance: random.Random, regions: int) -> tuple[Key, ...]:
    return tuple([Key(b"key%d" % number, _limit(chance, regions)) for number in range(chance.randint(3, 8))])


def _keys_of_all_scopes(chance: random.Random, regions: int) -> tuple[Key, ...]:
    quotas = [Key(b"quota%d" % number, _quota(chance, regions)) for number in range(chance.randint(1, 3))]
    scopes = (Scope.CELL, Scope.REGION, Scope.GLOBAL)
    return (*quotas, *(Key(scope.value.encode(), _limit(chance, regions, scope)) for scope in scopes))


def _longer(chance: random.Random, fault: RegionFault) -> RegionFault:
    """Make some faults so long that a region is lost to the others, or that no keeper holds its slices."""
    if fault.kind in LONG_FAULTS and chance.random() < 0.3:
        return replace(fault, for_ms=chance.randint(*LONG_MS))
    return fault


def _quota(chance: random.Random, regions: int) -> Limit:
    algorithm = chance.choice(
        [Algorithm.SLIDING_WINDOW, Algorithm.SLIDING_WINDOW, Algorithm.FIXED_WINDOW, Algorithm.GCRA]
    )
    limit = chance.choice([40, 100, 300])
    return Limit(
        limit,
        Unit.SECOND,
        chance.choice([1, 6, 10]),
        algorithm=algorithm,
        burst=limit if algorithm is Algorithm.GCRA else 0,
        scope=Scope.QUOTA,
        regions=regions,
    )


def _shifting_asks(chance: random.Random, keys: tuple[Key, ...], regions: int, length_us: int) -> tuple[RegionAsk, ...]:
    """Each key has most of its demand in one region at a time; quotas have most of the demand."""
    weights = [5 if key.limit.scope is Scope.QUOTA else 1 for key in keys]
    homes = [[chance.randrange(regions) for _ in range(SHIFTS + 1)] for _ in keys]
    asks = []
    for _ in range(chance.randint(*SCOPES_REQUESTS)):
        (key,) = chance.choices(range(len(keys)), weights)
        at_us = chance.randrange(length_us)
        home = homes[key][at_us * (SHIFTS + 1) // length_us]
        region = home if chance.random() < 0.8 else chance.randrange(regions)
        asks.append(RegionAsk(at_us, region, chance.randrange(2), key, chance.choice([1, 1, 1, 2, 5])))
    return tuple(sorted(asks))


def _limit(chance: random.Random, regions: int, scope: Scope = Scope.GLOBAL) -> Limit:
    unit, multiplier = chance.choice([(Unit.SECOND, 6), (Unit.SECOND, 10), (Unit.MINUTE, 1), (Unit.HOUR, 1)])
    return Limit(
        chance.choice([10, 40, 100, 300, 1000]),
        unit,
        multiplier,
        algorithm=chance.choice([Algorithm.SLIDING_WINDOW, Algorithm.SLIDING_WINDOW, Algorithm.FIXED_WINDOW]),
        scope=scope,
        regions=regions,
        traffic_class=chance.choice([None, None, TrafficClass.FREE, TrafficClass.ABUSE]),
    )


def _asks(
    chance: random.Random, keys: tuple[Key, ...], regions: int, length_us: int, times: int
) -> tuple[RegionAsk, ...]:
    """Requests on keys: some everywhere, some in one region only, some in bursts that end early."""
    asks = []
    home = [chance.choice([-1, -1, chance.randrange(regions)]) for _ in keys]
    ends_us = [length_us if chance.random() < 0.6 else chance.randrange(length_us // 3, length_us) for _ in keys]
    for _ in range(times * chance.randint(*REQUESTS)):
        key = chance.randrange(len(keys))
        at_us = chance.randrange(ends_us[key])
        region = home[key] if home[key] >= 0 and chance.random() < 0.95 else chance.randrange(regions)
        asks.append(RegionAsk(at_us, region, chance.randrange(2), key, chance.choice([1, 1, 1, 2, 5])))
    return tuple(sorted(asks))


def _asks_everywhere(
    chance: random.Random, keys: tuple[Key, ...], regions: int, length_us: int
) -> tuple[RegionAsk, ...]:
    return _asks(chance, keys, regions, length_us, times=2)


def _faults(
    chance: random.Random, day: RegionDay, length_ms: int, regions: int, shards: int
) -> tuple[RegionFault, ...]:
    found = []
    for _ in range(chance.randint(1, day.most_faults) if day.most_faults else 0):
        kind = chance.choice(day.kinds)
        region = chance.randrange(regions)
        peer = (region + chance.randint(1, regions - 1)) % regions
        amount = chance.choice([10, 30, 60])
        if kind is RegionFaultKind.REGION_CLOCK:
            amount = chance.choice([-3_000, -400, 300, 2_000])
        at_ms = chance.randrange(1_000, length_ms)
        found.append(RegionFault(kind, at_ms, _for_ms(chance, kind), region, peer, chance.randrange(shards), amount))
    return tuple(sorted(found, key=lambda fault: fault.at_ms))


def _for_ms(chance: random.Random, kind: RegionFaultKind) -> int:
    if kind in (RegionFaultKind.REGION_FLUSH, RegionFaultKind.REGION_CLOCK):
        return 0
    if kind is RegionFaultKind.REGION_LOST:
        return chance.randint(100, 2_000)
    return chance.randint(200, 8_000)
