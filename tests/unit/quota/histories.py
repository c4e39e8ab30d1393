"""Histories made from seeds, by kind: which faults there are, and how many. `cuts-17` is a kind and a seed."""

import random
from collections.abc import Callable

from tests.unit.quota.world import EPOCH_END_MS, Fault, History

WINDOWS_MS = (1_000, 2_000, 10_000, 10_000, 30_000, 60_000)


def named(name: str) -> History:
    kind, _, seed = name.partition("-")
    return {**KINDS, **TOLD}[kind](int(seed))


def names(per_kind: int) -> list[str]:
    return [f"{kind}-{seed}" for seed in range(per_kind) for kind in KINDS]


def _base(seed: int, kind: str, *, epoch: bool = False) -> tuple[random.Random, History]:
    """Some regions, a limit, and a demand of up to three times the limit that shifts now and then."""
    rng = random.Random(f"{kind} {seed}")
    regions = rng.randint(2, 5)
    window_ms = rng.choice(WINDOWS_MS)
    limit = rng.choice((100, 3_000, 100_000))
    length_ms = 160_000 + 4 * window_ms
    # An epoch of 60 s windows is an hour too: the boundary is at the same time for all windows.
    before_ms = rng.randrange(20_000, 90_000) if epoch else 1_800_000
    at_ms = 0
    demands = []
    while at_ms < length_ms:
        weights = [rng.choice((0, 1, 1, 5, 20, 80)) for _ in range(regions)]
        load = limit * rng.choice((1, 3, 3, 6)) // 2
        demands.append((at_ms, tuple(load * weight // max(1, sum(weights)) for weight in weights)))
        at_ms += rng.randrange(10_000, 70_000)
    history = History(
        regions=regions,
        window_ms=window_ms,
        limit=limit,
        start_ms=EPOCH_END_MS - before_ms,
        length_ms=length_ms,
        demands=tuple(demands),
        offsets_ms=tuple(rng.randint(-2_000, 2_000) for _ in range(regions)),
        loss_percent=rng.choice((0, 5, 30)),
        delay_ms=rng.choice((50, 400, 1_500)),
        seed=seed,
    )
    return rng, history


def _faults(rng: random.Random, history: History, kinds: tuple[str, ...], most: int) -> tuple[Fault, ...]:
    faults = []
    for _ in range(rng.randint(1, most)):
        kind = rng.choice(kinds)
        count = 2 if kind == "link" else rng.choice((1, 1, 1, 2)) if history.regions > 2 else 1
        regions = tuple(rng.sample(range(history.regions), count))
        for_ms = rng.choice((500, 3_000, 15_000, 25_000, 40_000, 60_000, 90_000))
        faults.append(Fault(rng.randrange(12_000, history.length_ms - 20_000), kind, regions, for_ms))
    return tuple(faults)


def _calm(seed: int) -> History:
    """Loss, delays and clocks that differ: nothing else."""
    return _base(seed, "calm")[1]


def _with(kind: str, kinds: tuple[str, ...], most: int, *, epoch: bool = False) -> Callable[[int], History]:
    def make(seed: int) -> History:
        rng, history = _base(seed, kind, epoch=epoch)
        return History(**{**history.__dict__, "faults": _faults(rng, history, kinds, most)})

    return make


def _told(
    percents: tuple[tuple[int, tuple[int, ...]], ...],
    settled: tuple[tuple[int, int, tuple[int, ...]], ...],
    *,
    faults: tuple[Fault, ...] = (),
    window_ms: int = 10_000,
    before_epoch_ms: int = 1_800_000,
    length_ms: int = 0,
    sets: tuple[tuple[int, ...], ...] = (),
) -> Callable[[int], History]:
    """By hand: what each region is offered from when on, in percent of the limit, and what it is to enforce when."""

    def make(seed: int) -> History:
        limit, regions = 10_000, len(percents[0][1])
        return History(
            regions=regions,
            window_ms=window_ms,
            limit=limit,
            start_ms=EPOCH_END_MS - before_epoch_ms,
            length_ms=length_ms or max(until_ms for _, until_ms, _ in settled),
            demands=tuple((at_ms, tuple(limit * part // 100 for part in parts)) for at_ms, parts in percents),
            offsets_ms=tuple((-1_500, 0, 1_500, 700, -200)[:regions]),
            faults=faults,
            delay_ms=300,
            seed=seed,
            sets=sets,
            settled=settled,
        )

    return make


def _no_way(at_ms: int, between: tuple[int, int], for_ms: int) -> tuple[Fault, Fault]:
    return Fault(at_ms, "link", between, for_ms), Fault(at_ms, "link", between[::-1], for_ms)


DEAD_MS = 1_000_000
SPREAD_MS = 40_000
"""From the start on: 12 s until all are there and filled, then the gifts, as usage is offered for the first time."""

TOLD: dict[str, Callable[[int], History]] = {
    # Offered 80/15/5, as much as the limit and three times as much: the third keeps its floor.
    "spread": _told(((0, (80, 15, 5)),), ((SPREAD_MS, 90_000, (76, 14, 10)),)),
    "overload": _told(((0, (240, 45, 15)),), ((SPREAD_MS, 90_000, (76, 14, 10)),)),
    # It shifts to 20/60/20 at 60 s: settled within 30 s.
    "shift": _told(
        ((0, (240, 45, 15)), (60_000, (60, 180, 60))),
        ((SPREAD_MS, 60_000, (76, 14, 10)), (90_000, 150_000, (20, 60, 20))),
    ),
    "shift60": _told(
        ((0, (240, 45, 15)), (200_000, (60, 180, 60))),
        ((150_000, 200_000, (76, 14, 10)), (300_000, 350_000, (20, 60, 20))),
        window_ms=60_000,
    ),
    # The third dies at 60 s: after 30 s and two windows the others have what it had above its floor.
    "lost": _told(
        ((0, (60, 60, 180)),),
        ((SPREAD_MS, 59_500, (20, 20, 60)), (110_000, 160_000, (45, 45, 10))),
        faults=(Fault(60_000, "crash", (2,), DEAD_MS),),
    ),
    # It comes back after 60 s: 10 s and two windows later everything is as it was.
    "return": _told(
        ((0, (60, 60, 180)),),
        ((110_000, 119_000, (45, 45, 10)), (155_000, 200_000, (20, 20, 60))),
        faults=(Fault(60_000, "cut", (2,), 60_000),),
    ),
    # It hears the others, and they don't hear it.
    "mute": _told(
        ((0, (60, 60, 180)),),
        ((110_000, 160_000, (45, 45, 10)),),
        faults=(Fault(60_000, "mute", (2,), DEAD_MS),),
    ),
    # Three of five are cut off from two: only the three share out.
    "majority": _told(
        ((0, (60, 60, 60, 60, 60)),),
        ((SPREAD_MS, 60_000, (20, 20, 20, 20, 20)), (110_000, 160_000, (10, 10, 25, 25, 25))),
        faults=(Fault(60_000, "cut", (0, 1), DEAD_MS),),
    ),
    # Neither half of four is more than half, and neither of two regions is: each keeps what it has.
    "halves": _told(
        ((0, (180, 60, 30, 30)),),
        ((SPREAD_MS, 160_000, (60, 20, 10, 10)),),
        faults=(Fault(60_000, "cut", (0, 1), DEAD_MS),),
    ),
    "pair": _told(
        ((0, (240, 60)),),
        ((SPREAD_MS, 160_000, (80, 20)),),
        faults=(Fault(60_000, "cut", (0,), DEAD_MS),),
    ),
    # An epoch ends at 60 s, and its rows at 110 s: no slice moves.
    "turn": _told(((0, (240, 45, 15)),), ((SPREAD_MS, 160_000, (76, 14, 10)),), before_epoch_ms=60_000),
    # A store is lost at 60 s: its region is at its floor until the others have answered, and then has its slice again.
    "wiped": _told(
        ((0, (60, 60, 180)),),
        ((SPREAD_MS, 59_500, (20, 20, 60)), (105_000, 160_000, (20, 20, 60))),
        faults=(Fault(60_000, "wipe", (0,), 2_000),),
    ),
    # A pair's giver loses its store.
    "forgotten": _told(
        ((0, (240, 60)),),
        ((SPREAD_MS, 59_500, (80, 20)), (80_000, 120_000, (80, 20))),
        faults=(Fault(60_000, "wipe", (1,), 500),),
    ),
    # While traffic shifts the giver has two ledgers that take turns.
    "doubled": _told(
        ((0, (240, 45, 15)), (60_000, (60, 180, 60))),
        ((SPREAD_MS, 59_500, (76, 14, 10)), (110_000, 140_000, (20, 60, 20))),
        faults=(Fault(58_000, "double", (0,), 30_000),),
    ),
    # Two regions become three, one after the other, the new one last: floors until two windows and 30 s after that.
    "added": _told(
        ((0, (240, 60, 0)), (86_000, (100, 100, 100))),
        ((SPREAD_MS, 59_500, (80, 20, 0)), (87_000, 130_000, (10, 10, 10)), (155_000, 170_000, (33, 33, 33))),
        faults=tuple(Fault(60_000 + 12_000 * region, "configure", (region, 0, 1, 2)) for region in range(3)),
        sets=((0, 1), (0, 1), ()),
    ),
    # And back to two: the third is gone, and the others are told so.
    "removed": _told(
        ((0, (30, 30, 240)), (60_000, (150, 150, 0))),
        ((SPREAD_MS, 59_500, (10, 10, 80)), (63_000, 105_000, (10, 10, 0)), (125_000, 150_000, (50, 50, 0))),
        faults=(
            Fault(60_000, "configure", (2,)),
            Fault(60_500, "configure", (0, 0, 1)),
            Fault(61_500, "configure", (1, 0, 1)),
        ),
        sets=((0, 1, 2), (0, 1, 2), (0, 1, 2)),
    ),
    # Both of a pair lose their stores at once, and nobody knows any more who gave what.
    "amnesia": _told(
        ((0, (240, 10)), (130_000, (240, 240))),
        ((125_000, 129_000, (88, 12)), (340_000, 360_000, (50, 50))),
        faults=(Fault(150_000, "wipe", (0, 1), 1_000),),
        window_ms=60_000,
    ),
    # A pair's giver can't save what it gives, and starts again.
    "unsaved": _told(
        ((0, (240, 60)), (60_000, (60, 240))),
        ((SPREAD_MS, 59_500, (80, 20)), (110_000, 140_000, (20, 80))),
        faults=(Fault(60_000, "stuck", (0,), 9_000), Fault(62_000, "link", (1, 0), 15_000)),
    ),
    # As `return`, with a window in which much is still in use when it comes back.
    "return60": _told(
        ((0, (100, 100, 400)),),
        ((150_000, 195_000, (17, 17, 66)), (345_000, 385_000, (45, 45, 10)), (530_000, 550_000, (17, 17, 66))),
        faults=(Fault(200_000, "cut", (2,), 190_000),),
        window_ms=60_000,
    ),
    # The third comes back to the first, whom the second does not hear any more.
    "stale": _told(
        ((0, (60, 60, 180)),),
        ((SPREAD_MS, 59_500, (20, 20, 60)), (100_000, 119_000, (45, 45, 10))),
        faults=(
            *_no_way(60_000, (0, 2), 60_000),
            *_no_way(60_000, (1, 2), DEAD_MS),
            Fault(120_000, "link", (0, 1), DEAD_MS),
        ),
        window_ms=2_000,
        length_ms=160_000,
    ),
    # The third gives to the second, is not heard, is lost, and is heard by the second again.
    "pending": _told(
        ((0, (60, 60, 180)), (60_000, (180, 180, 0))),
        ((SPREAD_MS, 59_500, (20, 20, 60)),),
        faults=(*_no_way(38_000, (0, 2), DEAD_MS), *_no_way(60_500, (1, 2), 60_000)),
        window_ms=2_000,
        length_ms=160_000,
    ),
}
"""Histories that are told by hand; the seed is the network's."""

KINDS: dict[str, Callable[[int], History]] = {
    "calm": _calm,
    "cuts": _with("cuts", ("cut", "cut", "mute", "link"), 4),
    "losses": _with("losses", ("wipe", "emptied", "crash", "stuck", "double"), 5),
    "epochs": _with("epochs", ("slow", "held"), 2, epoch=True),
    "storm": _with(
        "storm", ("cut", "mute", "link", "slow", "held", "crash", "wipe", "emptied", "stuck", "double"), 8, epoch=True
    ),
}
