"""Two builds compared: CPU per decision of both, over a real Redis each, in turns. By default what compiling saves.

    make bench-compiled
    python benchmarks/compiled.py DIRECTORY [--against DIRECTORY] [--calls N] [--rounds N] [--only KIND ...]

DIRECTORY holds a build (requirements/compiled.py); what it is compared with is the source here, pure Python, or another
build: that of an earlier state, say. A round is the bare transport, the other build, this build, and the bare transport
again; each build is divided by the mean of the bare transport before and after, and this
one by the other of its round. Figures are medians of rounds. All processes count, server and Redis, as in
cost.py.
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import traffic
from benchmarks.cost import WARM_UP, cpu_us, saturated
from benchmarks.processes import Server, start_floor, start_headgate
from tests.support.headgate import clean_environ
from tests.support.redis_servers import RedisServer


class Round(NamedTuple):
    """CPU µs per decision."""

    floor: float
    other: float
    this: float


def start(stack: ExitStack, python_path: str) -> Server:
    """Headgate with its own Redis, of the build that is found there; empty: of the source."""
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    redis = stack.enter_context(RedisServer())
    assert redis.process is not None
    flags = ("--origin", redis.url, "--origin-deadline-ms", "1000")
    server = start_headgate(
        directory, *flags, rules=traffic.RULES, beside=(redis.process.pid,), environ={"PYTHONPATH": python_path}
    )
    stack.callback(server.stop)
    return server


def build_of(python_path: str) -> str:
    said = subprocess.run(
        [sys.executable, "-m", "headgate", "version"],
        env=clean_environ({"PYTHONPATH": python_path}), capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    return said.partition("(")[2].strip().removesuffix(")")


def measure(floor: Server, servers: list[Server], kind: str, *, calls: int, rounds: int) -> list[Round]:
    streams = [traffic.KINDS[kind]() for _ in servers]
    for server, stream in zip(servers, streams, strict=True):
        saturated(server, stream(round(calls * WARM_UP.get(kind, 1.0))))
    idle = traffic.warm()
    found = []
    for _ in range(rounds):
        before = cpu_us(floor, lambda: saturated(floor, idle(calls)))[0]
        other, this = [
            cpu_us(server, partial(saturated, server, stream(calls)))[0]
            for server, stream in zip(servers, streams, strict=True)
        ]
        after = cpu_us(floor, lambda: saturated(floor, idle(calls)))[0]
        found.append(Round((before + after) / 2, other, this))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where this build is")
    parser.add_argument("--against", type=Path, help="where the other build is (the source here, pure Python)")
    parser.add_argument("--calls", type=int, default=12_000, help="per kind and round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="(%(default)s)")
    parser.add_argument("--only", nargs="*", default=list(traffic.KINDS), help="kinds of traffic")
    arguments = parser.parse_args()
    paths = (str(arguments.against.resolve()) if arguments.against else "", str(arguments.directory.resolve()))
    builds = [f"{name} ({build_of(path)})" for name, path in zip(("other", "this"), paths, strict=True)]
    with ExitStack() as stack:
        floor = start_floor()
        stack.callback(floor.stop)
        servers = [start(stack, path) for path in paths]
        print(f"{'× bare':<10}{builds[0]:>22}{builds[1]:>22}{'this / other':>14}{'rounds':>14}")
        for kind in arguments.only:
            rounds = measure(floor, servers, kind, calls=arguments.calls, rounds=arguments.rounds)
            ratios = sorted(it.this / it.other for it in rounds)
            print(
                f"{kind:<10}{statistics.median(it.other / it.floor for it in rounds):>22.2f}"
                f"{statistics.median(it.this / it.floor for it in rounds):>22.2f}"
                f"{statistics.median(ratios):>14.2f}{f'{ratios[0]:.2f}–{ratios[-1]:.2f}':>14}",
                flush=True,
            )


if __name__ == "__main__":
    main()
