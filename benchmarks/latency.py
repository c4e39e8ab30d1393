"""Throughput, and how long callers wait at a given rate: an open loop, which accounts for coordinated omission.

    python benchmarks/latency.py [--seconds S] [--rounds N]

Calls are due at random times, at a rate that does not depend on the answers; what counts is the time from when a call
was due to its answer, also if it could not be sent before others were answered. Rates are parts of what Headgate
over Redis answers with 128 calls in flight; the bare transport is asked at the same rates, in the same rounds.
"""

import argparse
import random
import statistics
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import cost, load, traffic
from benchmarks.processes import METHOD, Server

LOADS = (0.1, 0.25, 0.5, 0.75, 0.9)
HALF = 0.5
WANTED_P99 = 1.5
"""At half of saturation, as a multiple of the bare transport's."""
SATURATION_CALLS = 20_000


@dataclass(frozen=True)
class Waits:
    """Of one server at one rate."""

    per_s: float
    p50_ms: float
    p99_ms: float
    p999_ms: float


def percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def at_rate(
    server: Server, per_s: float, seconds: float, seed: int, make: traffic.Traffic | None = None, connections: int = 4
) -> Waits:
    """One round of an open loop, of warm keys unless others are given."""
    ready = list(traffic.warm()(traffic.WARM_KEYS) if make is None else make(round(per_s * seconds)))
    outcome = load.run_paced(
        [server.address],
        METHOD,
        lambda number: ready[number % len(ready)],
        per_s=per_s,
        seconds=seconds,
        chooser=random.Random(seed),
        connections=connections,
    )
    assert outcome.failures == outcome.unanswered == 0, "calls got no answer"
    waits = sorted(outcome.waits_s)
    figures = [percentile(waits, share) * 1000 for share in (0.5, 0.99, 0.999)]
    return Waits(outcome.answers / outcome.seconds, *figures)


def saturation_per_s(server: Server) -> float:
    """Answers per second with 128 calls in flight: as fast as the server, or this generator, can."""
    payloads = traffic.warm()
    cost.saturated(server, payloads(traffic.WARM_KEYS * 3))
    outcomes = [
        load.run(server.address, METHOD, payloads(SATURATION_CALLS), connections=cost.CONNECTIONS, streams=cost.STREAMS)
        for _ in range(3)
    ]
    return statistics.median([outcome.answers / outcome.seconds for outcome in outcomes])


def median(rounds: list[Waits]) -> Waits:
    return Waits(
        *[statistics.median(values) for values in zip(*[vars(waits).values() for waits in rounds], strict=True)]
    )


def measure(servers: dict[str, Server], full_per_s: float, seconds: float, rounds: int) -> dict[str, list[Waits]]:
    """Per server the waits at each of LOADS, in interleaved rounds."""
    found: dict[str, list[Waits]] = {name: [] for name in servers}
    for part in LOADS:
        taken: dict[str, list[Waits]] = {name: [] for name in servers}
        for seed in range(rounds):
            for name, server in servers.items():
                taken[name].append(at_rate(server, full_per_s * part, seconds, seed))
        for name, waits in taken.items():
            found[name].append(median(waits))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each load and round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="(%(default)s)")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        floor, servers = cost.start(stack, ["redis"])
        full = saturation_per_s(servers["redis"])
        print(f"saturation: {full:,.0f} calls per second (bare transport {saturation_per_s(floor):,.0f})")
        found = measure(
            {"bare transport": floor, "Headgate, Redis": servers["redis"]}, full, arguments.seconds, arguments.rounds
        )
    print(f"{'load':<8}{'server':<18}{'calls/s':>9}{'p50 ms':>9}{'p99 ms':>9}{'p99.9 ms':>10}")
    for place, part in enumerate(LOADS):
        for name, waits in found.items():
            row = waits[place]
            print(f"{part:<8.0%}{name:<18}{row.per_s:>9,.0f}{row.p50_ms:>9.2f}{row.p99_ms:>9.2f}{row.p999_ms:>10.2f}")


if __name__ == "__main__":
    main()
