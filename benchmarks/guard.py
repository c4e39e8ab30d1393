"""What the guard costs: CPU µs per decision through it, as a ratio to the bare native transport.

    python benchmarks/guard.py [--calls N] [--rounds N]

The same server four times, in one go and interleaved: bare, behind the guard, behind the
guard with TLS, and on grpcio with TLS, with 1, 16 and 128 calls in flight. CPU time is that of all
processes of a server, as the kernel counts it, so a noisy machine moves all figures
together: only the ratios hold.
"""

import argparse
import itertools
import ssl
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import load, traffic
from benchmarks.processes import METHOD, Server, start_headgate
from tests.conformance.transport.certificates import authority, issued_by

ONE = traffic.request(("user", "alice"))
IN_FLIGHT = {1: (1, 1), 16: (4, 4), 128: (4, 32)}
"""Connections, and calls under way on each."""
# Other machines could reach it, so it has a guard.
GUARDED = ("--grpc", "0.0.0.0:0")
WANTED = {"guard": 2.0, "guard, TLS": 3.0}


@dataclass
class Subject:
    server: Server
    tls: ssl.SSLContext | None = None

    def cost_us(self, in_flight: int, calls: int) -> float:
        connections, streams = IN_FLIGHT[in_flight]
        address = f"127.0.0.1:{self.server.address.rpartition(':')[2]}"
        before = self.server.cpu_s()
        outcome = load.run(
            address, METHOD, itertools.repeat(ONE, calls), connections=connections, streams=streams, tls=self.tls
        )
        assert (outcome.answers, outcome.failures) == (calls, 0)
        return (self.server.cpu_s() - before) / calls * 1e6


def start(stack: ExitStack, names: list[str]) -> dict[str, Subject]:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    ca = authority("ca")
    cert, key = issued_by(ca, "localhost").write(directory, "server")
    tls_flags = ("--tls-cert", cert, "--tls-key", key)
    context = ssl.create_default_context(cadata=ca.cert_pem.decode())
    context.set_alpn_protocols(["h2"])
    flags: dict[str, tuple[tuple[str, ...], ssl.SSLContext | None]] = {
        "bare": ((), None),
        "guard": (GUARDED, None),
        "guard, TLS": (tls_flags, context),
        "grpcio, TLS": ((*tls_flags, "--transport", "grpcio"), context),
    }
    subjects = {}
    for name in names or flags:
        rules = directory / name
        rules.mkdir()
        server = start_headgate(rules, *flags[name][0], rules=traffic.RULES)
        stack.callback(server.stop)
        subjects[name] = Subject(server, flags[name][1])
    return subjects


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000, help="calls per figure and round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="counted rounds (%(default)s)")
    parser.add_argument("--only", nargs="*", default=[], help="some of the subjects")
    arguments = parser.parse_args()
    costs: dict[tuple[str, int], list[float]] = {}
    with ExitStack() as stack:
        subjects = start(stack, arguments.only)
        # The first round warms everything up and does not count.
        for number in range(arguments.rounds + 1):
            for in_flight in IN_FLIGHT:
                for name, subject in subjects.items():
                    cost = subject.cost_us(in_flight, arguments.calls)
                    if number:
                        costs.setdefault((name, in_flight), []).append(cost)
    heads = "".join(f"{f'{number} in flight':>20}" for number in IN_FLIGHT)
    print(f"{'CPU µs per decision, × bare':<28}{heads}{'wanted':>9}")
    for name in subjects:
        cells = ""
        for in_flight in IN_FLIGHT:
            values, bare = costs[name, in_flight], costs["bare", in_flight]
            ratio = statistics.median(value / base for value, base in zip(values, bare, strict=True))
            cells += f"{f'{statistics.median(values):.1f} µs {ratio:6.2f}':>20}"
        print(f"{name:<28}{cells}{f'≤ {WANTED[name]}' if name in WANTED else '':>9}")


if __name__ == "__main__":
    main()
