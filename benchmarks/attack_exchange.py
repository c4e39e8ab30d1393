"""What a region in the wrong hands costs an honest caller of another one: its waits, and memory, under each attack.

    python benchmarks/attack_exchange.py [--seconds N] [--only NAME …]

One node of `eu` with a Redis of its own; an honest caller, a process of its own, on a key that other regions have no
say in; and somebody with the token of `us`, another process with the least priority, who says as much as he can on as
many streams as he may have. Before, during and after each attack: the median and the 99th percentile of the caller's
waits, its failures and denials; then the memory of the node and of its Redis.
"""

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import grpc
from headgate.clock import SystemClock
from headgate.exchange import codec
from headgate.exchange.grpc_link import GrpcPeerLink
from headgate.exchange.hello import Regions
from headgate.exchange.identity import RegionTokens, Security
from headgate.exchange.messages import Batch, Entry, LinkError
from headgate_client import Headgate as Caller

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from tests.e2e.regions.hostile import LOG, RULES, TOKENS, entry
from tests.support.headgate import FREE_PORTS, Headgate, start, write_rules
from tests.support.redis_servers import RedisServer, free_port

PER_S = 50.0
STREAMS = 4
ENTRIES = 4_000
TIMEOUT_S = 1.0
SETTLE_S = 1.0
TEN_YEARS_MS = 10 * 365 * 86_400_000
HONEST_LIMIT = f"""
domain: honest
descriptors:
- key: user
  rate_limit: {{unit: hour, requests_per_unit: {10**9}, scope: region}}
"""

NUMBERS = itertools.count()
Lie = Callable[[], Batch]


def _batch(make: Callable[[int], Entry]) -> Batch:
    return Batch(0, SystemClock().now_ms(), tuple(make(next(NUMBERS)) for _ in range(ENTRIES)))


def _nobodys(number: int) -> Entry:
    return entry("region", f"nobody-{number}", 1, window_ms=TEN_YEARS_MS, sequence=0)


ATTACKS: dict[str, Lie] = {
    "the same keys": lambda: _batch(lambda number: entry("global", f"same-{number % ENTRIES}", number)),
    "new keys": lambda: _batch(lambda number: entry("global", f"new-{number}", 1)),
    "keys of other scopes": lambda: _batch(lambda number: entry("region", f"other-{number}")),
    "keys that no rule has": lambda: _batch(_nobodys),
    "own counts, unasked": lambda: Batch(
        0, SystemClock().now_ms(), returned=tuple(entry("global", f"{next(NUMBERS)}") for _ in range(ENTRIES))
    ),
    "resets": lambda: _batch(lambda number: entry("global", f"reset-{number}", 0, reset=SystemClock().now_ms())),
    "walks": lambda: Batch(0, SystemClock().now_ms(), fill_wanted=os.urandom(8)),
    "silent streams": lambda: Batch(0, 0),
}


# The attacker


async def attack(name: str, address: str, tokens: str) -> None:
    os.nice(19)
    security = Security(LOG, tokens=RegionTokens(tokens, "us", LOG))
    if name == "silent streams":
        await asyncio.gather(*(_be_silent(address, security) for _ in range(3 * STREAMS)))
    await asyncio.gather(*(_say(ATTACKS[name], address, security) for _ in range(STREAMS)))


async def _say(lie: Lie, address: str, security: Security) -> None:
    link = GrpcPeerLink("eu", address, Regions("us", frozenset({"eu"})), security, SystemClock())
    for number in itertools.count(1):
        try:
            await link.send(lie()._replace(number=number), 10 * TIMEOUT_S)
        except LinkError:
            await asyncio.sleep(0.05)


async def _be_silent(address: str, security: Security) -> None:
    """Open streams on which nothing is said, one after the other."""
    assert security.header is not None
    while True:
        async with grpc.aio.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            call: Any = channel.stream_stream(codec.METHOD)(metadata=(("authorization", security.header),))
            with contextlib.suppress(grpc.aio.AioRpcError):
                await call.read()
            await asyncio.sleep(0.05)


# The honest caller, and what it sees


