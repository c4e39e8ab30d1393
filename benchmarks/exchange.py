"""What telling another region costs: two exchangers over loopback, each with a real Redis of its own.

    python benchmarks/exchange.py [--cells 50000] [--rounds 3]
    python benchmarks/exchange.py --cells 1000000 --rounds 1

Region `a` has so many live cells, all published. First `b`, which has nothing, is told everything. Then, in each round,
every cell changes while `a`'s exchanger is stopped, and it is let go on: what follows until the last acknowledgement is
measured. CPU is that of whole processes (/proc), so components per second and core are 1 / CPU. A component here is an
entry of a batch: what one region has of one limit key.
"""

import argparse
import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import structlog
from headgate.clock import SystemClock
from headgate.limiter.limit import Algorithm
from headgate.origin.interface import Origin
from headgate.origin.names import exchange_name
from headgate.origin.operations.call import Call
from headgate.origin.protocol import CellReport, WindowReport
from headgate.origin.select import open_origin
from headgate.rules.keys import encode_key, encode_tail

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.support.headgate import Headgate, http_request, start, write_rules
from tests.support.redis_servers import RedisServer, free_port

WANTED_PER_CORE_S = 50_000
WANTED_BYTES = 60
WINDOW_MS = 86_400_000
TAIL = encode_tail(Algorithm.SLIDING_WINDOW, WINDOW_MS)
LIMIT = 1_000_000
RULES = f"""
domain: edge
descriptors:
- key: user
  rate_limit: {{unit: day, requests_per_unit: {LIMIT}}}
"""
REPORTS = 250
"""Per call, while cells are written."""
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
LOOK_S = 0.5
PATIENCE_S = 600.0
QUIET = structlog.wrap_logger(None, wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))


@dataclass(frozen=True)
class Side:
    """One region: its server and its exchanger."""

    redis: RedisServer
    exchanger: Headgate
    http: str

    def peer(self) -> dict[str, object]:
        """How its only peer is doing."""
        found: dict[str, object] = json.loads(http_request(self.http, "GET", "/regions").body)["peers"][0]
        return found

    def sent(self) -> int:
        sent = self.peer()["sent"]
        assert isinstance(sent, dict)
        return int(sent["entries"])

    def sent_bytes(self) -> int:
        lines = http_request(self.http, "GET", "/metrics").body.decode().splitlines()
        return int(float(next(line for line in lines if line.startswith("headgate_peer_sent_bytes")).split()[-1]))

    def cpu_s(self) -> tuple[float, float]:
        """Of the exchanger, and of the server."""
        assert self.redis.process is not None
        return _cpu_s(self.exchanger.process.pid), _cpu_s(self.redis.process.pid)


@dataclass(frozen=True)
class Cost:
    """Of one round; CPU in µs per component."""

    seconds: float
    components: int
    wire_bytes: float
    sender_us: float
    receiver_us: float
    sender_redis_us: float
    receiver_redis_us: float


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def reports(cells: int, total: int) -> Iterator[WindowReport]:
    """One run's reports of all cells."""
    sequence = int(time.time() * 1000) // WINDOW_MS
    for number in range(cells):
        key = encode_key(("edge", "k", "user", f"user-{number:08d}")) + TAIL
        yield WindowReport(
            key,
            b"node-0:1712345678:0",
            total,
            0,
            0,
            LIMIT,
            WINDOW_MS,
            0,
            True,
            False,
            (CellReport(sequence, total, 0, 0, total),),
            publish_at=1,
            name=exchange_name(key, key, WINDOW_MS),
        )


async def write(origin: Origin, cells: int, total: int) -> None:
    """Every cell has this total now."""
    batch: list[WindowReport] = []
    for report in reports(cells, total):
        batch.append(report)
        if len(batch) == REPORTS:
            await origin.run(0, Call(tuple(batch), ()), 10.0)
            batch.clear()
    if batch:
        await origin.run(0, Call(tuple(batch), ()), 10.0)


async def until_told(side: Side, sent: int, what: str) -> None:
    """So many components were acknowledged, and nothing is left."""
    deadline = time.monotonic() + PATIENCE_S
    while side.sent() < sent or side.peer()["backlog"]:
        assert time.monotonic() < deadline, f"{what}: not within {PATIENCE_S:g} s: {side.peer()}"
        await asyncio.sleep(LOOK_S)


