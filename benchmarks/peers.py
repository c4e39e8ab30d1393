"""What peers cost a request: CPU µs per call of a node of a region, with peers as a ratio to the same node without.

    python benchmarks/peers.py [--calls N] [--rounds N]

Two nodes, each with a Redis of its own: one alone, one with two peers that are there, whose exchange runs inside it.
Rounds are interleaved in one run, so a noisy machine moves both together: only the ratio holds. A node's CPU is that of
its whole process: what the exchange itself takes, about once a second, is in it. That is also shown by itself, at rest,
and `of the request` is the ratio without it: with what the process takes at rest left out, on both sides.
`quota` is a limit of 10 s windows that is far above what is asked for; its ratio is to `region` on the same node.
"""

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import load
from benchmarks.processes import METHOD, Server, start_headgate
from benchmarks.traffic import request
from tests.support.redis_servers import RedisServer, free_port

RULES = """
domain: bench
descriptors:
  - key: region
    rate_limit: {unit: hour, requests_per_unit: 4000000000, scope: region}
  - key: global
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: quota
    rate_limit: {unit: second, unit_multiplier: 10, requests_per_unit: 4000000000, scope: quota}
  - key: denied
    rate_limit: {unit: day, requests_per_unit: 1, scope: region}
"""
KEYS = ("region", "global", "quota", "denied")
AT_REST_S = 5.0


def start_region(stack: ExitStack, directory: str, name: str, ports: dict[str, int]) -> Server:
    """A node with a Redis of its own, and those of `ports` as its peers."""
    redis = stack.enter_context(RedisServer())
    flags = ["--region", name, "--origin", redis.url, "--origin-deadline-ms", "1000"]
    if ports:
        flags += ["--exchange", f"127.0.0.1:{ports[name]}"]
        for peer in sorted(set(ports) - {name}):
            flags += ["--peer", f"{peer}=127.0.0.1:{ports[peer]}"]
    server = start_headgate(Path(directory), *flags, rules=RULES)
    stack.callback(server.stop)
    return server


def at_rest(server: Server) -> float:
    """CPU ms per second that nobody asked for."""
    before = server.cpu_s()
    time.sleep(AT_REST_S)
    return (server.cpu_s() - before) / AT_REST_S * 1000


def cost_us(node: Server, payloads: Iterator[bytes]) -> float:
    """CPU of the node per call."""
    before = node.cpu_s()
    outcome = load.run(node.address, METHOD, payloads)
    assert outcome.failures == 0, f"{outcome.failures} calls got no answer"
    return (node.cpu_s() - before) / outcome.answers * 1e6


def median_ratio(before: list[float], after: list[float]) -> float:
    """Round by round."""
    return statistics.median(b / a for a, b in zip(before, after, strict=True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000, help="calls per key and round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (%(default)s)")
    arguments = parser.parse_args()
    costs: dict[tuple[str, str], list[float]] = {}
    requests: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        directory = stack.enter_context(TemporaryDirectory())
        ports = {name: free_port() for name in ("eu", "us", "ap")}
        nodes = {"alone": start_region(stack, directory, "eu", {})}
        for name in ports:
            node = start_region(stack, directory, name, ports)
            nodes.setdefault("with peers", node)
        time.sleep(15)  # until the regions go by their slices
        resting = {where: at_rest(node) for where, node in nodes.items()}
        for number, key in itertools.product(range(arguments.rounds + 1), KEYS):
            for where, node in nodes.items():
                payloads = itertools.repeat(request((key, "alice")), arguments.calls)
                began_s = time.monotonic()
                cost = cost_us(node, payloads)
                anyway_us = resting[where] * 1000 * (time.monotonic() - began_s) / arguments.calls
                if number:
                    costs.setdefault((key, where), []).append(cost)
                    requests.setdefault((key, where), []).append(cost - anyway_us)
    print(f"{'CPU µs per call':<18}{'alone':>8}{'with peers':>12}{'ratio':>8}{'of the request':>16}{'× region':>10}")
    for key in KEYS:
        alone, peers = costs[key, "alone"], costs[key, "with peers"]
        whole = median_ratio(alone, peers)
        of_request = median_ratio(requests[key, "alone"], requests[key, "with peers"])
        beside = median_ratio(costs["region", "with peers"], peers)
        shown = f"{statistics.median(alone):>8.1f}{statistics.median(peers):>12.1f}"
        print(f"{key:<18}{shown}{whole:>8.2f}{of_request:>16.2f}{beside:>10.2f}")
    print(f"at rest, CPU ms per second: alone {resting['alone']:.1f}, with peers {resting['with peers']:.1f}")


if __name__ == "__main__":
    main()
