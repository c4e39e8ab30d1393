"""Late costs of random size in two regions, while nodes are killed, Redis is wiped and replies are lost."""

import random
import signal
from collections import Counter

from tests.e2e.regions.world import LATE_LIMIT, World
from tests.support.headgate import Headgate, run

KEY = "tokens"
LARGEST = 200
FAULTS = 4
"""In turn: replies lost, Redis wiped, a node killed, and nothing; each after an equal share of the costs."""


def count_late_costs(world: World, costs: int, seed: int) -> int:
    """So many of them, all counted exactly, everywhere; returns their sum. The callers are denied afterwards."""
    chance = random.Random(seed)
    value = f"late-{seed}"
    charged: Counter[str] = Counter()
    for number in range(1, costs + 1):
        region = chance.choice(world.names)
        cost = chance.randint(1, LARGEST)
        world.ask(chance.choice(world.nodes[region]), KEY, value, cost)
        charged[region] += cost
        if number % max(1, costs // FAULTS) == 0:
            _break_something(world, value, charged, number // max(1, costs // FAULTS))
    world.wait_agreed(KEY, {value: dict(charged)})
    assert sum(charged.values()) > LATE_LIMIT
    for node in world.everyone():
        assert not is_let_in(node, value), "all is used, and every node knows"
    return sum(charged.values())


def is_let_in(node: Headgate, value: str) -> bool:
    """What a caller is told who looks."""
    looked = run("check", "--addr", node.grpc, "--domain", "edge", "--hits", "0", f"{KEY}={value}")
    assert looked.returncode in (0, 1), looked.stderr
    return looked.returncode == 0


def _break_something(world: World, value: str, charged: Counter[str], turn: int) -> None:
    region = world.names[turn % len(world.names)]
    server = world.redis[region].client
    match turn % FAULTS:
        case 1:
            server.client_kill_filter(_type="normal", skipme=True)
        case 2:
            server.flushall()
        case 3:
            # What a killed node had not reported is gone with it, by design: so it has reported.
            world.wait_agreed(KEY, {value: dict(charged)})
            node = world.nodes[region][0]
            node.send(signal.SIGKILL)
            node.wait_exit()
            world.begin_node(region, 0).wait_ready()
