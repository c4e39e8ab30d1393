"""Rules at 10, 10,000 and 1,000,000: load time, memory, lookup; loaders, snapshots, a reload beside a loop, changes.

    .venv/bin/python benchmarks/rules.py                      # several minutes, about 2 GB
    .venv/bin/python benchmarks/rules.py --quick              # 10, 1,000 and 20,000 rules: well under a minute
    .venv/bin/python benchmarks/rules.py --changes 5000000    # only what one change costs among so many rules

Each part runs in a process of its own, so that memory and caches are its own. Lookups
of all sizes run in one process, by turns, so that their ratio is of one moment.
"""

import argparse
import asyncio
import gc
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from headgate.clock import SystemClock
from headgate.handler import AnswerSettings, RateLimitHandler
from headgate.limiter.engine import Engine
from headgate.limiter.limit import Limit, Unit
from headgate.rules import snapshot
from headgate.rules.changes import Put, changed
from headgate.rules.compiling import content_total
from headgate.rules.directory import load_directory
from headgate.rules.directory_feed import DirectoryFeed
from headgate.rules.model import RuleContent
from headgate.rules.pace import Pace
from headgate.rules.ruleset import Domain, RuleSet, rule_set
from headgate.rules.snapshot import SnapshotWriter
from headgate.rules.store import RuleStore
from headgate.rules.tree import NOWHERE, LevelBuilder, RuleNode
from headgate_client.values import Descriptor, encode_request

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
CHANGES = 1_000
HOT_USERS = 1_000
BUSY_DECISIONS = 12_000
"""Decisions between two changes at a thousand a minute, where a node makes 200,000 a second."""
IDLE_DECISIONS = 300
"""The same at 5,000 decisions a second."""
WRITE_EVERY_S = 0.06
WRITES = 170
OFTEN_RULES = 20_000


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


# Changes of single rules


def built(count: int) -> RuleSet:
    """A set of so many rules, made without YAML, which is not what is measured."""
    level, leaf = LevelBuilder(), RuleNode(limit_of(100), None, is_rule=True)
    for number in range(count):
        level.add("user", f"user-{number}", leaf, NOWHERE)
    finished = level.finish()
    total = content_total(finished, Pace(SystemClock()))
    return rule_set({"edge": Domain("edge", finished, total=total, count=count)})


def limit_of(requests: int) -> Limit:
    return Limit(requests, Unit.MINUTE)


def one_change(source: random.Random, count: int) -> Put:
    path = (("user", f"user-{source.randrange(count)}"),)
    return Put("edge", path, RuleContent(limit_of(source.randrange(50, 150))))


def part_built(parent: Path, count: int) -> dict[str, float]:
    SnapshotWriter(parent / f"built-{count}").save(built(count), saved_ms=0)
    size = sum(path.stat().st_size for path in (parent / f"built-{count}").rglob("*") if path.is_file())
    return {"disk": size}


