"""Cost of knowing late costs and refunds soon, in CPU time and calls: a real node over a real Redis, in one run.

    python benchmarks/late_views.py [--seconds S] [--rounds N]

A view that decides a look is half a second old at most where costs may come in late, and what is given back is told
within 0.75 s; elsewhere a view is good for five seconds. The same calls at the same pace go to a rule without the
fields, to one with `overdraft` and to one with `refund`: looks and costs in turns, or costs and refunds. Far from the
limit, so that nothing but the age of the view asks Redis. CPU time is the kernel's, per decision; rules in turns, and
of the rounds the median.
"""

import argparse
import random
import statistics
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest

from benchmarks import load
from benchmarks.processes import METHOD, Server, cpu_ns, start_headgate
from tests.support.redis_servers import RedisServer

PER_S = 800
FIELDS = {"none": "", "overdraft": ", overdraft: true", "refund": ", refund: true"}
RULES = "domain: edge\ndescriptors:\n" + "".join(
    f"- key: {name}\n  rate_limit: {{unit: year, requests_per_unit: 4000000000{field}}}\n"
    for name, field in FIELDS.items()
)
SPREADS = {"one key": 1, "200 keys, 4 calls/s each": 200}
Cost = tuple[int, bool]
PAIRS: dict[str, tuple[Cost, Cost]] = {
    "looks and costs": ((0, False), (1, False)),
    "costs and refunds": ((2, False), (1, True)),
}
MEASURED = [("looks and costs", "none"), ("looks and costs", "overdraft"), ("costs and refunds", "refund")]


@dataclass(frozen=True)
class Taken:
    """One round of one kind of calls, per decision."""

    node_us: float
    redis_us: float
    calls_per_s: float


def request(rule: str, key: int, cost: Cost) -> bytes:
    hits, back = cost
    descriptor = RateLimitDescriptor(entries=[RateLimitDescriptor.Entry(key=rule, value=str(key))])
    descriptor.hits_addend.value, descriptor.is_negative_hits = hits, back
    return RateLimitRequest(domain="edge", descriptors=[descriptor]).SerializeToString()


def payloads(rule: str, keys: int, pair: tuple[Cost, Cost]) -> Callable[[int], bytes]:
    made = [request(rule, key, cost) for cost in pair for key in range(keys)]
    return lambda number: made[number % len(made)]


def script_calls(redis: RedisServer) -> int:
    stats = redis.command("INFO", "commandstats")
    return sum(entry["calls"] for name, entry in stats.items() if name in ("cmdstat_evalsha", "cmdstat_eval"))


def one_round(
    server: Server, redis: RedisServer, seconds: float, payload_of: Callable[[int], bytes], seed: int
) -> Taken:
    (redis_pid,) = server.beside
    calls, node_ns, redis_ns = script_calls(redis), cpu_ns(server.process.pid), cpu_ns(redis_pid)
    outcome = load.run_paced(
        [server.address], METHOD, payload_of, per_s=PER_S, seconds=seconds, chooser=random.Random(seed)
    )
    node_us, redis_us = (cpu_ns(server.process.pid) - node_ns) / 1e3, (cpu_ns(redis_pid) - redis_ns) / 1e3
    return Taken(node_us / outcome.answers, redis_us / outcome.answers, (script_calls(redis) - calls) / seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="per round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with ExitStack() as stack:
        directory = Path(stack.enter_context(TemporaryDirectory()))
        redis = stack.enter_context(RedisServer())
        assert redis.process is not None
        server = start_headgate(directory, "--origin", redis.url, rules=RULES, beside=[redis.process.pid])
        stack.callback(server.stop)
        sys.stdout.write(f"{'':<27}{'calls':<20}{'field':<11}{'node µs':>9}{'Redis µs':>10}{'Redis calls/s':>15}\n")
        for spread, keys in SPREADS.items():
            taken: dict[tuple[str, str], list[Taken]] = {kind: [] for kind in MEASURED}
            for seed in range(arguments.rounds):
                for kind in MEASURED:
                    pair, rule = kind
                    payload_of = payloads(rule, keys, PAIRS[pair])
                    taken[kind].append(one_round(server, redis, arguments.seconds, payload_of, seed))
            for (pair, rule), rounds in taken.items():
                node, asked, calls = (
                    statistics.median(getattr(one, name) for one in rounds)
                    for name in ("node_us", "redis_us", "calls_per_s")
                )
                sys.stdout.write(f"{spread:<27}{pair:<20}{rule:<11}{node:>9.1f}{asked:>10.1f}{calls:>15.1f}\n")


if __name__ == "__main__":
    main()
