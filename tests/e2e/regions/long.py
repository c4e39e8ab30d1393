"""The long forms, in real time: `python -m tests.e2e.regions.long [NAME]…`, all of them without a name.

kills, late_costs, refunds, partition, leaving, overload, quota, lost_quota. Each prints a line with what it measured,
or ends with the assertion that failed.
"""

import math
import signal
import sys
import threading
import time
import warnings
from collections import Counter
from collections.abc import Callable
from typing import Final

from tests.e2e.regions.demand import WHOLE, Demand, by_slices, enforced, near
from tests.e2e.regions.exchangers import OUTSIDE, count_through_kills
from tests.e2e.regions.late_costs import count_late_costs
from tests.e2e.regions.refunds import give_and_take, operators
from tests.e2e.regions.traffic import Traffic
from tests.e2e.regions.world import (
    CELL_LIMIT,
    MINUTE_LIMIT,
    NAMES,
    QUOTA_LIMIT,
    QUOTA_WINDOW_S,
    World,
    open_world,
)
from tests.support.fault_proxy import Fault
from tests.support.headgate import Headgate
from tests.support.waiting import wait_until
from tests.support.workers import scrape

KILLS: Final = 100
LATE_COSTS: Final = 10_000
LATE_ROUNDS: Final = 20
"""Each with a key of its own, and with every fault."""
REFUNDS: Final = 2_000
REFUND_ROUNDS: Final = 10
PARTITION_S: Final = 30.0
AGREED_S: Final = 5.0
"""How long all regions may take to agree after a partition."""
WINDOWS: Final = 3
WINDOW_S: Final = 60
OVERLOAD: Final = 3
MOST: Final = 1.2
"""Of a limit that all regions together admit in a window, at three times the load."""
MEMORY_GROWTH: Final = 1.15
"""Of a node's memory over a partition."""
SETTLED_S: Final = 30.0
"""How long slices may take to follow a shift, with windows of 10 s."""
SHARED_OUT_S: Final = 30.0 + 2 * QUOTA_WINDOW_S
"""After how long what a lost region had above its floor is the others'."""
FLOORS_S: Final = 20.0 + 5.0
"""After how long a region that nobody acknowledges is at its floors: 20 s, and some for looking."""
CADENCE_S: Final = 1.0
EDGE_S: Final = 0.2
"""Around the end of a window nothing is asked: it would not be known in which one it was decided."""


def kills() -> str:
    with open_world() as world:
        world.start_nodes(*NAMES, flags=OUTSIDE)
        exchangers = count_through_kills(world, NAMES, KILLS, seed=1)
        world.stop_nodes()
        return f"{exchangers.killed} exchangers killed: every count exact in all regions"


