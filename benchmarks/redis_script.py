"""What a report costs Redis: CPU per report by batch size, beside INCRBY + EXPIRE on the same server.

    .venv/bin/python benchmarks/redis_script.py [--reports 20000]

Four runs report 1,000 limit keys in turn, as four nodes would; a new key is one that nobody reported before. `cpu` is
the server's user and system time (reading commands and writing replies included), `script` what Redis
measures inside EVALSHA alone. A flush only reports; a decision also charges one cost. Each figure is the
least of three rounds: what else the machine does only adds.
"""

import argparse
import asyncio
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import redis
import structlog
from headgate.clock import SystemClock
from headgate.origin.interface import Origin
from headgate.origin.operations.call import Call
from headgate.origin.protocol import BucketReport, CellReport, Report, WindowReport
from headgate.origin.select import open_origin

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.support.redis_servers import RedisServer

BATCHES = (1, 16, 64)
KEYS = 1_000
RUNS = 4
ROUNDS = 3
WINDOW_MS = 60_000


@dataclass(frozen=True)
class Cost:
    cpu_us: float
    script_us: float


def window(number: int) -> Report:
    key, run, total = _of(number)
    sequence = int(time.time() * 1000) // WINDOW_MS
    cells = (CellReport(sequence, total, 0, RUNS * total, total), CellReport(sequence - 1, 3, 0, 10, 3))
    return WindowReport(key, run, number + 1, 3, 20, 1_000_000, WINDOW_MS, 50, True, False, cells)


def new_window(number: int) -> Report:
    """The first report of a key: nothing is counted yet."""
    cells = (CellReport(int(time.time() * 1000) // WINDOW_MS, 0, 0, 0, 0),)
    key = b"4:edge4:new%d" % number
    return WindowReport(key, b"node-1:1712345678:0", number + 1, 0, -1, 1_000_000, WINDOW_MS, 50, True, False, cells)


def bucket(number: int) -> Report:
    key, run, total = _of(number)
    since_ms = int(time.time() * 1000)
    return BucketReport(key, run, number + 1, 3, 20, 100_000, WINDOW_MS, 50_000, 50, False, total, 0, 0, 0, 0, since_ms)


def _of(number: int) -> tuple[bytes, bytes, int]:
    return b"4:edge4:user%d" % (number % KEYS), b"node-%d:1712345678:0" % (number // KEYS % RUNS), number // KEYS + 1


def calls(report: Callable[[int], Report], batch: int, *, wants: bool) -> Iterator[Call]:
    numbers = itertools.count()
    while True:
        reports = tuple(report(next(numbers)) for _ in range(batch))
        yield Call(reports, tuple(((index, 1),) for index in range(batch)) if wants else ())


def spent(client: redis.Redis) -> tuple[float, float]:
    cpu = client.info("cpu")
    stats = client.info("commandstats").get("cmdstat_evalsha", {"usec": 0})
    return (cpu["used_cpu_user"] + cpu["used_cpu_sys"]) * 1e6, stats["usec"]


async def scripts(server: RedisServer, source: Iterator[Call], reports: int, batch: int) -> Cost:
    origin = open_origin(server.url, clock=SystemClock())
    server.client.flushall()
    try:
        # Once over all keys and runs, so that what is measured is the usual case.
        for _ in range(RUNS * KEYS // batch + 1):
            await origin.run(0, next(source), 5.0)
        rounds = [await _round(server, origin, source, reports // batch) for _ in range(ROUNDS)]
    finally:
        await origin.close()
    return Cost(*(min(times) / (reports // batch * batch) for times in zip(*rounds, strict=True)))


async def _round(server: RedisServer, origin: Origin, source: Iterator[Call], calls: int) -> tuple[float, float]:
    before = spent(server.client)
    for _ in range(calls):
        await origin.run(0, next(source), 5.0)
    after = spent(server.client)
    return after[0] - before[0], after[1] - before[1]


def counters(server: RedisServer, reports: int, batch: int) -> Cost:
    """What a limiter without components does: INCRBY and EXPIRE per key, pipelined."""
    server.client.flushall()
    before = spent(server.client)
    numbers = itertools.count()
    for _ in range(reports // batch):
        with server.client.pipeline(transaction=False) as pipeline:
            for _ in range(batch):
                key, _, _ = _of(next(numbers))
                pipeline.incrby(key, 1)
                pipeline.expire(key, 60)
            pipeline.execute()
    after = spent(server.client)
    return Cost((after[0] - before[0]) / (reports // batch * batch), 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--reports", type=int, default=20_000)
    reports = parser.parse_args().reports
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger("warning"))
    rows: list[tuple[str, int, Cost]] = []
    with RedisServer() as server:
        version = server.client.info("server")["redis_version"]
        for batch in BATCHES:
            for name, report, wants in (
                ("window, flush", window, False),
                ("window, decision", window, True),
                ("window, new key", new_window, True),
                ("gcra, flush", bucket, False),
                ("gcra, decision", bucket, True),
            ):
                source = calls(report, batch, wants=wants)
                rows.append((name, batch, asyncio.run(scripts(server, source, reports, batch))))
            rows.append(("INCRBY + EXPIRE", batch, counters(server, reports, batch)))
    print(f"Redis {version}, {reports} reports each, the least of {ROUNDS} rounds, µs per report")
    print(f"{'what':<18}{'batch':>6}{'cpu':>8}{'script':>8}")
    for name, batch, cost in rows:
        script = f"{cost.script_us:8.1f}" if cost.script_us else f"{'':>8}"
        print(f"{name:<18}{batch:>6}{cost.cpu_us:8.1f}{script}")


if __name__ == "__main__":
    main()
