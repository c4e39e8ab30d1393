"""What the region costs its origin: calls and Redis CPU per decision, real nodes over one real shard.

    python benchmarks/origin_cost.py [--seconds S]

A hot key must cost the origin calls by time, not by traffic: at most 40 per second and node
(one flush each 25 ms), whatever the rate.
"""

import argparse
import itertools
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import load
from tests.support.headgate import serve, write_rules
from tests.support.redis_servers import RedisServer

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
NODES = 2
WANTED_CALLS_PER_S = 40
RULES = """
domain: cost
descriptors:
- key: user
  rate_limit: {unit: hour, requests_per_unit: 4000000000}
"""


def request(value: str) -> bytes:
    entry = RateLimitDescriptor.Entry(key="user", value=value)
    return RateLimitRequest(domain="cost", descriptors=[RateLimitDescriptor(entries=[entry])]).SerializeToString()


def hot() -> Iterator[bytes]:
    return itertools.repeat(request("hot"))


def even() -> Iterator[bytes]:
    return itertools.cycle([request(f"even-{number}") for number in range(10_000)])


def unique() -> Iterator[bytes]:
    return (request(f"unique-{number}-{time.monotonic_ns()}") for number in itertools.count())


SCENARIOS = {"one hot key": hot, "10,000 keys evenly": even, "all keys unique": unique}


def until(payloads: Iterator[bytes], deadline: float) -> Iterator[bytes]:
    return itertools.takewhile(lambda _: time.monotonic() < deadline, payloads)


def usage(server: RedisServer) -> tuple[int, float]:
    """Script calls so far, and CPU seconds."""
    stats = server.command("INFO", "commandstats")
    calls = sum(entry["calls"] for name, entry in stats.items() if name in ("cmdstat_evalsha", "cmdstat_eval"))
    cpu = server.command("INFO", "cpu")
    return calls, float(cpu["used_cpu_user"]) + float(cpu["used_cpu_sys"])


def measure(name: str, server: RedisServer, nodes: list[str], seconds: float) -> tuple[int, float]:
    """Decisions, and calls per second and node."""
    calls, cpu = usage(server)
    deadline = time.monotonic() + seconds
    outcomes: list[load.Outcome] = []

    def drive(node: str) -> None:
        outcomes.append(load.run(node, METHOD, until(SCENARIOS[name](), deadline)))

    threads = [threading.Thread(target=drive, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    after_calls, after_cpu = usage(server)
    decisions = sum(outcome.answers for outcome in outcomes)
    per_s = (after_calls - calls) / seconds / len(nodes)
    print(
        f"{name:<22}{decisions / seconds:>12,.0f}{per_s:>16.1f}"
        f"{(after_calls - calls) / decisions * 1000:>18.2f}{(after_cpu - cpu) / decisions * 1e6:>16.2f}"
    )
    return decisions, per_s


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="per scenario (%(default)s)")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        rules = write_rules(Path(stack.enter_context(TemporaryDirectory())) / "rules", RULES)
        server = stack.enter_context(RedisServer())
        options = ("--origin", server.url, "--origin-deadline-ms", "1000")
        nodes = [stack.enter_context(serve(rules, *options)).grpc for _ in range(NODES)]
        print(f"{'':<22}{'decisions/s':>12}{'calls/s·node':>16}{'calls/1000 dec.':>18}{'Redis µs/dec.':>16}")
        results = {name: measure(name, server, nodes, arguments.seconds) for name in SCENARIOS}
    hot_calls = results["one hot key"][1]
    print(f"hot key: {hot_calls:.1f} calls per second and node (wanted ≤ {WANTED_CALLS_PER_S}, heartbeats included)")
    return 0 if hot_calls <= WANTED_CALLS_PER_S else 1


if __name__ == "__main__":
    raise SystemExit(main())
