"""Every fault in full, as a table.

    python -m tests.fault.table [--per-s 1000] [--deadline-ms 5] [FAULT …]

Three nodes, three shards, a proxy before each shard; the outages last longer than what nodes
know stays fresh. The first row is the same load without a fault: what the machine itself
adds to the figures. The status is 1 if a policy or a count was wrong, or a time was exceeded.
"""

import argparse
import sys
from collections.abc import Sequence

from tests.fault.faults import Outage, more_outages, outages
from tests.fault.region import open_region
from tests.fault.trial import Load, Trial, run_trial

SLOW_S = 0.02
FLAP_S = 0.3
BEFORE_S, DURING_S, AFTER_S = 2.0, 6.5, 1.0
"""Longer than the 5 s for which a node may use what it was told: after that policies decide alone."""

HEALTHY = Outage("none", lambda region: None, lambda region: None, steady=False, felt=False)

HEADER = (
    "| fault | requests | errors, hung | healthy keys: degraded, latency "
    "| `open`: admitted of bound | `local`: admitted of bound | `closed`: admitted "
    "| decided by policy | waits over the deadline + 5 ms | waits once open | miscounted | recovery |\n"
    "|---"
    "|---|---|---|---|---|---|---|---|---|---|---|"
)


def row(trial: Trial) -> str:
    ratio = trial.latency_during_s / trial.latency_before_s if trial.latency_before_s else 0.0
    faulty = trial.outage is not HEALTHY
    cells = [
        trial.outage.name,
        f"{trial.requests:,}",
        f"{sum(trial.failed.values())}, {trial.hung}",
        f"{trial.healthy_degraded} of {trial.healthy:,}, × {ratio:.2f}" if trial.healthy else "–",
        f"{max(trial.open_admitted)} of {trial.open_bound}" if faulty else "–",
        f"{max(trial.local_admitted)} of {trial.local_bound}" if faulty else "–",
        f"{trial.closed_admitted}" if trial.outage.steady else "–",
        f"{trial.affected:,}",
        f"{trial.long_waits:,}",
        f"{trial.waits_when_open}" if trial.outage.steady else "–",
        f"{len(trial.miscounted)}",
        f"{trial.recovery_s:.1f} s" if faulty else "–",
    ]
    return f"| {' | '.join(cells)} |"


def chosen(names: Sequence[str], deadline_s: float) -> list[Outage]:
    known = outages(late_s=2 * deadline_s, slow_s=SLOW_S, flap_s=FLAP_S) + more_outages(late_s=2 * deadline_s)
    return [HEALTHY, *(outage for outage in known if not names or outage.name in names)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--per-s", type=float, default=1000)
    parser.add_argument("--deadline-ms", type=int, default=5)
    parser.add_argument("fault", nargs="*")
    arguments = parser.parse_args()
    per_s, deadline_s = arguments.per_s, arguments.deadline_ms / 1000
    load = Load(per_s, int(per_s * BEFORE_S), int(per_s * DURING_S), int(per_s * AFTER_S), deadline_s)
    problems = []
    sys.stdout.write(HEADER + "\n")
    with open_region("--origin-deadline-ms", str(arguments.deadline_ms)) as region:
        for outage in chosen(arguments.fault, deadline_s):
            trial = run_trial(region, outage, load, str(outage))
            sys.stdout.write(row(trial) + "\n")
            sys.stdout.flush()
            problems += [
                f"{outage.name}: {problem}" for problem in (*trial.problems(), *trial.delays()) if outage is not HEALTHY
            ]
    sys.stderr.write("".join(f"{problem}\n" for problem in problems))
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