async def one_round(a: Side, b: Side, origin: Origin, cells: int, total: int) -> Cost:
    a.exchanger.send(signal.SIGSTOP)
    try:
        await write(origin, cells, total)
        a_cpu, b_cpu = a.cpu_s(), b.cpu_s()
    finally:
        a.exchanger.send(signal.SIGCONT)
    sent, sent_bytes, began = a.sent(), a.sent_bytes(), time.monotonic()
    await until_told(a, sent + cells, "a round")
    seconds = time.monotonic() - began
    components, a_after, b_after = a.sent() - sent, a.cpu_s(), b.cpu_s()

    def us(after: float, before: float) -> float:
        return (after - before) / components * 1e6

    return Cost(
        seconds,
        components,
        (a.sent_bytes() - sent_bytes) / components,
        us(a_after[0], a_cpu[0]),
        us(b_after[0], b_cpu[0]),
        us(a_after[1], a_cpu[1]),
        us(b_after[1], b_cpu[1]),
    )


def show(costs: Sequence[Cost], memory: Sequence[float], filled_s: float, cells: int) -> int:
    """The figures; the exit status."""
    print(f"first told: {cells:,} components in {filled_s:.1f} s")
    print(
        f"Redis memory per published key: {memory[0]:.0f} bytes where it is counted, {memory[1]:.0f} where it is told"
    )
    wire_bytes = median(cost.wire_bytes for cost in costs)
    print(f"on the wire: {wire_bytes:.1f} bytes per component (wanted ≤ {WANTED_BYTES})")
    print(f"components per second: {median(cost.components / cost.seconds for cost in costs):,.0f}")
    print(f"{'':<24}{'CPU µs/component':>18}{'components/s·core':>20}   wanted")
    slowest = 0.0
    for name, values, judged in (
        ("sending exchanger", [cost.sender_us for cost in costs], True),
        ("receiving exchanger", [cost.receiver_us for cost in costs], True),
        ("Redis of the sender", [cost.sender_redis_us for cost in costs], False),
        ("Redis of the receiver", [cost.receiver_redis_us for cost in costs], False),
    ):
        cpu_us = median(values)
        slowest = max(slowest, cpu_us) if judged else slowest
        wanted = f"≥ {WANTED_PER_CORE_S:,}" if judged else ""
        print(f"{name:<24}{cpu_us:>18.2f}{1e6 / cpu_us:>20,.0f}   {wanted}")
    return 0 if wire_bytes <= WANTED_BYTES and 1e6 / slowest >= WANTED_PER_CORE_S else 1


async def measure(a: Side, b: Side, cells: int, rounds: int, empty: Sequence[int], began: float) -> int:
    origin = open_origin(a.redis.url, clock=SystemClock(), region="a", logger=QUIET)
    await origin.open()
    try:
        await until_told(a, cells, "everything")
        filled_s = time.monotonic() - began
        memory = [(used(side.redis) - before) / cells for side, before in zip((a, b), empty, strict=True)]
        costs = [await one_round(a, b, origin, cells, 2 + number) for number in range(rounds)]
    finally:
        await origin.close()
    return show(costs, memory, filled_s, cells)


def used(server: RedisServer) -> int:
    return int(server.command("INFO", "memory")["used_memory"])


async def fill(url: str, cells: int) -> None:
    origin = open_origin(url, clock=SystemClock(), region="a", logger=QUIET)
    await origin.open()
    try:
        await write(origin, cells, 1)
    finally:
        await origin.close()


def exchanger(stack: ExitStack, region: str, redis: RedisServer, ports: dict[str, int], rules: Path) -> Side:
    peer = "b" if region == "a" else "a"
    process = stack.enter_context(
        start(
            *("exchange", "--rules", str(rules), "--region", region, "--origin", redis.url, "--http", "127.0.0.1:0"),
            *("--exchange", f"127.0.0.1:{ports[region]}", "--peer", f"{peer}=127.0.0.1:{ports[peer]}"),
        )
    )
    return Side(redis, process, process.wait_for_event("exchanging")["http"])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=50_000, help="live, and all published (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="the figures are their medians (%(default)s)")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        servers = [stack.enter_context(RedisServer()) for _ in range(2)]
        empty = [used(server) for server in servers]
        asyncio.run(fill(servers[0].url, arguments.cells))
        ports = {"a": free_port(), "b": free_port()}
        rules = write_rules(Path(stack.enter_context(TemporaryDirectory())) / "rules", RULES)
        b = exchanger(stack, "b", servers[1], ports, rules)
        began = time.monotonic()
        a = exchanger(stack, "a", servers[0], ports, rules)
        return asyncio.run(measure(a, b, arguments.cells, arguments.rounds, empty, began))


if __name__ == "__main__":
    raise SystemExit(main())
