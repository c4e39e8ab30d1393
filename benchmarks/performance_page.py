"""Writes what was measured: the part of docs/performance.md between the marks, its plots, and the unit costs.

    python benchmarks/performance_page.py      # again, from benchmarks/recorded.json

Words around the figures are the page's own; nothing outside the marks is touched.
"""

import importlib
import json
import sys
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import capacity, plots

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
DEPLOY = ROOT / "docs" / "deploy.md"
IMAGES = ROOT / "docs" / "images"
UNIT_COSTS = Path(__file__).with_name("unit_costs.json")
BEGIN, END = "<!-- make bench writes from here -->", "<!-- to here -->"

KINDS: Final = ("one", "five", "denied", "new", "zipf", "1,000/s")
HEADS: Final = {
    "one": "one descriptor, 1,000 warm keys",
    "five": "five",
    "denied": "denied",
    "new": "every key new",
    "zipf": "Zipf over 200,000 users",
    "1,000/s": "1,000/s",
}
PEERS: Final[dict[str, dict[str, float]]] = {
    "envoyproxy/ratelimit, one Redis call per hit": dict(zip(KINDS, (5.5, 8.4, 5.4, 5.4, 5.5, 3.0), strict=True)),
    "the same, pipelined, with its cache": dict(zip(KINDS[:5], (4.4, 6.5, 2.5, 4.4, 4.6), strict=True)),
    "Headgate 0.1, memory://": dict(zip(KINDS, (1.5, 2.7, 1.9, 3.2, 2.4, 1.8), strict=True)),
    "Headgate 0.1, Redis": dict(zip(KINDS, (2.7, 5.1, 2.0, 6.5, 5.2, 2.6), strict=True)),
}
"""Measured once, on a machine of the same kind: not by `make bench`."""


def table(found: dict[str, Any]) -> str:
    """The kinds of traffic: ours, and others'."""
    costs = found.get("costs", {})
    rows = ["| | " + " | ".join(HEADS.values()) + " |", "|---" * (len(KINDS) + 1) + "|"]
    for name, figures in PEERS.items():
        rows.append(f"| {name} | " + " | ".join([f"{figures[k]:.1f}" if k in figures else "" for k in KINDS]) + " |")
    for origin, name in (("memory", "**Headgate, memory://**"), ("redis", "**Headgate, Redis**")):
        cells = [costs.get(f"{kind}, {origin}") for kind in KINDS]
        rows.append(f"| {name} | " + " | ".join([f"**{row['ratio']:.2f}**" if row else "" for row in cells]) + " |")
    spread = [costs.get(f"{kind}, redis") for kind in KINDS]
    rows.append(
        "| its rounds, Redis | " + " | ".join([f"{r['least']:.2f}–{r['most']:.2f}" if r else "" for r in spread]) + " |"
    )
    rows.append("| wanted, Redis | " + " | ".join([f"{r['wanted']:g}" if r else "" for r in spread]) + " |")
    return "\n".join(rows)


def _verdicts(found: dict[str, Any]) -> list[str]:
    """Each target, and whether it was met."""
    rows = ["| target | wanted | measured | |", "|---|---|---|---|"]

    def row(name: str, wanted: str, measured: str, met: bool) -> None:
        rows.append(f"| {name} | {wanted} | {measured} | {'met' if met else '**missed**'} |")

    for kind in KINDS:
        cost = found.get("costs", {}).get(f"{kind}, redis")
        if cost:
            row(
                f"CPU: {HEADS[kind]}",
                f"≤ {cost['wanted']:g} ×",
                f"{cost['ratio']:.2f} ×",
                cost["ratio"] <= cost["wanted"],
            )
    if "latency" in found:
        latency = found["latency"]
        half = latency["loads"].index(0.5)
        own, bare = (latency["waits"][name][half]["p99_ms"] for name in ("Headgate, Redis", "bare transport"))
        row("p99 at half of saturation", "≤ 1.5 × bare", f"{own / bare:.2f} × ({own:.2f} ms)", own <= 1.5 * bare)
    if "cold" in found:
        p99_ms = found["cold"]["cold"]["p99_ms"]
        row("p99 of cold answers at half of their saturation", "≤ 2 ms", f"{p99_ms:.2f} ms", p99_ms <= 2)
    if "idle" in found:
        row("idle", "≤ 0.5% of a core", f"{found['idle']['node']:.2%}", found["idle"]["node"] <= 0.005)
    if "memory" in found:
        size = found["memory"]["regional"]
        row("a regional cell", "≤ 600 bytes", f"{size} bytes", size <= 600)
    for case in found.get("overload", []):
        name = f"key 3 × over its limit, 4 nodes, {case['algorithm']}"
        row(f"{name}: requests that wait", "≤ 3%", f"{case['waiting']:.1%}", case["waiting"] <= 0.03)
        row(f"{name}: calls per second and node", "≤ 15", f"{case['calls_per_s']:.1f}", case["calls_per_s"] <= 15)
        row(f"{name}: of a perfect limiter's", "≥ 99%", f"{case['share']:.1%}", case["share"] >= 0.99)
    if "overload_cpu" in found:
        ratio = found["overload_cpu"]["ratio"]
        row("its CPU per decision, beside a calm key", "≤ 1.25 ×", f"{ratio:.2f} ×", ratio <= 1.25)
    return rows