def late_costs() -> str:
    with open_world(("eu", "us")) as world:
        world.start_nodes("eu", "us")
        total = sum(count_late_costs(world, LATE_COSTS // LATE_ROUNDS, seed) for seed in range(LATE_ROUNDS))
        world.stop_nodes()
        return f"{LATE_COSTS} late costs, {total} together, counted exactly through kills, wipes and lost replies"


def refunds() -> str:
    with open_world(("eu", "us")) as world:
        flags = operators(world.directory)
        world.start_nodes("eu", "us", flags=flags)
        for seed in range(REFUND_ROUNDS):
            give_and_take(world, REFUNDS // REFUND_ROUNDS, seed, flags)
        world.stop_nodes()
        return f"{REFUNDS} charges and refunds, and {REFUND_ROUNDS} resets, counted exactly through the same"


def partition() -> str:
    """At the cadence that is the default: all count on, and agree within seconds of healing."""
    with open_world(interval_s=1) as world:
        world.start_nodes(*NAMES)
        with Traffic(world, NAMES, "long") as traffic:
            traffic.wait_for_values(20)
            before = memory_kib(world)
            world.set_links("ap", Fault("blackhole"))
            until_s = time.monotonic() + PARTITION_S
            wait_until(lambda: time.monotonic() >= until_s, "the partition's end")
            grown = max(after / was for was, after in zip(before, memory_kib(world), strict=True))
            world.heal("ap")
        healed_s = time.monotonic()
        last = list(traffic.admitted)[-1]
        world.wait_agreed("wide", {last: traffic.admitted[last]})
        took_s = time.monotonic() - healed_s  # changes come in their order, so it is the last one
        world.wait_agreed("wide", traffic.admitted)
        assert traffic.failed == []
        assert took_s <= AGREED_S, f"all agree after {took_s:.1f} s"
        assert grown <= MEMORY_GROWTH
        world.stop_nodes()
        return f"cut off for {PARTITION_S:g} s, all agree {took_s:.1f} s later; memory at most x {grown:.2f}"


def memory_kib(world: World) -> list[int]:
    """Of every node."""
    return [_resident_kib(node) for node in world.everyone()]


def _resident_kib(node: Headgate) -> int:
    with open(f"/proc/{node.process.pid}/status") as status:
        (line,) = [line for line in status if line.startswith("VmRSS")]
    return int(line.split()[1])


def leaving() -> str:
    """Limits of scope `cell` are divided anew when a region is no longer heard, and alarms say so."""
    with open_world() as world:
        world.start_nodes(*NAMES)
        left = ("eu", "us")
        wait_until(lambda: active(world, NAMES) == {3}, "all regions to be heard")
        assert world.admit("ap", "cell", "left", CELL_LIMIT) == CELL_LIMIT // 3
        for node in world.nodes["ap"]:
            node.send(signal.SIGSTOP)
        took_s = timed(lambda: active(world, left) == {2}, "the lost region to count no more")
        each = CELL_LIMIT // 2
        assert {region: world.admit(region, "cell", "left", each + 10) for region in left} == dict.fromkeys(left, each)
        alarms = [scrape(node) for region in left for node in world.nodes[region]]
        for times, rings in (("1.5", 1), ("3", 0)):
            assert {one["headgate_cell_scope_exceeded", frozenset({("times", times)})] for one in alarms} == {rings}
        for node in world.nodes["ap"]:
            node.send(signal.SIGCONT)
        wait_until(lambda: active(world, NAMES) == {3}, "the region to be heard again")
        together = (2 * each + CELL_LIMIT // 3) / CELL_LIMIT
        wait_until(lambda: abs(world.cells_used() - together) < 0.001, "what the regions admitted together")
        world.stop_nodes()
        return f"a lost region counts no more after {took_s:.0f} s; the others enforce {each} of {CELL_LIMIT} each"


def active(world: World, regions: tuple[str, ...]) -> set[float]:
    nodes = [node for region in regions for node in world.nodes[region]]
    return {scrape(node)["headgate_regions_active", frozenset()] for node in nodes}


def overload() -> str:
    """Three times the limit, evenly over each window and all regions, at the default cadence: each window's admissions
    are at most the limit and what arrives in one cadence."""
    with open_world(interval_s=1) as world:
        world.start_nodes(*NAMES)
        admitted: Counter[int] = Counter()
        first = math.ceil(time.time() / WINDOW_S)
        threads = [threading.Thread(target=_offer, args=(world, name, first, admitted)) for name in NAMES]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        shares = [admitted[window] / MINUTE_LIMIT for window in range(first, first + WINDOWS)]
        in_a_cadence = OVERLOAD / WINDOW_S * CADENCE_S
        assert all(1 <= share <= min(MOST, 1 + in_a_cadence) for share in shares), shares
        world.stop_nodes()
        return f"{OVERLOAD} x the limit offered: {', '.join(f'{share:.3f}' for share in shares)} of it admitted"


def _offer(world: World, region: str, first: int, admitted: Counter[int]) -> None:
    """One region's part, paced by the clock: what is late is asked at once."""
    per_s = OVERLOAD * MINUTE_LIMIT / WINDOW_S / len(NAMES)
    for number in range(int(per_s * WINDOW_S * WINDOWS)):
        at_s = first * WINDOW_S + number / per_s
        time.sleep(max(0.0, at_s - time.time()))
        window, into_s = divmod(time.time(), WINDOW_S)
        if not EDGE_S < into_s < WINDOW_S - EDGE_S or window >= first + WINDOWS:
            continue
        node = world.nodes[region][number % len(world.nodes[region])]
        if world.ask(node, "minute", "offered").code == "OK":
            admitted[int(window)] += 1


def quota() -> str:
    """Three times a quota of 10 s windows: its slices follow a shift, and all regions together keep to the limit."""
    with open_world(interval_s=1) as world:
        world.start_nodes(*NAMES)
        wait_until(lambda: by_slices(world.nodes), "each region to go by its slices")
        first, then = dict(zip(NAMES, (80, 15, 5), strict=True)), dict(zip(NAMES, (20, 60, 20), strict=True))
        with Demand(world, "long", first) as demand:
            wanted = dict(zip(NAMES, (76, 14, 10), strict=True))
            followed_s = timed(lambda: near(watched(world), wanted, 5), "slices as offered")
            demand.shift(then)
            shifted_s = timed(lambda: near(watched(world), then, 5), "slices as offered after the shift")
            until_s = time.monotonic() + 3 * QUOTA_WINDOW_S
            wait_until(
                lambda: time.monotonic() >= until_s and bool(watched(world)), "three more windows", 60, every_s=1
            )
        most = max(demand.admitted.values()) / QUOTA_LIMIT
        assert most <= 1.05, demand.admitted
        assert shifted_s <= SETTLED_S, f"slices followed after {shifted_s:.0f} s"
        world.stop_nodes()
        return (
            f"80/15/5 followed in {followed_s:.0f} s, the shift to 20/60/20 in {shifted_s:.0f} s; "
            f"at most {most:.3f} of the limit admitted in a window"
        )


def lost_quota() -> str:
    """What a lost region had above its floor is shared out, by a majority only; who is back has its slice again."""
    with open_world(interval_s=1) as world:
        world.start_nodes(*NAMES)
        wait_until(lambda: by_slices(world.nodes), "each region to go by its slices")
        with Demand(world, "long", dict(zip(NAMES, (20, 20, 60), strict=True))) as demand:
            wait_until(lambda: watched(world).get("ap", 0) > WHOLE // 2, "the third to have most", 120, every_s=0.5)
            demand.shift(dict(zip(NAMES, (50, 50, 0), strict=True)))
            stop(world, "ap")
            shared_s = timed(lambda: sum(watched(world, "eu", "us").values()) >= 0.88 * WHOLE, "all but a floor")
            demand.shift(dict(zip(NAMES, (100, 0, 0), strict=True)))
            stop(world, "us")
            floors_s = timed(
                lambda: not by_slices({"eu": world.nodes["eu"]}), "the one that is left to be at its floor"
            )
            assert watched(world, "eu") == {"eu": WHOLE // 10}, "one of three takes nothing"
            for node in world.nodes["ap"] + world.nodes["us"]:
                node.send(signal.SIGCONT)
            wait_until(lambda: watched(world) and by_slices(world.nodes), "all to go by their slices", 120, every_s=0.5)
        assert shared_s <= SHARED_OUT_S, f"shared out after {shared_s:.0f} s"
        assert floors_s <= FLOORS_S, f"at its floor after {floors_s:.0f} s"
        most = max(demand.admitted.values()) / QUOTA_LIMIT
        assert most <= 1.05, demand.admitted
        world.stop_nodes()
        return (
            f"what a lost region had was the others' after {shared_s:.0f} s; one of three alone was at its floor after "
            f"{floors_s:.0f} s; at most {most:.3f} of the limit admitted in a window"
        )


def stop(world: World, region: str) -> None:
    """In the middle of whatever it does."""
    for node in world.nodes[region]:
        node.send(signal.SIGSTOP)


def timed(condition: Callable[[], object], what: str) -> float:
    """How long it took."""
    began_s = time.monotonic()
    wait_until(condition, what, 120, every_s=0.5)
    return time.monotonic() - began_s


def watched(world: World, *regions: str) -> dict[str, int]:
    """The shares in force, of which no look may find more than the limit, or less than a floor."""
    shares = enforced({region: world.nodes[region] for region in regions or NAMES}, "long")
    assert sum(shares.values()) <= WHOLE, shares
    assert all(share >= WHOLE // 10 for share in shares.values()), shares
    return shares


RUNS: Final[dict[str, Callable[[], str]]] = {
    "kills": kills,
    "late_costs": late_costs,
    "refunds": refunds,
    "partition": partition,
    "leaving": leaving,
    "overload": overload,
    "quota": quota,
    "lost_quota": lost_quota,
}


def main(names: list[str]) -> None:
    """Those that are named, or all."""
    warnings.simplefilter("ignore", DeprecationWarning)
    for name in names or RUNS:
        sys.stdout.write(f"{name}: {RUNS[name]()}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
