"""Rules at 10, 10,000 and 1,000,000: load time, memory, lookup; loaders, snapshots, and a reload beside a loop.

    .venv/bin/python benchmarks/rules.py           # several minutes, about 2 GB
    .venv/bin/python benchmarks/rules.py --quick   # 10, 1,000 and 20,000 rules: well under a minute

Each part runs in a process of its own, so that memory and caches are its own. Lookups
of all sizes run in one process, by turns, so that their ratio is of one moment.
"""

import argparse
import asyncio
import gc
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from headgate.clock import SystemClock
from headgate.rules import snapshot
from headgate.rules.directory import load_directory
from headgate.rules.directory_feed import DirectoryFeed
from headgate.rules.ruleset import RuleSet
from headgate.rules.snapshot import SnapshotWriter
from headgate.rules.store import RuleStore

FULL = (10, 10_000, 1_000_000)
QUICK = (10, 1_000, 20_000)
LOADER_RULES = 20_000
PURE_PYTHON_RULES = 2_000
LOOKUPS = 20_000
BATCH = 100
ROUNDS = 15
WANTED_RATIO = 1.5
WANTED_BYTES = 600
WANTED_SNAPSHOT_RATE = 100_000


def rules_text(count: int, requests: int = 100) -> str:
    rule = "  - key: user\n    value: user-{n}\n    rate_limit:\n      unit: minute\n      requests_per_unit: {r}\n"
    return "domain: edge\ndescriptors:\n" + "".join(rule.format(n=n, r=requests) for n in range(count))


def rules_directory(parent: Path, count: int) -> Path:
    directory = parent / f"rules-{count}"
    directory.mkdir(exist_ok=True)
    path = directory / "edge.yaml"
    if not path.exists():
        path.write_text(rules_text(count))
    return directory


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


# Parts; each prints one JSON object


def part_load(parent: Path, count: int) -> dict[str, float]:
    directory = rules_directory(parent, count)
    gc.collect()
    before = resident_bytes()
    seconds, rules = timed(lambda: load_directory(directory))
    gc.collect()
    grown = resident_bytes() - before
    SnapshotWriter(parent / f"data-{count}").save(rules, saved_ms=0)
    return {"seconds": seconds, "bytes": grown}


def part_snapshot(parent: Path, count: int) -> dict[str, float]:
    gc.collect()
    before = resident_bytes()
    seconds, loaded = timed(lambda: snapshot.load(parent / f"data-{count}"))
    gc.collect()
    return {"seconds": seconds, "bytes": resident_bytes() - before, "count": loaded.rules.count}