def _more(found: dict[str, Any]) -> list[str]:
    rows = ["| over Redis | × bare | rounds | CPU µs | of it Redis |", "|---|---|---|---|---|"]
    for name, row in found.get("more_costs", {}).items():
        spread = f"{row['least']:.2f}–{row['most']:.2f}"
        rows.append(f"| {name} | {row['ratio']:.2f} | {spread} | {row['all_us']} | {row['redis_us']} |")
    return rows


def _latency(found: dict[str, Any]) -> list[str]:
    latency = found.get("latency")
    if not latency:
        return []
    full, bare = latency["saturation_per_s"], latency["bare_saturation_per_s"]
    lines = [
        f"With 128 calls in flight Headgate over Redis answers {full:,.0f} calls per second, the bare transport "
        f"{bare:,.0f}; the generator, one process of Python, takes a core beside them.",
        "",
        "| load | server | calls/s | p50 ms | p99 ms | p99.9 ms |",
        "|---|---|---|---|---|---|",
    ]
    for place, part in enumerate(latency["loads"]):
        for name, waits in latency["waits"].items():
            row = waits[place]
            figures = f"{row['p50_ms']:.2f} | {row['p99_ms']:.2f} | {row['p999_ms']:.2f}"
            lines.append(f"| {part:.0%} | {name} | {row['per_s']:,.0f} | {figures} |")
    return lines


def _cold(cold: dict[str, Any]) -> list[str]:
    lines = [
        "Time inside the server, from when a call was received to its answer, at half of what it answers of that kind. "
        "Cold is the first request for a key, which waits for Redis.",
        "",
        "| answers | calls/s | p50 ms | p99 ms | within 2 ms |",
        "|---|---|---|---|---|",
    ]
    for name in ("cold", "warm"):
        row = cold[name]
        figures = f"{row['p50_ms']:.2f} | {row['p99_ms']:.2f} | {row['within']:.1%}"
        lines.append(f"| {name} | {row['per_s']:,.0f} | {figures} |")
    for name, row in cold["parts"].items():
        if name != "answer":
            lines.append(f"| of cold ones, {name} | | {row['p50_ms']:.2f} | {row['p99_ms']:.2f} | |")
    return lines


def _envoy(found: dict[str, Any]) -> list[str]:
    lines = ["| connections | server | requests/s | × bare transport | rate-limit errors |", "|---|---|---|---|---|"]
    for connections, rows in found.get("envoy", {}).items():
        for name, row in rows.items():
            lines.append(
                f"| {connections} | {name} | {row['per_s']:,} | {row['of_bare']:.2f} | {row['errors_percent']:.2f}% |"
            )
    return lines


def generated(found: dict[str, Any]) -> str:
    """All between the marks."""
    machine = found["machine"]
    noise = (
        f"Measured {machine['date']} with `make bench`{' (BENCH=--quick)' if machine.get('quick') else ''}: "
        f"{machine['cores']} cores, Python {machine['python']}, load average {machine['load_average']} when it began. "
        "The least and the most of a figure's rounds are beside it."
    )
    if machine["load_average"] > machine["cores"]:
        noise += (
            " **The cores were shared with other work:** under such a load ratios differ from run to run by a third "
            "and more, and waits are those of a process that waits for a core. Read the figures of a quiet machine."
        )
    parts = [
        [noise],
        ["### By kind of traffic", "", table(found)],
        ["![CPU per decision by kind of traffic](images/performance-costs.svg)"],
        ["### Targets", "", *_verdicts(found)],
        ["### More rules, shards and sockets", "", *_more(found)],
        ["### Waits by load", "", *_latency(found)],
        ["![p99 by load](images/performance-latency.svg)"],
        ["![Calls to the origin by load](images/performance-origin.svg)"],
        *([["### Cold answers", "", *_cold(found["cold"])]] if "cold" in found else []),
        ["### Behind Envoy", "", *_envoy(found)],
    ]
    return "\n\n".join(["\n".join(part) for part in parts])


