"""Histories made from seeds, by kind: which faults there are, and how many. A name like `cuts-17` is a kind and a seed."""

import random
from collections.abc import Callable

from tests.unit.exchange.quota.world import EPOCH_END_MS, Fault, History

WINDOWS_MS = (1_000, 2_000, 10_000, 10_000, 30_000, 60_000)


def named(name: str) -> History:
    kind, _, seed = name.partition("-")
    return KINDS[kind](int(seed))


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


KINDS: dict[str, Callable[[int], History]] = {
    "calm": _calm,
    "cuts": _with("cuts", ("cut", "cut", "mute", "link"), 4),
    "losses": _with("losses", ("wipe", "emptied", "crash"), 5),
    "epochs": _with("epochs", ("slow",), 1, epoch=True),
    "storm": _with("storm", ("cut", "mute", "link", "slow", "crash", "wipe", "emptied"), 8, epoch=True),
}
