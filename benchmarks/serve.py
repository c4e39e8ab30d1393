"""What a decision costs: CPU µs per call of a real server, as a ratio to the bare transport.

    python benchmarks/serve.py [--calls N] [--rounds N]

All scenarios run in one go, interleaved, against two processes: Headgate, and the bare
native transport with a constant answer (the floor). CPU time is the process's own, as
the kernel counts it, so a noisy machine moves all figures together: only the ratios hold.
"""

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from google.protobuf.duration_pb2 import Duration
from headgate_client.wire.envoy.extensions.common.ratelimit.v3.ratelimit_pb2 import RateLimitDescriptor
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest, RateLimitResponse

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import load

METHOD = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
TICK_S = 1 / os.sysconf("SC_CLK_TCK")
UNIQUE_KEYS = 200_000

RULES = """
domain: bench
descriptors:
  - key: user
    rate_limit: {unit: hour, requests_per_unit: 4000000000}
  - key: denied
    rate_limit: {unit: day, requests_per_unit: 1}
"""

ANSWER = (
    RateLimitResponse(
        overall_code=RateLimitResponse.OK,
        statuses=[
            RateLimitResponse.DescriptorStatus(
                code=RateLimitResponse.OK,
                current_limit=RateLimitResponse.RateLimit(requests_per_unit=100, unit="HOUR"),
                limit_remaining=99,
                duration_until_reset=Duration(seconds=10, nanos=2_000_000),
            )
        ],
    )
    .SerializeToString()
    .hex()
)

FLOOR = textwrap.dedent(f"""
    import sys
    from pygrpc_native._native import NativeGrpcFront
    front = NativeGrpcFront("127.0.0.1:0", [("{METHOD}", False)], 1, max_concurrent_streams=100)
    front.start()
    print(front.bound_port, flush=True)
    answer = bytes.fromhex("{ANSWER}")
    while (events := front.recv_batch(256, 50)) is not None:
        for _, call, _, _, _ in events:
            front.respond(call, answer)
""")


@dataclass
class Server:
    """A process under measurement."""

    process: "subprocess.Popen[str]"
    address: str
    token: str | None = None
    """To be sent with every call."""
    http: str = ""

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) * TICK_S

    def resident_bytes(self) -> int:
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def start_floor() -> Server:
    process = subprocess.Popen([sys.executable, "-c", FLOOR], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return Server(process, f"127.0.0.1:{process.stdout.readline().strip()}")


def start_headgate(directory: Path, *flags: str, token: str | None = None) -> Server:
    (directory / "bench.yaml").write_text(RULES)
    command = [sys.executable, "-m", "headgate", "serve", "--rules", str(directory), "--log-format", "json"]
    command += ["--grpc", "127.0.0.1:0", "--http", "127.0.0.1:0", *flags]
    if token is not None:
        (directory / "tokens").write_text(token)
        command += ["--token-file", str(directory / "tokens")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        event = json.loads(line)
        if event.get("event") == "serving":
            return Server(process, event["grpc"], token, event["http"])
    raise SystemExit("headgate did not start")


def request(*keys: tuple[str, str], domain: str = "bench") -> bytes:
    message = RateLimitRequest(domain=domain)
    for key, value in keys:
        message.descriptors.append(RateLimitDescriptor(entries=[RateLimitDescriptor.Entry(key=key, value=value)]))
    return message.SerializeToString()


def unique(begin: int, count: int) -> Iterator[bytes]:
    return (request(("user", f"user-{number:09}")) for number in range(begin, begin + count))


ONE = request(("user", "alice"))
FIVE = request(*[("user", f"user-{number}") for number in range(5)])
DENIED = request(("denied", "mallory"))
ELSEWHERE = request(("user", "alice"), domain="elsewhere")

SCENARIOS = {"warm allow, 1 descriptor": ONE, "warm allow, 5 descriptors": FIVE, "denied": DENIED,
             "unmatched domain": ELSEWHERE}  # fmt: skip
WANTED = {"warm allow, 1 descriptor": 2.0, "warm allow, 5 descriptors": 3.0, "denied": 1.8}


def cost_us(server: Server, payloads: Iterator[bytes], calls: int) -> float:
    before = server.cpu_s()
    outcome = load.run(server.address, METHOD, payloads, token=server.token)
    assert outcome.failures == 0, f"{outcome.failures} calls got no answer"
    assert outcome.answers == calls
    return (server.cpu_s() - before) / calls * 1e6


def measure(floor: Server, headgate: Server, guarded: Server, calls: int, rounds: int) -> dict[str, list[float]]:
    """Interleaved rounds; the first one warms everything up and does not count."""
    costs: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        plan = [("bare transport (floor)", floor, ONE)]
        plan += [(name, headgate, payload) for name, payload in SCENARIOS.items()]
        plan.append(("warm allow, bearer token", guarded, ONE))
        for name, server, payload in plan:
            cost = cost_us(server, itertools.repeat(payload, calls), calls)
            if number:
                costs.setdefault(name, []).append(cost)
    return costs


def measure_unique(headgate: Server) -> tuple[float, float]:
    """CPU per new key, and what a live cell holds in memory once caches and allocator are warm."""
    cost_us(headgate, unique(0, UNIQUE_KEYS // 4), UNIQUE_KEYS // 4)
    resident = headgate.resident_bytes()
    cost = cost_us(headgate, unique(UNIQUE_KEYS, UNIQUE_KEYS), UNIQUE_KEYS)
    return cost, (headgate.resident_bytes() - resident) / UNIQUE_KEYS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=20_000, help="calls per scenario and round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (%(default)s)")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        floor = start_floor()
        stack.callback(floor.stop)
        headgate = start_headgate(Path(directory))
        stack.callback(headgate.stop)
        guarded = start_headgate(Path(directory), token="0123456789abcdef" * 2)
        stack.callback(guarded.stop)
        costs = measure(floor, headgate, guarded, arguments.calls, arguments.rounds)
        unique_us, cell_bytes = measure_unique(headgate)
    floors = costs["bare transport (floor)"]
    print(f"{'scenario':<28}{'CPU µs':>8}{'× floor':>9}{'wanted':>8}")
    for name, values in costs.items():
        ratio = statistics.median(value / base for value, base in zip(values, floors, strict=True))
        wanted = f"≤ {WANTED[name]}" if name in WANTED else ""
        print(f"{name:<28}{statistics.median(values):>8.1f}{ratio:>9.2f}{wanted:>8}")
    print(f"{f'{UNIQUE_KEYS:,} unique keys':<28}{unique_us:>8.1f}{unique_us / statistics.median(floors):>9.2f}")
    print(f"resident bytes per live cell: {cell_bytes:.0f} (wanted ≤ 400)")


if __name__ == "__main__":
    main()
