"""What a CPU quota does to callers' waits: a sidecar asked over its Unix socket, with and without a limit.

    python benchmarks/cpu_quota.py [--seconds S] [--rounds N] [--per-s RATE …] [--quota CORES …]

A quota is a CPU limit of a container: so much time in every 100 ms, and then nothing until the next 100 ms begin. It is
set as a kubelet sets it, in a control group of its own that the node is put into and that is removed at the end; that
takes root and a `cpu` controller that can be written. Waits are of warm keys, in an open loop; rounds are interleaved.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import cost, latency, traffic
from benchmarks.parts import PATIENT, node_over_redis
from benchmarks.processes import Server

PERIOD_US = 100_000
"""Kubernetes's and Docker's own."""
KEYS = 20
"""So few that each is asked for several times a second at every rate, and is warm."""
V1, V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


class Quota:
    """A control group with one process in it."""

    def __init__(self) -> None:
        self._v1 = not (V2 / "cgroup.controllers").exists()
        self._group = (V1 if self._v1 else V2) / f"headgate-bench-{os.getpid()}"
        self._group.mkdir()

    def take(self, pid: int) -> None:
        (self._group / "cgroup.procs").write_text(str(pid))

    def set(self, cores: float | None) -> None:
        """Allow so many cores; None: as many as there are."""
        quota_us = None if cores is None else round(cores * PERIOD_US)
        if self._v1:
            (self._group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self._group / "cpu.cfs_quota_us").write_text(str(-1 if quota_us is None else quota_us))
        else:
            (self._group / "cpu.max").write_text(f"{'max' if quota_us is None else quota_us} {PERIOD_US}")

    def throttled(self) -> tuple[int, int]:
        """Periods in which it ran, and in which it was stopped before their end; since the group was made."""
        lines = (line.split() for line in (self._group / "cpu.stat").read_text().splitlines())
        found = {name: int(value) for name, value in lines}
        return found["nr_periods"], found["nr_throttled"]

    def close(self) -> None:
        """Remove the group; the process has ended."""
        self._group.rmdir()


@contextmanager
def limited_node() -> Iterator[tuple[Server, Quota]]:
    """A node on a Unix socket, in a group of its own."""
    with ExitStack() as stack:
        directory = stack.enter_context(tempfile.TemporaryDirectory())
        quota = Quota()
        stack.callback(quota.close)  # after the node has ended
        node, _ = stack.enter_context(node_over_redis(traffic.RULES, *PATIENT, grpc=f"unix:{directory}/grpc.sock"))
        quota.take(node.process.pid)
        yield node, quota


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each rate, quota and round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    parser.add_argument("--per-s", type=float, nargs="+", default=[100, 500, 2_000], help="calls per second")
    parser.add_argument("--quota", type=float, nargs="+", default=[1.0, 0.5, 0.25, 0.1], help="cores")
    arguments = parser.parse_args()
    quotas: list[float | None] = [None, *arguments.quota]
    warm = traffic.warm(keys=KEYS)
    print(f"{'calls/s':>8}{'quota':>8}{'p50 ms':>9}{'p99 ms':>9}{'p99.9 ms':>10}{'throttled':>11}{'CPU used':>10}")
    with limited_node() as (node, quota):
        for per_s in arguments.per_s:
            taken: dict[float | None, list[latency.Waits]] = {cores: [] for cores in quotas}
            periods = {cores: [0, 0] for cores in quotas}
            used_s: dict[float | None, float] = dict.fromkeys(quotas, 0.0)
            for seed in range(arguments.rounds):
                for cores in quotas:
                    quota.set(None)
                    cost.saturated(node, warm(2 * KEYS))
                    quota.set(cores)
                    before, cpu_s = quota.throttled(), node.own_cpu_s()
                    taken[cores].append(latency.at_rate(node, per_s, arguments.seconds, seed, warm, connections=2))
                    used_s[cores] += node.own_cpu_s() - cpu_s
                    for place, value in enumerate(quota.throttled()):
                        periods[cores][place] += value - before[place]
            for cores in quotas:
                row, (ran, stopped) = latency.median(taken[cores]), periods[cores]
                share = f"{stopped / ran:.0%}" if ran else "–"
                busy = used_s[cores] / (arguments.rounds * arguments.seconds)
                figures = f"{row.p50_ms:>9.2f}{row.p99_ms:>9.2f}{row.p999_ms:>10.2f}{share:>11}{busy:>10.1%}"
                print(f"{per_s:>8,.0f}{'none' if cores is None else f'{cores:g}':>8}{figures}", flush=True)


if __name__ == "__main__":
    main()
