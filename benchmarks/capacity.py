"""How much to run: pods, memory and Redis for a load, from the costs in unit_costs.json.

    python benchmarks/capacity.py --per-s 50000 --keys 1000000 --traffic many --tls

A model and no measurement: it multiplies what single things cost. Figures are for cores like those they were
measured on (docs/performance.md); run the commands named in the file on yours and write them there.
"""

import argparse
import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

COSTS: dict[str, Any] = json.loads(Path(__file__).with_name("unit_costs.json").read_text())
BUSY = 0.6
"""Of a core: beyond it waits grow, and the loss of a pod must fit into the others. The autoscaler's target too."""
REDIS_BUSY = 0.5
"""Of a Redis server's core: its answers are waited for, with a deadline of milliseconds."""


@dataclass(frozen=True)
class Load:
    per_s: float
    keys: int
    """Limit keys in use within two windows."""
    traffic: str = "many"
    """How they are used: `few` hot ones, `many` evenly, or each `unique`."""
    descriptors: int = 1
    tls: bool = False
    peers: int = 0
    published: int = 0
    """Keys that change every second and that other regions are told of."""
    rules: int = 0


@dataclass(frozen=True)
class Plan:
    decision_us: float
    pods: int
    pod_mib: int
    redis_servers: int
    redis_mib: int
    exchange_cores: float
    exchange_kib_s: float


def plan(load: Load, costs: dict[str, Any] = COSTS) -> Plan:
    cost_us = costs["decision_us"]["tls" if load.tls else "guard"]["value"]
    cost_us += (load.descriptors - 1) * costs["descriptor_us"]["value"]
    cost_us += costs["new_key_us"]["value"] if load.traffic == "unique" else 0
    # One more than the load needs: a rollout, or a machine that is lost.
    pods = math.ceil(load.per_s * cost_us / 1e6 / BUSY) + 1
    cells_mib = load.keys * load.descriptors * costs["cell_bytes"]["value"] / 2**20
    redis_us = costs["redis_us"][load.traffic]["value"] * load.descriptors
    key_bytes = costs["redis_key_bytes"]["value"] + (pods - 1) * costs["redis_key_node_bytes"]["value"]
    # Twice: the old set serves while the new one is read.
    rules_mib = 2 * load.rules * costs["rule_bytes"]["value"] / 2**20
    components = load.published * load.peers
    return Plan(
        decision_us=cost_us,
        pods=pods,
        pod_mib=math.ceil((costs["process_mib"]["value"] + cells_mib + rules_mib) * 1.25),
        redis_servers=max(1, math.ceil(load.per_s * redis_us / 1e6 / REDIS_BUSY)),
        redis_mib=math.ceil(load.keys * load.descriptors * key_bytes / 2**20 * 1.5),
        exchange_cores=components * costs["component_us"]["value"] / 1e6,
        exchange_kib_s=components * costs["component_bytes"]["value"] / 1024,
    )


def table(loads: list[Load]) -> str:
    rows = ["decisions/s      keys  traffic  TLS | µs each  pods  MiB a pod | Redis servers  MiB in all"]
    for load in loads:
        found = plan(load)
        rows.append(
            f"{load.per_s:>11,.0f} {load.keys:>9,} {load.traffic:>8} {'yes' if load.tls else 'no':>4} |"
            f" {found.decision_us:>7.0f} {found.pods:>5} {found.pod_mib:>10,} |"
            f" {found.redis_servers:>13} {found.redis_mib:>11,}"
        )
    return "\n".join(rows)


SECONDS_A_MONTH = 365 * 86_400 / 12


def bill(load: Load, regions: int, core_price: float, gib_price: float) -> str:
    """What all regions take, and what it comes to at prices per core and GiB and month: of machines alone."""
    found = plan(load)
    cores = regions * (found.pods + found.redis_servers)
    gib = regions * (found.pods * found.pod_mib + found.redis_mib) / 1024
    cost = cores * core_price + gib * gib_price
    per_million = cost / (regions * load.per_s * SECONDS_A_MONTH / 1e6)
    return (
        f"in {regions} regions: {cores:,} cores, {gib:,.0f} GiB; at {core_price:g} a core and {gib_price:g} a GiB "
        f"{cost:,.0f} a month, {per_million:.4f} per million decisions"
    )


LARGE = [
    Load(600_000, 400_000, descriptors=5, rules=5_000_000),
    Load(3_000_000, 2_000_000, descriptors=5, rules=5_000_000),
]
"""Loads of services with millions of requests a second in each region, and five limits for each request."""

EXAMPLES = [
    Load(1_000, 10_000),
    Load(10_000, 100_000),
    Load(10_000, 100_000, tls=True),
    Load(50_000, 1_000_000, tls=True),
    Load(50_000, 1_000_000, traffic="unique", tls=True),
]


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--per-s", type=float, help="decisions per second (without it: the table of docs/deploy.md)")
    arguments.add_argument("--keys", type=int, default=100_000, help="limit keys in use within two windows")
    arguments.add_argument("--traffic", choices=("few", "many", "unique"), default="many", help="how keys are used")
    arguments.add_argument("--descriptors", type=int, default=1, help="per request")
    arguments.add_argument("--tls", action="store_true", help="callers use TLS")
    arguments.add_argument("--peers", type=int, default=0, help="other regions")
    arguments.add_argument("--published", type=int, default=0, help="keys told to them every second")
    arguments.add_argument("--rules", type=int, default=0, help="rules in force")
    arguments.add_argument("--large", action="store_true", help="the second table of docs/deploy.md")
    arguments.add_argument("--regions", type=int, default=1, help="regions with such a load")
    arguments.add_argument("--core-price", type=float, default=0.0, help="of a core for a month")
    arguments.add_argument("--gib-price", type=float, default=0.0, help="of a GiB of memory for a month")
    given = arguments.parse_args()
    if given.per_s is None:
        print(table(LARGE if given.large else EXAMPLES))
        return
    load = Load(
        given.per_s,
        given.keys,
        given.traffic,
        given.descriptors,
        given.tls,
        given.peers,
        given.published,
        given.rules,
    )
    print(table([load]))
    if given.core_price or given.regions > 1:
        print(bill(load, given.regions, given.core_price, given.gib_price))
    if load.peers:
        found = plan(load)
        print(f"exchange: {found.exchange_cores:.2f} cores, {found.exchange_kib_s:,.0f} KiB/s to all peers together")


if __name__ == "__main__":
    main()