class Seen(NamedTuple):
    """Waits of the honest caller in seconds, and requests that failed or were denied."""

    median_s: float
    p99_s: float
    failed: int


def call_honestly(address: str, seconds: float) -> None:
    """Call at a steady rate, as a process of its own; print what `Seen` has."""
    waits, failed, until_s = [], 0, time.monotonic() + seconds
    with Caller(address, "honest", timeout=TIMEOUT_S, on_error="raise") as client:
        while time.monotonic() < until_s:
            began_s = time.monotonic()
            try:
                failed += not client.check([{"user": "alice"}]).allowed
            except Exception:
                failed += 1
            waits.append(time.monotonic() - began_s)
            time.sleep(max(0.0, 1 / PER_S - waits[-1]))
    print(statistics.median(waits), statistics.quantiles(waits, n=100)[98], failed)


def seen_by_caller(address: str, seconds: float) -> Seen:
    command = [sys.executable, __file__, "--caller", address, "--seconds", str(seconds)]
    median_s, p99_s, failed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return Seen(float(median_s), float(p99_s), int(failed))


@contextlib.contextmanager
def attacked(name: str, address: str, tokens: Path) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, __file__, "--attack", name, "--on", address, str(tokens)])
    try:
        time.sleep(SETTLE_S)
        yield
    finally:
        process.kill()
        process.wait()


def _mib(node: Headgate, redis: RedisServer) -> str:
    pages = int(Path(f"/proc/{node.process.pid}/statm").read_text().split()[1])
    used = redis.command("INFO", "memory")["used_memory"]
    return f"{pages * os.sysconf('SC_PAGE_SIZE') / 2**20:>8.0f}{used / 2**20:>8.0f}"


def measure(names: list[str], seconds: float) -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory()))
        rules = write_rules(directory / "rules", RULES, "guarded.yaml")
        write_rules(rules, HONEST_LIMIT, "honest.yaml")
        tokens, port, redis = directory / "tokens", free_port(), stack.enter_context(RedisServer())
        tokens.write_text(TOKENS)
        flags = ["--region", "eu", "--origin", redis.url, "--exchange-token-file", str(tokens), "--rules", str(rules)]
        peers = ["--exchange", f"127.0.0.1:{port}", "--peer", f"us=127.0.0.1:{free_port()}"]
        node = stack.enter_context(start("serve", *FREE_PORTS, *flags, *peers))
        node.wait_ready()
        seen_by_caller(node.grpc, 1.0)  # warms everything up
        titles = ("p50 ms", "p99 ms", "failed")
        print(
            f"{'':<24}{'quiet':>8}{'':>8}{'':>8}{'attacked':>10}{'':>8}{'':>8}{'after':>8}{'':>8}{'':>8}{'node':>8}{'Redis':>8}"
        )
        print(f"{'':<24}" + "".join(f"{title:>8}" for title in titles) * 3 + f"{'MiB':>8}{'MiB':>8}")
        for name in names:
            quiet = seen_by_caller(node.grpc, seconds)
            with attacked(name, f"127.0.0.1:{port}", tokens):
                during = seen_by_caller(node.grpc, seconds)
            time.sleep(SETTLE_S)
            figures = (quiet, during, seen_by_caller(node.grpc, seconds))
            shown = [f"{it.median_s * 1e3:>8.1f}{it.p99_s * 1e3:>8.1f}{it.failed:>8}" for it in figures]
            print(f"{name:<24}{''.join(shown)}{_mib(node, redis)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="per figure (%(default)s)")
    parser.add_argument("--only", nargs="*", choices=ATTACKS, default=list(ATTACKS), help="some of the attacks")
    parser.add_argument("--caller", metavar="ADDR", help=argparse.SUPPRESS)
    parser.add_argument("--attack", choices=ATTACKS, help=argparse.SUPPRESS)
    parser.add_argument("--on", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.caller:
        call_honestly(arguments.caller, arguments.seconds)
    elif arguments.attack:
        asyncio.run(attack(arguments.attack, *arguments.on))
    else:
        measure(arguments.only, arguments.seconds)


if __name__ == "__main__":
    main()
