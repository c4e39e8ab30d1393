"""What a node adds to the transport: CPU of handler and engine per decision, in one process, over a real Redis.

    python benchmarks/node.py [KIND ...] [--calls N] [--profile] [--request-metadata]

128 requests under way, as in cost.py, without sockets to callers: what is left is what this repository's code costs,
so a change of it is seen at once, and `--profile` says where it goes. Kinds are those of traffic.py, with its
GATEWAY_KINDS if they are named.
"""

import argparse
import asyncio
import cProfile
import gc
import itertools
import pstats
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn

import structlog
from headgate.clock import SystemClock
from headgate.handler import AnswerSettings, RateLimitHandler
from headgate.origin.select import open_origin
from headgate.region.node import RegionNode
from headgate.rules.directory import load_directory
from headgate.runtime.garbage import NEVER, YOUNG_OBJECTS

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import traffic
from tests.support.redis_servers import RedisServer

IN_FLIGHT = 128
ROUNDS = 9
SPIN_NS = 770_000
"""What `spin_ns` takes on an idle core of the machine of docs/performance.md: what is measured beside it is
given at that speed, because a core that is shared is slower."""


def spin_ns() -> int:
    """CPU time of a fixed piece of work of the kind that a decision is."""
    table = {number: (number, str(number)) for number in range(200)}
    began = time.process_time_ns()
    for turn in range(100):
        for number in range(200):
            key, text = table[number]
            if key < turn:
                table[number] = (key, text)
    return time.process_time_ns() - began


async def drive(handler: RateLimitHandler, payloads: Iterator[bytes]) -> int:
    """All payloads, so many at a time, as calls arrive together; how many waited."""
    waited = 0
    loop = asyncio.get_running_loop()
    under_way, done = 0, loop.create_future()

    def answered(_: Any) -> None:
        nonlocal under_way
        under_way -= 1
        if under_way <= IN_FLIGHT // 2 and not done.done():
            done.set_result(None)

    while batch := list(itertools.islice(payloads, IN_FLIGHT - under_way)):
        for payload in batch:
            answer = handler.answer(payload)
            if not isinstance(answer, bytes):
                waited += 1
                under_way += 1
                answer.on_answer = answered
        if under_way > IN_FLIGHT // 2:
            done = loop.create_future()
            await done
        else:
            await asyncio.sleep(0)
    while under_way:
        done = loop.create_future()
        await done
    return waited


KINDS = {**traffic.KINDS, **traffic.GATEWAY_KINDS}


async def measure(
    kind: str, rules: Any, url: str, calls: int, profile: cProfile.Profile | None, settings: AnswerSettings
) -> str:
    make = KINDS[kind]()
    ready = [iter(list(make(calls * (4 if round_ == 0 else 1)))) for round_ in range(ROUNDS + 1)]
    clock = SystemClock()
    logger = structlog.wrap_logger(None, processors=[_drop])
    chance = random.Random(1)
    node = RegionNode(
        open_origin(url, clock=clock), run=b"bench", clock=clock, random=chance, logger=logger, max_cells=2_000_000,
        deadline_s=1.0,
    )  # fmt: skip
    await node.start()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS, NEVER, NEVER)
    handler = RateLimitHandler(rules=lambda: rules, engine=node, random=chance, settings=settings)
    await drive(handler, ready[0])
    costs, waits = [], 0
    for payloads in ready[1:]:
        reference = spin_ns()
        if profile:
            profile.enable()
        began = time.process_time_ns()
        waits += await drive(handler, payloads)
        took_ns = time.process_time_ns() - began
        if profile:
            profile.disable()
        costs.append(took_ns / calls / 1000 * SPIN_NS / ((reference + spin_ns()) / 2))
    await node.stop(1.0)
    return f"{kind:<12}{min(costs):>8.1f}{statistics.median(costs):>8.1f}{100 * waits / calls / ROUNDS:>8.1f}%"


def _drop(_logger: Any, _name: str, _event: Any) -> NoReturn:
    raise structlog.DropEvent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=list(traffic.KINDS))
    parser.add_argument("--calls", type=int, default=3_000, help="per kind and round (%(default)s)")
    parser.add_argument("--profile", action="store_true", help="print where the time goes")
    parser.add_argument("--request-metadata", action="store_true", help="tell each request back in its answer")
    arguments = parser.parse_args()
    profile = cProfile.Profile() if arguments.profile else None
    with tempfile.TemporaryDirectory() as directory, RedisServer() as redis:
        for name, text in (("bench", traffic.RULES), ("eg", traffic.GATEWAY_RULES), ("three", traffic.THREE_RULES)):
            Path(directory, f"{name}.yaml").write_text(text)
        rules = load_directory(Path(directory))
        settings = AnswerSettings(request_metadata=arguments.request_metadata)
        print(f"{'':<12}{'least µs':>8}{'median':>8}{'waited':>9}")
        for kind in arguments.kinds or list(traffic.KINDS):
            print(asyncio.run(measure(kind, rules, redis.url, arguments.calls, profile, settings)))
    if profile:
        pstats.Stats(profile).sort_stats("tottime").print_stats(45)


if __name__ == "__main__":
    main()
