"""Headgate behind Envoy with its default timeout of 20 ms: throughput, and calls that were too late.

    python benchmarks/envoy.py [--seconds N] [--rounds N] [--connections N …]

Three servers, each behind an Envoy of its own with one worker: Headgate with the native
transport, the bare native transport with a constant answer (what no decision could
beat), and Headgate with grpcio. One is loaded at a time, in interleaved rounds; figures
are medians. Envoy counts the errors: calls without an answer in time, which it then
lets pass. On a small machine Envoy and the load generator are a good part of the load,
so only the comparison within one run holds.

Ends with status 1 if the native transport has more errors than the bare one (as a
share of calls, by more than 2 points), or less than 70% of its throughput.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitResponse

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from benchmarks import http_load
from tests.support.envoy import Envoy, run_envoy
from tests.support.envoy_config import header_limit, http_config, route
from tests.support.headgate import serve

NATIVE, BARE, GRPCIO = "Headgate, native", "bare transport", "Headgate, grpcio"
MOST_ERRORS_POINTS = 2.0
LEAST_THROUGHPUT = 0.7
WARM_UP_S = 0.3
TURNS = 10
"""In which a server's seconds of a round are spent."""
ENVOY_TIMEOUT = "0.020s"
"""Envoy's own default, spelled out."""

RULES = """
domain: bench
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
"""

# Receives and answers, in one thread, and does nothing in between.
BARE_SERVER = """
import sys
from pygrpc_native._native import NativeGrpcFront
method = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
front = NativeGrpcFront("127.0.0.1:0", [(method, False)], 1, max_concurrent_streams=100)
front.start()
print(front.bound_port, flush=True)
answer = bytes.fromhex(sys.argv[1])
while (events := front.recv_batch(256, 50)) is not None:
    for _, call, _, _, _ in events:
        front.respond(call, answer)
"""


@dataclass
class Figures:
    per_second: list[float] = field(default_factory=list)
    errors_percent: list[float] = field(default_factory=list)

    @property
    def throughput(self) -> float:
        return statistics.median(self.per_second)

    @property
    def errors(self) -> float:
        return statistics.median(self.errors_percent)


def main() -> int:
    arguments = _parse()
    results = measure(arguments.connections, arguments.seconds, arguments.rounds)
    _print_table(results)
    failures = [line for connections, figures in results.items() for line in _missed(connections, figures)]
    for line in failures:
        print(line)
    return 1 if failures else 0


def measure(connections: list[int], seconds: float, rounds: int) -> dict[int, dict[str, Figures]]:
    """All three servers at each number of connections."""
    with ExitStack() as stack:
        rules = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (rules / "bench.yaml").write_text(RULES)
        envoys = {name: stack.enter_context(_behind_envoy(name, rules)) for name in (NATIVE, BARE, GRPCIO)}
        return {number: _measure(envoys, number, seconds, rounds) for number in connections}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="interleaved rounds (%(default)s)")
    parser.add_argument("--connections", type=int, nargs="+", default=[8, 32, 128], help="at once (%(default)s)")
    return parser.parse_args()


@contextmanager
def _behind_envoy(name: str, rules: Path) -> Iterator[Envoy]:
    with _server(name, rules) as address:
        config = http_config(
            routes=[route("/", limits=[header_limit("user")])],
            headgate=[address],
            domain="bench",
            timeout=ENVOY_TIMEOUT,
        )
        with run_envoy(config) as envoy:
            yield envoy


@contextmanager
def _server(name: str, rules: Path) -> Iterator[str]:
    if name != BARE:
        with serve(rules, "--transport", "native" if name == NATIVE else "grpcio") as headgate:
            yield headgate.grpc
        return
    command = [sys.executable, "-c", BARE_SERVER, _constant_answer().hex()]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


def _constant_answer() -> bytes:
    """Admitted, with one status, as Headgate would say it."""
    limit = RateLimitResponse.RateLimit(requests_per_unit=4_000_000_000, unit=RateLimitResponse.RateLimit.HOUR)
    status = RateLimitResponse.DescriptorStatus(
        code=RateLimitResponse.OK, current_limit=limit, limit_remaining=3_999_999_999
    )
    status.duration_until_reset.FromSeconds(1800)
    return RateLimitResponse(overall_code=RateLimitResponse.OK, statuses=[status]).SerializeToString()


def _measure(envoys: dict[str, Envoy], connections: int, seconds: float, rounds: int) -> dict[str, Figures]:
    figures = {name: Figures() for name in envoys}
    requests = [_request(number) for number in range(connections)]
    for number in range(rounds):
        tallies = {name: Tally() for name in envoys}
        # In short turns: what else the machine does in a round then falls on all alike.
        for _ in range(TURNS):
            for name, envoy in envoys.items():
                tallies[name].add(envoy, requests, seconds / TURNS)
        for name, tally in tallies.items():
            figures[name].per_second.append(tally.answers / tally.seconds)
            figures[name].errors_percent.append(100 * tally.errors / tally.calls)
            _print_round(number + 1, connections, name, figures[name])
    return figures


@dataclass
class Tally:
    """What one server did in one round."""

    answers: int = 0
    seconds: float = 0.0
    calls: int = 0
    errors: int = 0

    def add(self, envoy: Envoy, requests: list[bytes], seconds: float) -> None:
        http_load.run(envoy.address, requests, WARM_UP_S)
        calls, errors = _calls(envoy)
        outcome = http_load.run(envoy.address, requests, seconds)
        assert set(outcome.statuses) == {b"200"}, outcome.statuses
        calls_now, errors_now = _calls(envoy)
        self.answers += outcome.answers
        self.seconds += outcome.seconds
        self.calls += calls_now - calls
        self.errors += errors_now - errors


def _print_round(number: int, connections: int, name: str, figures: Figures) -> None:
    rate, errors = figures.per_second[-1], figures.errors_percent[-1]
    line = f"round {number}, {connections:>3} connections, {name:<17}{rate:>8.0f}/s {errors:>6.2f}% errors"
    print(line, file=sys.stderr, flush=True)


def _request(number: int) -> bytes:
    return f"GET / HTTP/1.1\r\nhost: bench\r\nx-user: user-{number}\r\n\r\n".encode()


def _calls(envoy: Envoy) -> tuple[int, int]:
    """Rate-limit calls that ended so far, and those of them that failed."""
    counters = envoy.counters("cluster.backend.ratelimit")
    ok, error, over = (counters.get(f"cluster.backend.ratelimit.{name}", 0) for name in ("ok", "error", "over_limit"))
    return ok + error + over, error


def _print_table(results: dict[int, dict[str, Figures]]) -> None:
    print("| connections | server | requests/s | × bare transport | rate-limit errors |")
    print("|---|---|---|---|---|")
    for connections, figures in results.items():
        for name, figure in figures.items():
            ratio = figure.throughput / figures[BARE].throughput
            print(f"| {connections} | {name} | {figure.throughput:,.0f} | {ratio:.2f} | {figure.errors:.2f}% |")


def _missed(connections: int, figures: dict[str, Figures]) -> Iterator[str]:
    native, floor = figures[NATIVE], figures[BARE]
    if native.errors > floor.errors + MOST_ERRORS_POINTS:
        yield f"{connections} connections: {native.errors:.2f}% errors, bare {floor.errors:.2f}%"
    if native.throughput < LEAST_THROUGHPUT * floor.throughput:
        yield f"{connections} connections: {native.throughput:.0f}/s, bare {floor.throughput:.0f}/s"


if __name__ == "__main__":
    sys.exit(main())