def part_lookup(parent: Path, counts: tuple[int, ...]) -> dict[str, float]:
    """Microseconds per lookup: the best of many rounds, sizes and kinds of traffic by turns."""
    sets = {count: snapshot.load(parent / f"data-{count}").rules for count in counts}
    source = random.Random(1)
    best = {(kind, count): float("inf") for kind in TRAFFIC for count in counts}
    gc.disable()
    for _ in range(ROUNDS):
        for kind, count in list(best):
            batches = (fresh_requests(TRAFFIC[kind], source, count) for _ in range(LOOKUPS // BATCH))
            seconds = sum(look_up(sets[count], batch) for batch in batches)
            best[kind, count] = min(best[kind, count], seconds)
    return {f"{kind} {count}": seconds / LOOKUPS * 1e6 for (kind, count), seconds in best.items()}


def skewed(source: random.Random, count: int) -> int:
    """Few users make most requests, as they do: the n-th one 1/n as many as the first."""
    return int(count ** source.random()) - 1


def even(source: random.Random, count: int) -> int:
    """Every rule as often as any other: the worst case, in which each lookup waits for memory."""
    return source.randrange(count)


TRAFFIC: dict[str, Callable[[random.Random, int], int]] = {"skewed": skewed, "even": even}


def fresh_requests(
    pick: Callable[[random.Random, int], int], source: random.Random, count: int
) -> list[list[tuple[str, str]]]:
    """As a server has them: just decoded, so their texts have no hash yet. User numbers are scattered."""
    return [[("user", f"user-{pick(source, count) * 7919 % count}")] for _ in range(BATCH)]


def look_up(rules: RuleSet, asked: list[list[tuple[str, str]]]) -> float:
    match = rules.match
    begun = time.perf_counter()
    for entries in asked:
        match("edge", entries)
    return time.perf_counter() - begun


def part_loaders(parent: Path) -> dict[str, float]:
    """Rules per second through each form that keeps line numbers, and through our reader."""
    data, small = rules_text(LOADER_RULES).encode(), rules_text(PURE_PYTHON_RULES).encode()
    rates = {
        "libyaml events": LOADER_RULES / timed(lambda: drain(yaml.CSafeLoader(data)))[0],
        "libyaml nodes (compose)": LOADER_RULES / timed(lambda: yaml.compose(data, Loader=yaml.CSafeLoader))[0],
        "pure Python events": PURE_PYTHON_RULES / timed(lambda: drain(yaml.SafeLoader(small)))[0],
        "pure Python nodes (compose)": PURE_PYTHON_RULES
        / timed(lambda: yaml.compose(small, Loader=yaml.SafeLoader))[0],
    }
    directory = rules_directory(parent, LOADER_RULES)
    rates["Headgate: events, checked and compiled"] = LOADER_RULES / timed(lambda: load_directory(directory))[0]
    return rates


def drain(loader: Any) -> None:
    while not isinstance(loader.get_event(), yaml.StreamEndEvent):
        pass


def part_reload(parent: Path, count: int) -> dict[str, float]:
    return asyncio.run(reload_beside_a_loop(parent, count))


async def reload_beside_a_loop(parent: Path, count: int) -> dict[str, float]:
    """How late a 1 ms timer of the loop is while nothing happens, and while all rules are loaded anew."""
    directory = parent / "reload"
    directory.mkdir()
    path = directory / "edge.yaml"
    path.write_text(rules_text(count))
    feed = DirectoryFeed(directory, clock=SystemClock())
    store = RuleStore(feed, clock=SystemClock(), data_dir=parent / "reload-data", logger=Silent())
    old_version = store.load_initial().version
    watch = asyncio.create_task(store.watch())
    idle = await late(lambda: False, 2.0)
    path.write_text(rules_text(count, requests=200))
    begun = time.perf_counter()
    busy = await late(lambda: store.current.version != old_version, 600.0)
    seconds = time.perf_counter() - begun
    # The old set is dropped with the swap; what that costs the loop shows just after it.
    after = await late(lambda: False, 0.5)
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    return {"seconds": seconds} | percentiles("idle", idle) | percentiles("reload", busy + after)


class Silent:
    def __getattr__(self, level: str) -> Callable[..., None]:
        return lambda event, **fields: None


async def late(done: Callable[[], bool], limit_s: float) -> list[float]:
    waits = []
    end = time.perf_counter() + limit_s
    while not done() and time.perf_counter() < end:
        begun = time.perf_counter()
        await asyncio.sleep(0.001)
        waits.append((time.perf_counter() - begun - 0.001) * 1000)
    return waits


def percentiles(name: str, waits: list[float]) -> dict[str, float]:
    ordered = sorted(waits)
    pick = {"p50": 0.5, "p99": 0.99, "p999": 0.999, "max": 1.0}
    return {f"{name}_{label}": ordered[min(len(ordered) - 1, int(len(ordered) * at))] for label, at in pick.items()}


# The report


def run_part(parent: Path, part: str, *counts: int) -> dict[str, float]:
    command = [sys.executable, __file__, "--part", part, "--directory", str(parent), *map(str, counts)]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
    result: dict[str, float] = json.loads(done.stdout)
    return result


def report(counts: tuple[int, ...]) -> None:
    with tempfile.TemporaryDirectory() as name:
        parent = Path(name)
        largest = counts[-1]
        print("rules      YAML s   rules/s   bytes/rule   snapshot s   rules/s    bytes/rule")
        for count in counts:
            load, saved = run_part(parent, "load", count), run_part(parent, "snapshot", count)
            print(
                f"{count:<10,} {load['seconds']:<8.3f} {count / load['seconds']:<9,.0f}"
                f" {load['bytes'] / count:<12,.0f} {saved['seconds']:<12.4f}"
                f" {count / saved['seconds']:<10,.0f} {saved['bytes'] / count:,.0f}"
            )
        print(
            f"\nwanted at {largest:,}: snapshot >= {WANTED_SNAPSHOT_RATE:,} rules/s, <= {WANTED_BYTES} bytes per rule"
        )
        lookup = run_part(parent, "lookup", *counts)
        print(f"\nlookup, µs per match (wanted: ratio {largest:,} : {counts[0]} <= {WANTED_RATIO})")
        for kind in TRAFFIC:
            values = ", ".join(f"{count:,} rules {lookup[f'{kind} {count}']:.2f}" for count in counts)
            ratio = lookup[f"{kind} {largest}"] / lookup[f"{kind} {counts[0]}"]
            print(f"  {kind + ' traffic':<15} {values}: ratio {ratio:.2f}")
        print("\nYAML with line numbers, rules/s:")
        for loader, rate in run_part(parent, "loaders").items():
            print(f"  {loader:<40} {rate:>9,.0f}")
        print_reload(run_part(parent, "reload", largest), largest)


def print_reload(result: dict[str, float], count: int) -> None:
    print(f"\nreload of {count:,} rules beside a loop: {result['seconds']:.1f} s; a 1 ms timer is late by, ms:")
    for state in ("idle", "reload"):
        values = ", ".join(f"{label} {result[f'{state}_{label}']:.2f}" for label in ("p50", "p99", "p999", "max"))
        print(f"  {state:<7} {values}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("counts", nargs="*", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.part is None:
        report(QUICK if options.quick else FULL)
        return
    counts = tuple(options.counts)
    parts: dict[str, Callable[[], dict[str, float]]] = {
        "load": lambda: part_load(options.directory, counts[0]),
        "snapshot": lambda: part_snapshot(options.directory, counts[0]),
        "lookup": lambda: part_lookup(options.directory, counts),
        "loaders": lambda: part_loaders(options.directory),
        "reload": lambda: part_reload(options.directory, counts[0]),
    }
    print(json.dumps(parts[options.part]()))


if __name__ == "__main__":
    main()
