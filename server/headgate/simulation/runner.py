"""Run one history, and say what came of it: counts, and what was violated."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.simulation.client import Clients
from headgate.simulation.faults import Faults
from headgate.simulation.history import History
from headgate.simulation.loop import run_virtually
from headgate.simulation.quiescence import check, check_liveness, settle
from headgate.simulation.trace import Silence, Tracer
from headgate.simulation.watch import Violation, Watch
from headgate.simulation.world import World

LOOK_EVERY_S: Final = 0.05
SWEEP_STEPS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one history: what was violated, and how many requests went which way."""

    history: History
    violations: list[Violation]
    requests: int = 0
    admitted: int = 0
    waited: int = 0
    unserved: int = 0
    digest: int = 0
    """Of every decision, in order: two runs with the same one were the same run."""
    paths: Counter[str] = field(default_factory=Counter)

    @property
    def ok(self) -> bool:
        """Whether nothing was violated."""
        return not self.violations


def run(history: History, trace: Tracer | None = None) -> Outcome:
    """Play a history on virtual time, in this process."""
    return run_virtually(_run(history, trace or Silence()))


async def _run(history: History, trace: Tracer) -> Outcome:
    world = World(history, trace)
    watch = Watch(world)
    clients = Clients(world, watch)
    faults = Faults(world, watch)
    _catch_what_nobody_caught(watch)
    await asyncio.gather(*(world.start(slot) for slot in world.slots))
    looking = asyncio.create_task(_look(world, watch))
    await asyncio.gather(clients.run(), faults.run(history.faults))
    await asyncio.sleep(history.deadline_ms / 1000)
    faults.resync()
    await settle(world, watch)
    check(world, watch)
    looking.cancel()
    await check_liveness(world, watch)
    await asyncio.gather(looking, *(world.kill(slot) for slot in world.slots), return_exceptions=True)
    return Outcome(
        history,
        watch.violations,
        clients.asked,
        clients.admitted,
        clients.waited,
        clients.unserved,
        clients.digest,
        watch.paths,
    )


async def _look(world: World, watch: Watch) -> None:
    while True:
        await asyncio.sleep(LOOK_EVERY_S)
        watch.look()
        for _, node in world.nodes():
            node.engine.sweep(SWEEP_STEPS)


def _catch_what_nobody_caught(watch: Watch) -> None:
    def caught(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        watch.violate("tasks", f"{context.get('message')}: {context.get('exception')!r}")

    watch.world.loop.set_exception_handler(caught)
