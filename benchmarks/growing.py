"""How long everybody waits while a flood of new keys makes a node's tables grow: CPU time of the slowest additions.

    python benchmarks/growing.py [--keys N]

Nothing else is decided during an addition. First the table of counters alone, then whole decisions of a node on its
own, both with the garbage collector's looks among them, as `serve` has them. Each line is one that took longer than all
before it, with the number of counters that there were; short ones are left out, but for the longest.
"""

import argparse
import time
from collections.abc import Callable

from headgate.clock import SystemClock
from headgate.limiter.counter_table import CounterTable
from headgate.limiter.counters import KeyCounter
from headgate.limiter.decision import Charge
from headgate.limiter.engine import Engine
from headgate.limiter.limit import Limit, Unit
from headgate.limiter.sliding_window import SlidingWindow
from headgate.runtime.garbage import MemoryKeeper

SHOWN_S = 0.002
NOW_MS = 1_800_000_000_000
TICK_KEYS = 5_000
"""New keys between two ticks of housekeeping, ten a second: as many as come in a tenth of one at most."""
LIMIT = Limit(1_000, Unit.HOUR)


def measure(name: str, keys: int, keeper: MemoryKeeper, add: Callable[[bytes], object]) -> None:
    slowest_s = all_s = 0.0
    for number in range(keys):
        key = b"bench\x00user\x00flood-%d" % number
        began_s = time.thread_time()
        add(key)
        if number % TICK_KEYS == 0:
            keeper.tick(number)
        took_s = time.thread_time() - began_s
        all_s += took_s
        if took_s > slowest_s:
            slowest_s = took_s
            if took_s > SHOWN_S:
                print(f"{name:<10}{number:>10,} counters  {took_s * 1e3:>7.1f} ms", flush=True)
    print(f"{name:<10}{keys:>10,} counters  {slowest_s * 1e3:>7.1f} ms at most, {all_s / keys * 1e6:.1f} µs on average")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_500_000, help="counters in the end (%(default)s)")
    keys = parser.parse_args().keys
    keeper, new = MemoryKeeper(), SlidingWindow().new_counter
    keeper.start()
    table: CounterTable[KeyCounter] = CounterTable(keys)
    measure("table", keys, keeper, lambda key: table.put(new(key, LIMIT, NOW_MS), NOW_MS))
    engine = Engine(SystemClock(), max_cells=keys)
    measure("decisions", keys, keeper, lambda key: engine.decide((Charge(key, LIMIT, 1),)))


if __name__ == "__main__":
    main()
