"""The parts of `make bench`, each a function that measures one thing and gives plain values (bench.py)."""

import contextlib
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from headgate.limiter.limit import Algorithm

from benchmarks import cold as cold_answers
from benchmarks import cost, load, traffic
from benchmarks import envoy as behind_envoy
from benchmarks import guard as behind_guard
from benchmarks import latency as open_loop
from benchmarks import overload as overloaded
from benchmarks.processes import METHOD, Server, start_floor, start_headgate
from tests.support.redis_servers import RedisServer

PATIENT = ("--origin-deadline-ms", "1000")
"""A busy machine must not turn answers into failure policies."""
RULES = 1_000_000
QUICK_RULES = 20_000
CELLS = 100_000
IDLE_S = 10.0
OVERLOAD_NODES = 4
OVERLOAD_PER_S = 3_000
OVERLOAD_RULES = """
domain: bench
descriptors:
  - key: calm
    rate_limit: {unit: second, unit_multiplier: 10, requests_per_unit: 4000000000}
  - key: over
    rate_limit: {unit: second, unit_multiplier: 10, requests_per_unit: 10000}
"""


def _row(found: cost.Cost, wanted: float | None = None) -> dict[str, Any]:
    ratios = [own / floor for own, floor in zip(found.all_us, found.floor_us, strict=True)]
    return {
        "floor_us": round(statistics.median(found.floor_us), 1),
        "all_us": round(statistics.median(found.all_us), 1),
        "redis_us": round(statistics.median(found.redis_us), 1),
        "added_us": round(found.added_us, 1),
        "ratio": round(found.ratio, 2),
        "least": round(min(ratios), 2),
        "most": round(max(ratios), 2),
        "wanted": wanted,
    }


def _say(name: str, row: dict[str, Any]) -> None:
    wanted = f"  wanted ≤ {row['wanted']}" if row["wanted"] else ""
    spread = f"({row['least']:.2f} to {row['most']:.2f})"
    print(f"{name:<36}{row['ratio']:>6.2f} × {spread:<18}{row['all_us']:>7.1f} µs{wanted}", flush=True)


def costs(quick: bool) -> dict[str, Any]:
    """The issue's kinds of traffic, on memory:// and over Redis."""
    rows: dict[str, Any] = {}
    calls, rounds = (4_000, 3) if quick else (8_000, 5)
    with ExitStack() as stack:
        floor, servers = cost.start(stack, ["memory", "redis"])
        for kind in [*traffic.KINDS, "1,000/s"]:
            make = traffic.KINDS.get(kind, traffic.warm)
            count = calls if kind in traffic.KINDS else 4 * cost.PACED_PER_S
            turns = rounds if kind in traffic.KINDS else 3
            for origin, found in cost.measure(floor, servers, kind, make, calls=count, rounds=turns).items():
                name = f"{kind}, {origin}"
                rows[name] = _row(found, cost.WANTED[kind] if origin == "redis" else None)
                _say(name, rows[name])
    return rows


