"""What the compiled build saves: CPU per decision of both builds, over a real Redis each, in turns.

    make bench-compiled
    python benchmarks/compiled.py DIRECTORY [--calls N] [--rounds N] [--only KIND ...]

DIRECTORY holds the compiled build (requirements/compiled.py). A round is the bare transport, pure Python, the compiled
build, and the bare transport again; each build is divided by the mean of the bare transport before and after, and the
compiled one by the other of its round. Figures are medians of rounds. All processes count, server and Redis, as in
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

BUILDS = ("pure Python", "compiled")


class Round(NamedTuple):
    """CPU µs per decision."""

    floor: float
    pure: float
    compiled: float


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
        pure, compiled = [
            cpu_us(server, partial(saturated, server, stream(calls)))[0]
            for server, stream in zip(servers, streams, strict=True)
        ]
        after = cpu_us(floor, lambda: saturated(floor, idle(calls)))[0]
        found.append(Round((before + after) / 2, pure, compiled))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, help="where the compiled build is")
    parser.add_argument("--calls", type=int, default=12_000, help="per kind and round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="(%(default)s)")
    parser.add_argument("--only", nargs="*", default=list(traffic.KINDS), help="kinds of traffic")
    arguments = parser.parse_args()
    paths = ("", str(arguments.directory.resolve()))
    assert tuple(map(build_of, paths)) == BUILDS, f"{arguments.directory} holds no compiled build"
    with ExitStack() as stack:
        floor = start_floor()
        stack.callback(floor.stop)
        servers = [start(stack, path) for path in paths]
        print(f"{'':<10}{'pure, × bare':>14}{'compiled, × bare':>18}{'compiled / pure':>17}{'rounds':>14}")
        for kind in arguments.only:
            rounds = measure(floor, servers, kind, calls=arguments.calls, rounds=arguments.rounds)
            ratios = sorted(it.compiled / it.pure for it in rounds)
            print(
                f"{kind:<10}{statistics.median(it.pure / it.floor for it in rounds):>14.2f}"
                f"{statistics.median(it.compiled / it.floor for it in rounds):>18.2f}"
                f"{statistics.median(ratios):>17.2f}{f'{ratios[0]:.2f}–{ratios[-1]:.2f}':>14}",
                flush=True,
            )


if __name__ == "__main__":
    main()
