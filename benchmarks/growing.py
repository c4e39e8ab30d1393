"""How long everybody waits when the table of counters grows: CPU time of the slowest additions of a new key.

    python benchmarks/growing.py [--keys N]

A table doubles when it is full to two thirds, in one go, and nothing is decided meanwhile. Each line is one addition
that took longer than all before it, with the number of counters that there were; small ones are left out.
"""

import argparse
import time

from headgate.limiter.counters import CounterTable, KeyCounter
from headgate.limiter.limit import Limit, Unit
from headgate.limiter.sliding_window import SlidingWindow

SHOWN_S = 0.002
NOW_MS = 1_800_000_000_000


def measure(keys: int) -> None:
    limit, algorithm = Limit(1_000, Unit.HOUR), SlidingWindow()
    table: CounterTable[KeyCounter] = CounterTable(keys)
    slowest_s = SHOWN_S
    for number in range(keys):
        counter = algorithm.new_counter(b"bench\x00user\x00flood-%d" % number, limit, NOW_MS)
        began_s = time.thread_time()
        table.put(counter, NOW_MS)
        took_s = time.thread_time() - began_s
        if took_s > slowest_s:
            slowest_s = took_s
            print(f"{number:>10,} counters  {took_s * 1e3:>7.1f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=1_500_000, help="counters in the end (%(default)s)")
    measure(parser.parse_args().keys)


if __name__ == "__main__":
    main()
