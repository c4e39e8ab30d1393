"""What the decision log costs: CPU of a server with it, as a ratio to one without it, in the same run.

    python benchmarks/telemetry.py [--calls N] [--rounds N] [--seconds S]

Four servers on memory://, asked in turns: without a decision log; another one without it, which shows how far figures
of this machine can be trusted; with it at its defaults; and a sick one, with it while nobody takes what it writes
(stdout is a pipe that is never read: to the log that is a disk which stands still) and the collector of its metrics and
its decision log takes connections and never answers. Then 20,000 denials a second for some seconds, of a thousand
callers: over gRPC, as far as this machine can send them, and from within a process, where nothing but the handler and
the log's thread is at work; and what the log has dropped of them.
"""

import argparse
import contextlib
import itertools
import random
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from headgate.clock import SystemClock
from headgate.decision_log.schema import RECORD_BYTES

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import load
from benchmarks.processes import METHOD, Server, start_headgate
from benchmarks.traffic import request
from tests.support.decision_log import LoggedNode

RULES = """
domain: bench
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: denied
    rate_limit: {unit: day, requests_per_unit: 1}
"""
CALLERS = 1_000
WANTED = {
    ("0.1% denied", "log"): 1.05,
    ("all denied", "log"): 1.30,
    ("0.1% denied", "sick"): 1.05,
}
DENIALS_PER_S = 20_000

ALLOWED = request(("user", "alice"))
DENIED = [request(("denied", f"caller-{number:04}")) for number in range(CALLERS)]


def mixed(calls: int) -> Iterator[bytes]:
    """One of a thousand is denied."""
    return (DENIED[number // 1000 % CALLERS] if number % 1000 == 999 else ALLOWED for number in range(calls))


def denials(calls: int) -> Iterator[bytes]:
    """Each of a thousand callers in turn."""
    return itertools.islice(itertools.cycle(DENIED), calls)


TRAFFIC = {"0.1% denied": mixed, "all denied": denials}


def cost_us(server: Server, payloads: Iterator[bytes], calls: int) -> float:
    before = server.cpu_s()
    outcome = load.run(server.address, METHOD, payloads)
    assert outcome.failures == 0, f"{outcome.failures} calls got no answer"
    return (server.cpu_s() - before) / calls * 1e6


def measure(servers: dict[str, Server], calls: int, rounds: int) -> dict[tuple[str, str], list[float]]:
    """Rounds in turns, another server first in each; the first warms everything up, and does not count.

    Many short ones: what the machine does besides comes and goes in seconds.
    """
    costs: dict[tuple[str, str], list[float]] = {(kind, name): [] for kind in TRAFFIC for name in servers}
    for number in range(rounds + 1):
        first = number % len(servers)
        for kind, payloads in TRAFFIC.items():
            for name, server in [*servers.items()][first:] + [*servers.items()][:first]:
                cost = cost_us(server, payloads(calls), calls)
                if number:
                    costs[kind, name].append(cost)
    return costs


def metric(server: Server, name: str) -> float:
    with urllib.request.urlopen(f"http://{server.http}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found = re.search(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def start(stack: contextlib.ExitStack, name: str, *flags: str, stdout: int | None = None) -> Server:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix=f"headgate-{name}-")))
    (directory / "rules").mkdir()
    data_dir = ["--data-dir", str(directory / "data")]
    server = start_headgate(directory / "rules", *data_dir, *flags, rules=RULES, stdout=stdout)
    stack.callback(server.stop)
    return server


def blackhole(stack: contextlib.ExitStack) -> str:
    """A collector that accepts, reads nothing and never answers."""
    listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=16))
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def from_within(seconds: float) -> str:
    """20,000 denials a second through a handler of this process, and what became of their records."""
    with tempfile.TemporaryDirectory(prefix="headgate-within-") as folder:
        with contextlib.redirect_stdout(None):  # what it logs of its rules
            node = LoggedNode(Path(folder), RULES, SystemClock())
        began_s, told = time.perf_counter(), 0
        for payload in DENIED:  # each caller's first is admitted
            node.handler.answer(payload)
        while (passed_s := time.perf_counter() - began_s) < seconds:
            for number in range(told, due := int(passed_s * DENIALS_PER_S)):
                node.handler.answer(DENIED[number % CALLERS])
            told = due
            node.log.flush()
            time.sleep(0.005)
        rate = told / (time.perf_counter() - began_s)
        node.stop()
        stats = node.log.stats
        size = sum(path.stat().st_size for path in Path(folder).rglob("*.hgd"))
    per_record = size / max(1, stats.records)
    return (
        f"within a process, {told:,} denials at {rate:,.0f} a second: {stats.records:,} records of {RECORD_BYTES} "
        f"bytes, {per_record:.0f} on disk, {stats.dropped} dropped (wanted 0)"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=4_000, help="calls per server, kind and round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=50, help="counted rounds (%(default)s)")
    parser.add_argument("--seconds", type=float, default=5, help="of 20,000 denials each (%(default)s)")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        servers = {
            "none": start(stack, "none", "--decision-log", "false"),
            "none again": start(stack, "none-again", "--decision-log", "false"),
            "log": start(stack, "log"),
            "sick": start(
                stack,
                "sick",
                *("--decision-log-stdout", "true", "--decision-log-otlp", "true"),
                *("--otlp-endpoint", blackhole(stack), "--otlp-interval-s", "1"),
                stdout=subprocess.PIPE,
            ),
        }
        costs = measure(servers, arguments.calls, arguments.rounds)
        logged = servers["log"]
        before = metric(logged, "headgate_decision_log_records_total")
        outcome = load.run_paced(
            [logged.address],
            METHOD,
            lambda number: DENIED[number % CALLERS],
            per_s=DENIALS_PER_S,
            seconds=arguments.seconds,
            chooser=random.Random(1),
        )
        records = metric(logged, "headgate_decision_log_records_total") - before
        dropped, sick = (metric(servers[name], "headgate_decision_log_dropped_total") for name in ("log", "sick"))
    print(f"{'traffic':<14}{'telemetry':<14}{'CPU µs':>8}{'× none':>9}{'wanted':>9}")
    for (kind, name), values in costs.items():
        ratio = statistics.median(cost / base for cost, base in zip(values, costs[kind, "none"], strict=True))
        wanted = f"≤ {WANTED[kind, name]:.2f}" if (kind, name) in WANTED else ""
        print(f"{kind:<14}{name:<14}{statistics.median(values):>8.1f}{ratio:>9.2f}{wanted:>9}")
    rate = outcome.answers / outcome.seconds
    print(
        f"{outcome.answers:,} denials at {rate:,.0f} a second: {records:,.0f} records, {dropped:.0f} dropped (wanted 0)"
    )
    print(f"with nobody to take them: {sick:,.0f} dropped, and every call answered")
    print(from_within(arguments.seconds))


if __name__ == "__main__":
    main()
