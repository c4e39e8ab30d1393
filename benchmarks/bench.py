"""Everything that docs/performance.md shows, in one run of at most 15 minutes: `make bench`.

    python benchmarks/bench.py [--quick] [--only PART ...] [--record]

Prints the table, compares its ratios with those that were recorded last (benchmarks/recorded.json) and ends with
status 1 if one is more than 15% higher. Else, or with `--record`, it writes what it measured: recorded.json, the part
of docs/performance.md between the marks, the plots in docs/images, the costs for capacity.py (unit_costs.json) and the
table of docs/deploy.md that follows from them. Ratios are of one run: floor and subject in turns, the median of rounds.
"""

import argparse
import json
import os
import platform
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import parts, performance_page

RECORDED = Path(__file__).with_name("recorded.json")
WORSE = 1.15
"""A ratio that is so many times the recorded one fails the run: beyond what a shared machine moves a median by."""

PARTS: dict[str, Callable[[bool], Any]] = {
    "costs": parts.costs,
    "more_costs": parts.more_costs,
    "latency": parts.latency,
    "cold": parts.cold,
    "idle": parts.idle,
    "memory": parts.memory,
    "overload": parts.overload,
    "overload_cpu": parts.overload_cpu,
    "origin_calls": parts.origin_calls,
    "guard": parts.guard,
    "envoy": parts.envoy,
}


def measure(names: list[str], quick: bool) -> dict[str, Any]:
    """Each part by itself: one that fails leaves the others as they are."""
    found: dict[str, Any] = {
        "machine": {
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "load_average": round(os.getloadavg()[0], 1),
            "date": time.strftime("%Y-%m-%d"),
            "quick": quick,
        }
    }
    for name in names:
        began = time.monotonic()
        try:
            found[name] = PARTS[name](quick)
        except Exception:
            traceback.print_exc()
            print(f"{name}: failed; what was recorded stays")
        print(f"  ({name}: {time.monotonic() - began:.0f} s)", flush=True)
    return found


def worse(found: dict[str, Any], recorded: dict[str, Any]) -> list[str]:
    """What costs more than it did, by more than noise."""
    lines = []
    for part in ("costs", "more_costs"):
        for name, row in found.get(part, {}).items():
            before = recorded.get(part, {}).get(name)
            if before and row["ratio"] > before["ratio"] * WORSE:
                lines.append(f"{name}: {row['ratio']:.2f} × the bare transport, recorded {before['ratio']:.2f}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="shorter rounds, and 20,000 rules for 1,000,000")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS), help="some parts")
    parser.add_argument("--record", action="store_true", help="write what was measured even if it is worse")
    arguments = parser.parse_args()
    recorded = json.loads(RECORDED.read_text()) if RECORDED.exists() else {}
    found = measure(arguments.only, arguments.quick)
    failures = worse(found, recorded)
    for line in failures:
        print(f"more than {WORSE - 1:.0%} worse: {line}")
    if failures and not arguments.record:
        print("nothing is written; `--record` writes it all the same")
        return 1
    together = {**recorded, **found}
    RECORDED.write_text(json.dumps(together, indent=1, ensure_ascii=False) + "\n")
    performance_page.write(together)
    print(performance_page.table(together))
    return 0


if __name__ == "__main__":
    sys.exit(main())