@contextmanager
def node_over_redis(
    rules: str, *flags: str, shards: int = 1, grpc: str = "127.0.0.1:0"
) -> Iterator[tuple[Server, list[Any]]]:
    """One node over so many Redis servers."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = [stack.enter_context(RedisServer()) for _ in range(shards)]
        processes = [server.process for server in servers]
        url = "redis://" + ",".join([server.url.removeprefix("redis://") for server in servers])
        pids = [process.pid for process in processes if process is not None]
        node = start_headgate(directory, "--origin", url, *flags, rules=rules, beside=pids, grpc=grpc)
        stack.callback(node.stop)
        yield node, servers


def more_costs(quick: bool) -> dict[str, Any]:
    """What else a decision may meet, over Redis: rules, shards, sockets."""
    rows: dict[str, Any] = {}
    calls, rounds = (3_000, 3) if quick else (8_000, 4)
    with ExitStack() as stack:
        floor = start_floor()
        stack.callback(floor.stop)

        def take(name: str, node: Server, make: Callable[[], traffic.Traffic], base: Server = floor) -> None:
            found = cost.measure(base, {"redis": node}, name, make, calls=calls, rounds=rounds)["redis"]
            rows[name] = _row(found)
            _say(name, rows[name])

        with node_over_redis(traffic.RULES, *PATIENT) as (node, _):
            take("20 descriptors", node, lambda: traffic.warm(20))
        with node_over_redis(traffic.NESTED_RULES, *PATIENT) as (node, _):
            take("nested wildcards", node, traffic.nested)
        with node_over_redis(traffic.many_rules(QUICK_RULES if quick else RULES), *PATIENT) as (node, _):
            take(f"{QUICK_RULES if quick else RULES:,} rules", node, traffic.warm)
        with node_over_redis(traffic.EXACT_RULES, *PATIENT) as (node, _):
            take("exact rules (precision 0)", node, traffic.warm)
        with node_over_redis(traffic.RULES, *PATIENT, shards=3) as (node, _):
            take("three shards", node, traffic.warm)
            take("three shards, every key new", node, traffic.new)
        with node_over_redis(traffic.RULES, shards=3) as (node, servers):
            _stall(servers[1], node)
            take("three shards, one stalled", node, traffic.warm)
            os.kill(servers[1].process.pid, signal.SIGCONT)
        with tempfile.TemporaryDirectory() as directory:
            bare = start_floor(f"unix:{directory}/floor")
            stack.callback(bare.stop)
            with node_over_redis(traffic.RULES, *PATIENT, grpc=f"unix:{directory}/headgate") as (node, _):
                take("Unix socket (and bare on one)", node, traffic.warm, bare)
    return rows


def _stall(server: Any, node: Server) -> None:
    """Stop a shard, and have the node find out: its breaker opens."""
    cost.saturated(node, traffic.warm()(traffic.WARM_KEYS * 3))
    os.kill(server.process.pid, signal.SIGSTOP)
    until_s = time.monotonic() + 8
    while time.monotonic() < until_s:
        cost.saturated(node, traffic.warm()(traffic.WARM_KEYS))


def latency(quick: bool) -> dict[str, Any]:
    """Waits at parts of the saturation throughput, from an open loop."""
    # Many short ones: a stall of the machine is in one of them, and the median leaves it out.
    seconds, rounds = (0.5, 5) if quick else (0.8, 9)
    with ExitStack() as stack:
        floor, servers = cost.start(stack, ["redis"])
        full, bare = open_loop.saturation_per_s(servers["redis"]), open_loop.saturation_per_s(floor)
        subjects = {"bare transport": floor, "Headgate, Redis": servers["redis"]}
        found = open_loop.measure(subjects, full, seconds, rounds)
    rows = {name: [vars(waits) for waits in waits_of] for name, waits_of in found.items()}
    for name, waits_of in rows.items():
        for part, waits in zip(open_loop.LOADS, waits_of, strict=True):
            figures = f"{waits['p50_ms']:.2f} / {waits['p99_ms']:.2f} / {waits['p999_ms']:.2f} ms"
            print(f"{name:<18}{part:>5.0%} {waits['per_s']:>8,.0f}/s  p50 / p99 / p99.9 {figures}", flush=True)
    return {"loads": list(open_loop.LOADS), "saturation_per_s": full, "bare_saturation_per_s": bare, "waits": rows}


def cold(quick: bool) -> dict[str, Any]:
    """Time inside the server of answers about keys that it has never seen, beside warm ones, at half load."""
    found = cold_answers.measure(*((1.0, 3) if quick else (2.0, 7)))
    print(cold_answers.report(found), flush=True)
    return found


def idle(quick: bool) -> dict[str, Any]:
    """CPU of a node that nobody asks, as a part of one core; with Redis by itself."""
    with node_over_redis(traffic.RULES, *PATIENT) as (node, _):
        cost.saturated(node, traffic.warm()(traffic.WARM_KEYS * 3))
        time.sleep(6)  # what was admitted is reported, and what it left is quiet
        before, own, began = node.cpu_s(), node.own_cpu_s(), time.monotonic()
        time.sleep(5 if quick else IDLE_S)
        seconds = time.monotonic() - began
        found = {"node": (node.own_cpu_s() - own) / seconds, "all": (node.cpu_s() - before) / seconds}
    print(f"idle: {found['node']:.2%} of a core; with Redis {found['all']:.2%}", flush=True)
    return {name: round(value, 5) for name, value in found.items()}


def memory(quick: bool) -> dict[str, Any]:
    """Resident bytes per limit key of a node, on its own and of a region, once caches and allocator are warm."""
    cells = CELLS // 2 if quick else CELLS
    found = {}
    with tempfile.TemporaryDirectory() as directory, node_over_redis(traffic.RULES, *PATIENT) as (regional, _):
        alone = start_headgate(Path(directory), rules=traffic.RULES)
        with contextlib.closing(_Stopping(alone)):
            for name, node in (("alone", alone), ("regional", regional)):
                new = traffic.new()
                cost.saturated(node, new(cells // 2))
                before = node.resident_bytes()
                cost.saturated(node, new(cells))
                found[name] = round((node.resident_bytes() - before) / cells)
                print(f"bytes per cell, {name}: {found[name]}", flush=True)
    return found


class _Stopping:
    def __init__(self, server: Server) -> None:
        self.close = server.stop


def overload(_quick: bool) -> list[dict[str, Any]]:
    """One key 3 × over its limit on four nodes, on virtual time."""
    rows = []
    for algorithm in (Algorithm.SLIDING_WINDOW, Algorithm.GCRA):
        result = overloaded.play(overloaded.Case(algorithm=algorithm, windows=2))
        rows.append(
            {
                "algorithm": algorithm.value,
                "waiting": round(result.waiting_share, 4),
                "calls_per_s": round(result.calls_per_s, 1),
                "share": round(result.share, 4),
                "over": result.over,
                "precision": result.case.limit.precision,
            }
        )
        print(rows[-1], flush=True)
    return rows


def overload_cpu(quick: bool) -> dict[str, Any]:
    """CPU per decision of four nodes and their Redis, for a key 3 × over its limit, beside a calm one."""
    seconds = 4.0 if quick else 10.0
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        assert redis.process is not None
        nodes = []
        for _ in range(OVERLOAD_NODES):
            directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            nodes.append(start_headgate(directory, "--origin", redis.url, *PATIENT, rules=OVERLOAD_RULES))
            stack.callback(nodes[-1].stop)
        nodes[0].beside = (redis.process.pid,)
        figures = {"calm": [], "over": []}  # type: dict[str, list[float]]
        for turn in range(3):
            for key, values in figures.items():
                if not turn:
                    _offer(nodes, key, 10.0)  # a whole window: the key is at its limit from here on
                before = sum(node.cpu_s() for node in nodes)
                answers = _offer(nodes, key, seconds)
                values.append((sum(node.cpu_s() for node in nodes) - before) / answers * 1e6)
    calm, over = (statistics.median(values) for values in figures.values())
    ratio = statistics.median([o / c for o, c in zip(figures["over"], figures["calm"], strict=True)])
    print(f"a key over its limit: {over:.1f} µs a decision, {ratio:.2f} × a calm one ({calm:.1f})", flush=True)
    return {"calm_us": round(calm, 1), "over_us": round(over, 1), "ratio": round(ratio, 2)}


def _offer(nodes: list[Server], key: str, seconds: float) -> int:
    payload = traffic.request((key, "one"))
    outcome = load.run_paced(
        [node.address for node in nodes],
        METHOD,
        lambda _: payload,
        per_s=OVERLOAD_PER_S,
        seconds=seconds,
        chooser=random.Random(1),
        connections=1,
    )
    assert outcome.failures == 0, outcome.failures
    return outcome.answers


def origin_calls(quick: bool) -> list[list[float]]:
    """Calls per second and node to the shard, by the load on one key in parts of its limit, on virtual time."""
    points = []
    for times in (0.1, 0.5, 0.9, 1.1, 3.0) if quick else (0.1, 0.25, 0.5, 0.75, 0.9, 1.0, 1.1, 1.5, 2.0, 3.0, 5.0):
        result = overloaded.play(overloaded.Case(2_000, load=times, windows=2))
        points.append([times, round(result.calls_per_s, 2), round(result.waiting_share, 4)])
        print(f"load {times:g} × the limit: {result.calls_per_s:.1f} calls/s·node, {result.waiting_share:.1%} wait")
    return points


def guard(quick: bool) -> dict[str, float]:
    """CPU µs per warm decision with 16 calls in flight: bare, behind the guard, with TLS. On memory://."""
    calls, rounds = (2_000, 2) if quick else (6_000, 4)
    taken: dict[str, list[float]] = {}
    with ExitStack() as stack:
        subjects = behind_guard.start(stack, ["bare", "guard", "guard, TLS"])
        for number in range(rounds + 1):
            for name, subject in subjects.items():
                figure = subject.cost_us(16, calls)
                if number:
                    taken.setdefault(name, []).append(figure)
    found = {name: round(statistics.median(values), 1) for name, values in taken.items()}
    print(f"16 in flight, µs: {found}", flush=True)
    return found


def envoy(quick: bool) -> dict[str, Any]:
    """Requests per second through a real Envoy, and rate-limit calls that were too late for it."""
    rows: dict[str, Any] = {}
    results = behind_envoy.measure([8, 32, 128], 2.0 if quick else 5.0, 1)
    for connections, figures in results.items():
        for name, figure in figures.items():
            rows.setdefault(str(connections), {})[name] = {
                "per_s": round(figure.throughput),
                "of_bare": round(figure.throughput / figures[behind_envoy.BARE].throughput, 2),
                "errors_percent": round(figure.errors, 2),
            }
            print(f"Envoy, {connections:>3} connections, {name:<18}{figure.throughput:>8,.0f}/s", flush=True)
    return rows
