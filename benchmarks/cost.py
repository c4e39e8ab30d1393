"""What a decision costs: CPU time of all processes involved, as multiples of the bare transport in the same run.

    python benchmarks/cost.py [--seconds S] [--only KIND ...] [--origin memory redis]

Headgate on memory:// and over a real Redis beside the bare native transport with a constant
answer (the floor), 128 calls in flight, and once more at 1,000 requests per second. Rounds of the floor and of
each kind of traffic alternate, and each kind is divided by the floor of its own round: what else the machine does
moves both. The figure is the median of the rounds.
"""

import argparse
import itertools
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import load, traffic
from benchmarks.processes import METHOD, Server, start_floor, start_headgate
from tests.support.redis_servers import RedisServer

CONNECTIONS, STREAMS = 4, 32
PACED_PER_S = 1_000
WANTED: dict[str, float] = {"one": 1.45, "five": 2.0, "denied": 1.35, "new": 3.5, "zipf": 2.2, "1,000/s": 1.6}
WARM_UP = {"zipf": 4.0, "five": 2.0}
"""How many times a round's calls come before anything counts; else once."""

HEAD = (
    f"{'':<10}{'origin':<8}{'floor µs':>9}{'all µs':>8}{'× floor':>9}{'node adds µs':>14}{'Redis µs':>10}{'wanted':>8}"
)


@dataclass
class Cost:
    """Of one kind of traffic on one server: a value per round."""

    floor_us: list[float] = field(default_factory=list)
    all_us: list[float] = field(default_factory=list)
    redis_us: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        return statistics.median(own / floor for own, floor in zip(self.all_us, self.floor_us, strict=True))

    @property
    def added_us(self) -> float:
        """What the node adds to the floor, without Redis."""
        rounds = zip(self.all_us, self.redis_us, self.floor_us, strict=True)
        return statistics.median(own - redis - floor for own, redis, floor in rounds)


def saturated(server: Server, payloads: Iterator[bytes]) -> int:
    """128 calls in flight; how many were answered."""
    outcome = load.run(server.address, METHOD, payloads, connections=CONNECTIONS, streams=STREAMS, token=server.token)
    assert outcome.failures == 0, f"{outcome.failures} calls got no answer"
    return outcome.answers


def paced(server: Server, payloads: Iterator[bytes]) -> int:
    """A thousand calls per second, at random times."""
    ready = list(payloads)
    chooser = random.Random(1)
    seconds = len(ready) / PACED_PER_S
    outcome = load.run_paced(
        [server.address], METHOD, ready.__getitem__, per_s=PACED_PER_S, seconds=seconds, chooser=chooser
    )
    assert outcome.failures == outcome.unanswered == 0, outcome
    return outcome.answers


def cpu_us(server: Server, calls: Callable[[], int]) -> tuple[float, float]:
    """Per decision: of all processes, and of those beside the server."""
    before, own = server.cpu_s(), server.own_cpu_s()
    answers = calls()
    total, own = server.cpu_s() - before, server.own_cpu_s() - own
    return total / answers * 1e6, (total - own) / answers * 1e6


Drive = Callable[[Server, Iterator[bytes]], int]


def measure(
    floor: Server,
    servers: dict[str, Server],
    kind: str,
    make: Callable[[], traffic.Traffic],
    *,
    calls: int,
    rounds: int,
) -> dict[str, Cost]:
    """One kind of traffic on every server; each in the same order of payloads."""
    drive: Drive = paced if kind == "1,000/s" else saturated
    warm_up = round(calls * WARM_UP.get(kind, 1.0))
    streams = {name: make() for name in servers}
    for name, server in servers.items():
        saturated(server, streams[name](warm_up))
    idle = traffic.warm()
    costs = {name: Cost() for name in servers}
    for name, _ in itertools.product(servers, range(rounds)):
        server, cost = servers[name], costs[name]
        payloads = streams[name](calls)
        if drive is paced:
            # The floor's turn takes longer than what is known of a key stays fresh: in steady traffic it would be.
            saturated(server, streams[name](traffic.WARM_KEYS))
        before = cpu_us(floor, lambda: drive(floor, idle(calls)))[0]
        total, redis = cpu_us(server, lambda p=payloads, s=server: drive(s, p))  # type: ignore[misc]
        after = cpu_us(floor, lambda: drive(floor, idle(calls)))[0]
        cost.floor_us.append((before + after) / 2)
        cost.all_us.append(total)
        cost.redis_us.append(redis)
    return costs


def start(stack: ExitStack, origins: list[str], *flags: str) -> tuple[Server, dict[str, Server]]:
    """The floor, and Headgate over each origin."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    floor = start_floor()
    stack.callback(floor.stop)
    servers = {}
    for origin in origins:
        more: tuple[str, ...] = ()
        beside: tuple[int, ...] = ()
        if origin == "redis":
            redis = stack.enter_context(RedisServer())
            assert redis.process is not None
            more = ("--origin", redis.url, "--origin-deadline-ms", "1000")
            beside = (redis.process.pid,)
        servers[origin] = start_headgate(directory, *more, *flags, rules=traffic.RULES, beside=beside)
        stack.callback(servers[origin].stop)
    return floor, servers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=12_000, help="per kind and round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    parser.add_argument("--only", nargs="*", default=[*traffic.KINDS, "1,000/s"], help="kinds of traffic")
    parser.add_argument("--origin", nargs="*", default=["memory", "redis"])
    arguments = parser.parse_args()
    with ExitStack() as stack:
        floor, servers = start(stack, arguments.origin)
        print(HEAD)
        for kind in arguments.only:
            make = traffic.KINDS.get(kind, traffic.warm)
            calls = arguments.calls if kind in traffic.KINDS else 4 * PACED_PER_S
            for name, cost in measure(floor, servers, kind, make, calls=calls, rounds=arguments.rounds).items():
                print(
                    f"{kind:<10}{name:<8}{statistics.median(cost.floor_us):>9.1f}{statistics.median(cost.all_us):>8.1f}"
                    f"{cost.ratio:>9.2f}{cost.added_us:>14.1f}{statistics.median(cost.redis_us):>10.1f}"
                    f"{WANTED[kind] if name == 'redis' else '':>8}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