def part_change(parent: Path, count: int) -> dict[str, float]:
    """Start from disk, then change rules one by one: CPU and memory, with the version and the line on disk."""
    gc.collect()
    before = resident_bytes()
    begun = time.process_time()
    seconds, loaded = timed(lambda: snapshot.load(parent / f"built-{count}"))
    start_cpu = time.process_time() - begun
    gc.collect()
    held = resident_bytes() - before
    writer = SnapshotWriter(parent / f"built-{count}")
    writer.loaded(loaded.rules)
    rules, source = loaded.rules, random.Random(1)
    costs: list[float] = []
    saving: list[float] = []
    grown = resident_bytes()
    for _ in range(CHANGES):
        change = one_change(source, count)
        begun = time.process_time()
        after = changed(rules, [change])
        costs.append(time.process_time() - begun)
        begun = time.process_time()
        writer.append(after, rules, [change], saved_ms=0)
        saving.append(time.process_time() - begun)
        rules = after
    costs.sort()
    gc.collect()
    return {
        "start": seconds,
        "start_cpu": start_cpu,
        "bytes": held,
        "median_us": costs[CHANGES // 2] * 1e6,
        "p99_us": costs[CHANGES * 99 // 100] * 1e6,
        "saving_us": statistics.median(saving) * 1e6,
        "grown": (resident_bytes() - grown) / CHANGES,
    }


def part_warm(parent: Path, count: int) -> dict[str, float]:
    """Decisions of a thousand users, with a change after every so many of them and without, by turns.

    Between two changes are as many decisions as a busy node makes in 60 ms, and as one makes that has 5,000 a second.
    """
    rules = snapshot.load(parent / f"built-{count}").rules
    node, source = WarmNode(rules), random.Random(1)
    gc.collect()
    gc.disable()
    found: dict[str, float] = {}
    for name, decisions in (("busy", BUSY_DECISIONS), ("idle", IDLE_DECISIONS)):
        turns = range(max(20, 20 * BUSY_DECISIONS // decisions // 10))
        costs: dict[bool, list[float]] = {True: [], False: []}
        for _ in turns:
            for changing in (False, True):
                if changing:
                    node.rules = changed(node.rules, [one_change(source, count)])
                costs[changing].append(node.cost_us(decisions, source))
        quiet, busy = (statistics.median(costs[changing]) for changing in (False, True))
        found |= {f"{name}_quiet_us": quiet, f"{name}_changing_us": busy}
    return found


class WarmNode:
    """A handler with its own counts, and the requests of a thousand users, of which few make most."""

    def __init__(self, rules: RuleSet) -> None:
        self.rules = rules
        engine = Engine(SystemClock(), max_cells=100_000)
        settings = AnswerSettings()
        self._handler = RateLimitHandler(
            rules=lambda: self.rules, engine=engine, random=random.Random(1), settings=settings
        )
        self._requests = [
            encode_request("edge", [Descriptor({"user": f"user-{number}"})], 1).SerializeToString()
            for number in range(HOT_USERS)
        ]
        for request in self._requests * 3:
            self._handler.answer(request)

    def cost_us(self, decisions: int, source: random.Random) -> float:
        asked = [self._requests[skewed(source, HOT_USERS)] for _ in range(decisions)]
        answer = self._handler.answer
        begun = time.process_time()
        for request in asked:
            answer(request)
        return (time.process_time() - begun) / decisions * 1e6


def part_in_force(parent: Path, count: int) -> dict[str, float]:
    return asyncio.run(written_to_in_force(parent, count))


async def written_to_in_force(parent: Path, count: int) -> dict[str, float]:
    """Write a file every 60 ms beside a large domain; ms until each write is in force, or a later one."""
    directory = parent / "often"
    directory.mkdir()
    (directory / "large.yaml").write_text(rules_text(count))
    path = directory / "often.yaml"
    path.write_text(often_text(0))
    store = RuleStore(DirectoryFeed(directory, clock=SystemClock()), clock=SystemClock(), logger=Silent())
    store.load_initial()
    watch = asyncio.create_task(store.watch())
    written: dict[int, float] = {}
    took: list[float] = []
    for number in range(1, WRITES + 1):
        path.write_text(often_text(number))
        written[number] = time.perf_counter()
        end = written[number] + WRITE_EVERY_S
        while time.perf_counter() < end or (number == WRITES and written):
            await asyncio.sleep(0.002)
            now = requests_in_force(store.current)
            took += [time.perf_counter() - written.pop(one) for one in list(written) if one <= now]
    watch.cancel()
    await asyncio.gather(watch, return_exceptions=True)
    took.sort()
    return {"median_ms": took[len(took) // 2] * 1e3, "max_ms": took[-1] * 1e3, "writes": len(took)}


def often_text(requests: int) -> str:
    return f"domain: often\ndescriptors:\n  - key: k\n    rate_limit: {{unit: day, requests_per_unit: {requests}}}\n"


def requests_in_force(rules: RuleSet) -> int:
    match = rules.match("often", [("k", "v")])
    assert match is not None
    return match.limit.requests_per_unit


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
        print_changes(parent, largest)
        often = run_part(parent, "in_force", min(largest, OFTEN_RULES))
        print(
            f"\na file written every {WRITE_EVERY_S * 1e3:.0f} ms, {often['writes']:.0f} times, beside"
            f" {min(largest, OFTEN_RULES):,} rules: in force after {often['median_ms']:.0f} ms (median),"
            f" {often['max_ms']:.0f} ms at most"
        )


def print_changes(parent: Path, count: int) -> None:
    disk = run_part(parent, "built", count)["disk"]
    found = run_part(parent, "change", count)
    print(
        f"\none rule of {count:,} changed: {found['median_us']:.0f} µs of CPU (median), {found['p99_us']:.0f} µs (p99),"
        f" {found['saving_us']:.0f} µs for its line on disk; {found['grown']:,.0f} bytes of memory more"
        f"\nstart from disk: {found['start']:.1f} s ({found['start_cpu']:.1f} s of CPU), {disk / 1e6:,.0f} MB there,"
        f" {found['bytes'] / count:.0f} bytes of memory per rule"
    )
    warm = run_part(parent, "warm", count)
    for name, words in (("busy", "as fast as it can"), ("idle", "5,000 a second")):
        quiet, changing = warm[f"{name}_quiet_us"], warm[f"{name}_changing_us"]
        print(
            f"a warm decision, {words}, beside 1,000 changes a minute: {changing:.2f} µs,"
            f" beside none {quiet:.2f} µs: {changing / quiet:.3f} ×"
        )


def print_reload(result: dict[str, float], count: int) -> None:
    print(f"\nreload of {count:,} rules beside a loop: {result['seconds']:.1f} s; a 1 ms timer is late by, ms:")
    for state in ("idle", "reload"):
        values = ", ".join(f"{label} {result[f'{state}_{label}']:.2f}" for label in ("p50", "p99", "p999", "max"))
        print(f"  {state:<7} {values}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="smaller sizes")
    parser.add_argument("--changes", type=int, metavar="RULES", help="only what changes cost among so many rules")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    parser.add_argument("--directory", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("counts", nargs="*", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.changes:
        with tempfile.TemporaryDirectory() as name:
            print_changes(Path(name), options.changes)
        return
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
        "built": lambda: part_built(options.directory, counts[0]),
        "change": lambda: part_change(options.directory, counts[0]),
        "warm": lambda: part_warm(options.directory, counts[0]),
        "in_force": lambda: part_in_force(options.directory, counts[0]),
    }
    print(json.dumps(parts[options.part]()))


if __name__ == "__main__":
    main()
