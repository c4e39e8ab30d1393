"""Run one history, and say what came of it: counts, and what was violated."""

import asyncio
from typing import Final

from headgate.simulation.client import Clients
from headgate.simulation.faults import Faults
from headgate.simulation.history import SimulationHistory
from headgate.simulation.loop import run_virtually
from headgate.simulation.outcome import AnyHistory, SimulationOutcome
from headgate.simulation.quiescence import check, check_lists, check_liveness, settle
from headgate.simulation.regions.history import RegionsHistory
from headgate.simulation.regions.runner import run_regions
from headgate.simulation.trace import Tracer
from headgate.simulation.watch import Watch
from headgate.simulation.world import World

OBSERVE_EVERY_S: Final = 0.05
SWEEP_STEPS: Final = 1_000


def run(history: AnyHistory, trace: Tracer | None = None) -> SimulationOutcome:
    """Play a history on virtual time, in this process."""
    if isinstance(history, RegionsHistory):
        return run_virtually(run_regions(history, trace or Tracer()))
    return run_virtually(_run(history, trace or Tracer()))


async def _run(history: SimulationHistory, trace: Tracer) -> SimulationOutcome:
    world = World(history, trace)
    watch = Watch(world)
    clients = Clients(world, watch)
    faults = Faults(world, watch)
    world.report_uncaught()
    await asyncio.gather(*(world.start(slot) for slot in world.slots))
    observing = asyncio.create_task(_observe(world, watch))
    await asyncio.gather(clients.run(), faults.run(history.faults))
    await asyncio.sleep(history.deadline_ms / 1000)
    faults.resync()
    await settle(world, watch)
    check(world, watch)
    observing.cancel()
    await check_liveness(world)
    check_lists(world)
    await asyncio.gather(observing, *(world.kill(slot) for slot in world.slots), return_exceptions=True)
    return clients.outcome


async def _observe(world: World, watch: Watch) -> None:
    while True:
        await asyncio.sleep(OBSERVE_EVERY_S)
        watch.bounds.observe()
        for _, node in world.nodes():
            node.engine.sweep(SWEEP_STEPS)
