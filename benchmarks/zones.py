"""What it costs that a node's Redis is in another zone: waits, deadlines and decisions by policy, by the way there.

    python benchmarks/zones.py [--seconds S] [--rounds N] [--added-ms MS …]

Between the node and its Redis stands a proxy in a process of its own that holds every piece for half of the time, each
way; what a PING takes through it is printed beside. Requests are due at random times, in an open loop: warm keys, which
are decided in the node, and new ones, each of which asks Redis once. The deadline is the default, 5 ms. Rounds are
short and interleaved; shown are medians of the half in which warm keys waited least: the way to Redis does not touch
them, so whatever else the machine did disturbed least then.
"""

import argparse
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
import redis

from benchmarks import cost, latency, traffic
from benchmarks.processes import Server, start_headgate
from tests.support.redis_servers import RedisServer

WARM_PER_S, NEW_PER_S = 1_000, 400
KEYS = 100
"""So few that each is asked for ten times a second, and is warm."""
PINGS = 300


# The proxy, in a process of its own


def carry(source: socket.socket, sink: socket.socket, delay_s: float) -> None:
    """Carry what comes, so much later. A sleep is exact to some 0.1 ms, which a loop's timers are not."""
    while data := source.recv(1 << 16):
        if delay_s:
            time.sleep(delay_s)
        sink.sendall(data)


def serve(port: int, delay_s: float) -> None:
    """Accept connections for as long as the process lives."""
    listener = socket.create_server(("127.0.0.1", 0))
    sys.stdout.write(f"{listener.getsockname()[1]}\n")
    sys.stdout.flush()
    while True:
        near, _ = listener.accept()
        far = socket.create_connection(("127.0.0.1", port))
        for end in (near, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for source, sink in ((near, far), (far, near)):
            threading.Thread(target=carry, args=(source, sink, delay_s), daemon=True).start()


@contextmanager
def proxy(port: int, added_ms: float) -> Iterator[int]:
    command = [sys.executable, __file__, "--serve", str(port), str(added_ms / 2_000)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.kill()
        process.wait()


# What is measured


def ping_ms(port: int) -> float:
    with redis.Redis(port=port) as client:
        return statistics.median(_timed_ms(client.ping) for _ in range(PINGS))


def _timed_ms(call: object) -> float:
    assert callable(call)
    began = time.perf_counter()
    call()
    return (time.perf_counter() - began) * 1000


def degraded(node: Server) -> int:
    """Decisions that a failure policy has made."""
    with urllib.request.urlopen(f"http://{node.http}/metrics") as page:
        text = page.read().decode()
    return sum(int(float(value)) for value in re.findall(r"^headgate_shard_degraded_total\{.*\} (\S+)$", text, re.M))


class Zone:
    """A node whose Redis is so far away."""

    def __init__(self, stack: ExitStack, added_ms: float) -> None:
        server = stack.enter_context(RedisServer())
        port = stack.enter_context(proxy(server.port, added_ms))
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.added_ms = added_ms
        self.ping_ms = ping_ms(port)
        self.node = start_headgate(directory, "--origin", f"redis://127.0.0.1:{port}", rules=traffic.RULES)
        stack.callback(self.node.stop)
        self._warm, self._new = traffic.warm(keys=KEYS), traffic.new()
        self._rounds: list[tuple[latency.Waits, latency.Waits, float]] = []

    def take(self, seconds: float, seed: int) -> None:
        # Warm again: it was left alone while the others were measured.
        cost.saturated(self.node, self._warm(2 * KEYS))
        warm = latency.at_rate(self.node, WARM_PER_S, seconds, seed, self._warm)
        before = degraded(self.node)
        new = latency.at_rate(self.node, NEW_PER_S, seconds, seed, self._new)
        self._rounds.append((warm, new, (degraded(self.node) - before) / round(NEW_PER_S * seconds)))

    def calm(self) -> tuple[latency.Waits, latency.Waits, float]:
        """Waits for warm and for new keys, and the share of the new ones that a policy decided."""
        ordered = sorted(self._rounds, key=lambda taken: taken[0].p99_ms)
        warm, new, by_policy = zip(*ordered[: (len(ordered) + 1) // 2], strict=True)
        return latency.median(list(warm)), latency.median(list(new)), statistics.mean(by_policy)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.8, help="of each round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=21, help="(%(default)s)")
    parser.add_argument("--added-ms", type=float, nargs="+", default=[0, 0.5, 1, 2], help="there and back")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        zones = [Zone(stack, added_ms) for added_ms in arguments.added_ms]
        for seed in range(arguments.rounds):
            for zone in zones:
                zone.take(arguments.seconds, seed)
    print(f"{'added ms':>9}{'ping ms':>9}{'warm p50':>10}{'p99 ms':>8}{'new p50':>9}{'p99 ms':>8}{'by policy':>11}")
    for zone in zones:
        warm, new, by_policy = zone.calm()
        waits = f"{warm.p50_ms:>10.2f}{warm.p99_ms:>8.2f}{new.p50_ms:>9.2f}{new.p99_ms:>8.2f}"
        print(f"{zone.added_ms:>9g}{zone.ping_ms:>9.2f}{waits}{by_policy:>11.2%}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(int(sys.argv[2]), float(sys.argv[3]))
    main()
