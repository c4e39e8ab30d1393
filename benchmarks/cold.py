"""Time that answers take inside the server, for keys that it has never seen and for warm ones, at half load.

    python benchmarks/cold.py [--seconds S] [--rounds N]

A cold answer is the first request for a key: it waits for Redis. Times are the server's own, from when a call was
received to its answer (`headgate_decision_duration_seconds`), so neither the client nor the network is in them. Calls
come in an open loop, at half of what the server answers of that kind with 128 in flight; cold and warm in turns, and
of the rounds the median. Beside the totals stands where the time of cold ones goes: waiting for the shard, and the
shard's calls themselves.
"""

import argparse
import bisect
import itertools
import re
import statistics
import sys
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import cost, latency, load, traffic
from benchmarks.processes import METHOD, Server

WANTED_MS = 2.0
"""The p99 of cold answers."""
LOAD = 0.5
SATURATION_CALLS = 8_000
SCRAPE_KEPT_S = 1.1
"""Seconds for which the server gives the same metrics: what is read after them is new."""
PARTS = {
    "answer": "headgate_decision_duration_seconds",
    "wait for the shard": "headgate_origin_wait_seconds",
    "call to the shard": "headgate_shard_call_duration_seconds",
}
"""Histograms of the server, from the whole to a part of it."""

Buckets = list[tuple[float, float]]
"""Upper bounds in seconds with the number of values up to each."""


@dataclass(frozen=True)
class Answered:
    """Answers of one kind in one round, in the server's own time."""

    per_s: float
    p50_ms: float
    p99_ms: float
    within: float
    """Share of answers within WANTED_MS."""


def buckets(page: str, name: str) -> Buckets:
    """One histogram of a metrics page, its series added up."""
    found: dict[float, float] = {}
    for labels, count in re.findall(rf"^{name}_bucket\{{(.*)\}} (\S+)$", page, re.MULTILINE):
        (bound,) = re.findall(r'le="([^"]+)"', labels)
        found[float(bound)] = found.get(float(bound), 0.0) + float(count)
    return sorted(found.items())


def since(before: Buckets, after: Buckets) -> Buckets:
    """What was counted between two pages."""
    counted = dict(before)
    return [(bound, count - counted.get(bound, 0.0)) for bound, count in after]


def quantile_ms(counted: Buckets, share: float) -> float:
    """Value below which this share lies, evenly spread within its bucket: as Prometheus reckons it."""
    total = counted[-1][1]
    place = bisect.bisect_left([count for _, count in counted], share * total)
    low, below = counted[place - 1] if place else (0.0, 0.0)
    high, upto = counted[place]
    if high == float("inf"):
        return low * 1000
    return (low + (high - low) * (share * total - below) / (upto - below)) * 1000


def within(counted: Buckets, ms: float) -> float:
    """Share of values up to a bound, which must be one of the buckets'."""
    (count,) = [count for bound, count in counted if bound == ms / 1000]
    return count / counted[-1][1]


def scrape(server: Server) -> str:
    time.sleep(SCRAPE_KEPT_S)
    with urllib.request.urlopen(f"http://{server.http}/metrics") as page:
        text: str = page.read().decode()
    return text


def one_round(
    server: Server, make: traffic.Traffic, per_s: float, seconds: float, seed: int
) -> tuple[Answered, dict[str, Buckets]]:
    before = scrape(server)
    waits = latency.at_rate(server, per_s, seconds, seed, make)
    after = scrape(server)
    counted = {part: since(buckets(before, name), buckets(after, name)) for part, name in PARTS.items()}
    answers = counted["answer"]
    figures = quantile_ms(answers, 0.5), quantile_ms(answers, 0.99), within(answers, WANTED_MS)
    return Answered(waits.per_s, *figures), counted


def saturation_per_s(server: Server, make: traffic.Traffic) -> float:
    """Answers per second with 128 calls in flight."""
    rates = []
    for _ in range(3):
        found = load.run(
            server.address, METHOD, make(SATURATION_CALLS), connections=cost.CONNECTIONS, streams=cost.STREAMS
        )
        rates.append(found.answers / found.seconds)
    return statistics.median(rates)


def measure(seconds: float, rounds: int) -> dict[str, object]:
    """Both kinds in turns, and the parts of cold answers over all rounds."""
    with ExitStack() as stack:
        _, servers = cost.start(stack, ["redis"])
        server, makes = servers["redis"], {"cold": traffic.new(), "warm": traffic.warm()}
        cost.saturated(server, makes["warm"](traffic.WARM_KEYS * 3))
        full = {name: saturation_per_s(server, make) for name, make in makes.items()}
        taken: dict[str, list[Answered]] = {name: [] for name in makes}
        parts: dict[str, list[Buckets]] = {part: [] for part in PARTS}
        for seed, (name, make) in itertools.product(range(rounds), makes.items()):
            answered, counted = one_round(server, make, full[name] * LOAD, seconds, seed)
            taken[name].append(answered)
            if name == "cold":
                for part, values in counted.items():
                    parts[part].append(values)
    found: dict[str, object] = {name: _median(answers) for name, answers in taken.items()}
    return {**found, "parts": {part: _quantiles(rows) for part, rows in parts.items()}}


def _median(rounds: list[Answered]) -> dict[str, float]:
    columns = zip(*[vars(answered).values() for answered in rounds], strict=True)
    values = [statistics.median(column) for column in columns]
    return dict(zip(("per_s", "p50_ms", "p99_ms", "within"), [round(value, 4) for value in values], strict=True))


def _quantiles(rounds: list[Buckets]) -> dict[str, float]:
    return {
        f"p{share:.0%}".rstrip("%") + "_ms": round(statistics.median([quantile_ms(row, share) for row in rounds]), 3)
        for share in (0.5, 0.99)
    }


def report(found: dict[str, object]) -> str:
    """What was measured, in lines."""
    lines = [f"{'answers':<22}{'calls/s':>9}{'p50 ms':>9}{'p99 ms':>9}{'within 2 ms':>13}"]
    for name in ("cold", "warm"):
        row = found[name]
        assert isinstance(row, dict)
        lines.append(f"{name:<22}{row['per_s']:>9,.0f}{row['p50_ms']:>9.2f}{row['p99_ms']:>9.2f}{row['within']:>13.2%}")
    parts = found["parts"]
    assert isinstance(parts, dict)
    lines += [f"{'  ' + part:<31}{row['p50_ms']:>9.2f}{row['p99_ms']:>9.2f}" for part, row in parts.items()]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5, help="(%(default)s)")
    arguments = parser.parse_args()
    print(report(measure(arguments.seconds, arguments.rounds)))


if __name__ == "__main__":
    main()
