"""Count the functions that one request enters: hops of a warm key and of a key that nobody has asked for yet.

    python benchmarks/hops.py [--walk]

A whole service runs in this process, over a real Redis, on an address that other machines can reach, so behind its
guard. The request comes over gRPC from a thread of this process. A hop is a function of server/headgate that most
requests of the kind enter, on whatever thread, until a moment after the answer; a function that is entered again, or
resumed, is the same hop, and a comprehension is part of its function. Lua is not counted. `--walk` prints the functions
in the order in which they are first entered.
"""

import argparse
import os
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from types import CodeType, FrameType

import grpc
import headgate
from headgate.cli import main as headgate_main

sys.path.insert(0, str(Path(headgate.__file__).resolve().parents[2]))
from benchmarks import traffic
from tests.support.redis_servers import RedisServer, free_port

OURS = str(Path(headgate.__file__).resolve().parent)
REQUESTS = 25
"""Of each kind. A heartbeat or a flush falls into few of them."""
PAUSE_S = 0.03
"""Before a request, so that what the one before it left to be done is not counted."""
SETTLE_S = 0.005
"""After an answer: what its sender does behind it is counted, whoever is faster."""
START_S = 30.0
COMPREHENSIONS = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"})

Walk = list[CodeType]
Ask = Callable[..., bytes]


class Hops:
    """Notes every entry of a function of ours, on all threads that start after it."""

    def __init__(self) -> None:
        self.entered: Walk = []
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS) and code.co_name not in COMPREHENSIONS:
            self.entered.append(code)


def walks(hops: Hops, ask: Ask, payloads: Iterator[bytes]) -> list[Walk]:
    """Send one request after the other; what each entered, until it was answered."""
    found = []
    for payload in payloads:
        time.sleep(PAUSE_S)
        hops.entered = []
        ask(payload, timeout=START_S)
        time.sleep(SETTLE_S)
        found.append(hops.entered)
    return found


def name_of(code: CodeType) -> str:
    return f"{Path(code.co_filename).relative_to(OURS)}:{code.co_firstlineno} {code.co_qualname}"


def report(title: str, found: list[Walk], *, walk: bool) -> None:
    """Print how many functions most of the walks enter, in how many files, and how often all functions are called."""
    walked = Counter(code for entered in found for code in set(entered))
    codes = [code for code in dict.fromkeys(chain(*found)) if walked[code] > len(found) / 2]
    files = {code.co_filename for code in codes}
    calls = statistics.median_low([len(entered) for entered in found])
    print(f"{title}: {len(codes)} hops in {len(files)} files, {calls} calls")
    if walk:
        print("\n".join(f"    {name_of(code)}" for code in codes))


def measure(hops: Hops, port: int, *, walk: bool) -> None:
    """Ask as a client, then end the service."""
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            grpc.channel_ready_future(channel).result(START_S)
            ask: Ask = channel.unary_unary("/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit")
            warm = [traffic.request(("user", "warm-0"))] * REQUESTS
            walks(hops, ask, iter(warm))
            report("warm request", walks(hops, ask, iter(warm)), walk=walk)
            new = traffic.new()
            walks(hops, ask, new(REQUESTS))
            report("cold key", walks(hops, ask, new(REQUESTS)), walk=walk)
    finally:
        os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--walk", action="store_true", help="print the functions")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory, RedisServer() as redis:
        Path(directory, "bench.yaml").write_text(traffic.RULES)
        port = free_port()
        client = threading.Thread(target=lambda: measure(hops, port, walk=arguments.walk))
        hops = Hops()
        client.start()
        headgate_main(
            [
                "serve", "--rules", directory, "--origin", redis.url, "--origin-deadline-ms", "1000",
                "--grpc", f"0.0.0.0:{port}", "--http", "127.0.0.1:0", "--drain-s", "0", "--log-level", "error",
            ]
        )  # fmt: skip
        client.join()


if __name__ == "__main__":
    main()