def _plot(found: dict[str, Any]) -> None:
    groups: dict[str, dict[str, float]] = {}
    for kind in KINDS:
        group = groups[HEADS[kind].replace(", 1,000 warm keys", "").replace(" over 200,000 users", "")] = {}
        for name, figures in PEERS.items():
            if kind in figures and not name.endswith("memory://"):
                group[name] = figures[kind]
        for origin, name in (("redis", "Headgate, Redis"), ("memory", "Headgate, memory://")):
            row = found.get("costs", {}).get(f"{kind}, {origin}")
            if row:
                group[name] = row["ratio"]
    title = "CPU per decision, all processes, × the bare native transport"
    note = "128 calls in flight, the last at 1,000 calls a second. Others as published; ours as of this run."
    (IMAGES / "performance-costs.svg").write_text(plots.bars(title, note, groups, " ×"))
    if "latency" in found:
        latency = found["latency"]
        series = {
            f"{name}, {label}": [(row["per_s"], row[field]) for row in waits]
            for name, waits in latency["waits"].items()
            for label, field in (("p50", "p50_ms"), ("p99", "p99_ms"))
        }
        note = "open loop: from when a call was due to its answer, by calls per second"
        text = plots.lines("Waits by load", note, series, x_unit="/s", y_unit=" ms")
        (IMAGES / "performance-latency.svg").write_text(text)
    if "origin_calls" in found:
        points = [(load, calls) for load, calls, _ in found["origin_calls"]]
        note = "per second and node, by the load on one key in multiples of its limit; 4 nodes, 2,000 per 10 s"
        text = plots.lines(
            "Calls to the origin by load", note, {"calls per second and node": points}, x_unit=" ×", y_unit=""
        )
        (IMAGES / "performance-origin.svg").write_text(text)


def _unit_costs(found: dict[str, Any]) -> None:
    """What capacity.py reckons with; what this run did not measure stays."""
    known = json.loads(UNIT_COSTS.read_text())

    def put(value: float, line: str, *path: str) -> None:
        place = known
        for name in path[:-1]:
            place = place[name]
        place[path[-1]] = {"value": value, "command": "benchmarks/bench.py", "line": line}

    guard, costs = found.get("guard"), found.get("costs", {})
    if guard:
        put(guard["bare"], "guard: bare, 16 in flight", "decision_us", "plain")
        put(guard["guard"], "guard: guard, 16 in flight", "decision_us", "guard")
        put(guard["guard, TLS"], "guard: guard, TLS, 16 in flight", "decision_us", "tls")
    if "five, redis" in costs and "one, redis" in costs:
        one, five, new = (costs[f"{kind}, redis"] for kind in ("one", "five", "new"))
        per_descriptor = max(0.0, (five["added_us"] - one["added_us"]) / 4)
        put(round(per_descriptor, 1), "costs: (five - one) / 4, Redis, what the node adds", "descriptor_us")
        put(
            round(max(0.0, new["added_us"] - one["added_us"]), 1),
            "costs: every key new - one, Redis, node",
            "new_key_us",
        )
        put(new["redis_us"], "costs: every key new, Redis", "redis_us", "unique")
        put(costs["zipf, redis"]["redis_us"], "costs: Zipf, Redis", "redis_us", "many")
    if "memory" in found:
        put(found["memory"]["regional"], "memory: bytes per cell, regional", "cell_bytes")
    UNIT_COSTS.write_text(json.dumps(known, indent=2, ensure_ascii=False) + "\n")
    importlib.reload(capacity)
    _replace(DEPLOY, "$ .venv/bin/python benchmarks/capacity.py\n", "```", capacity.table(capacity.EXAMPLES) + "\n")


def _replace(page: Path, begin: str, end: str, text: str) -> None:
    """What stands between two marks, of which the first is there once."""
    before, mark, rest = page.read_text().partition(begin)
    if not mark or end not in rest:
        raise SystemExit(f"{page}: {begin.strip()!r} or {end!r} is missing")
    page.write_text(before + mark + text + rest[rest.index(end) :])


def write(found: dict[str, Any]) -> None:
    _replace(PAGE, BEGIN, END, f"\n\n{generated(found)}\n\n")
    _plot(found)
    _unit_costs(found)


if __name__ == "__main__":
    write(json.loads(Path(__file__).with_name("recorded.json").read_text()))
