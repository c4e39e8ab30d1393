"""Nodes whose lists of shards differ know it of each other, whatever breaks meanwhile; and nobody else believes it."""

import asyncio
import dataclasses
from collections.abc import Callable

import pytest
from headgate.simulation.history import Fault, FaultKind, SimulationHistory
from headgate.simulation.runner import run
from structlog.testing import capture_logs

from tests.simulation import mutations
from tests.simulation.fixed_set import named
from tests.support.region import RegionWorld, virtually


def relisted(name: str, *slots: int) -> SimulationHistory:
    """A history of the fixed set in which these nodes come back with another list, in the midst of its faults."""
    history = named(name)
    assert isinstance(history, SimulationHistory)
    length_ms = history.asks[-1].at_us // 1000
    faults = [Fault(FaultKind.RELISTED, length_ms // (index + 2), 300, slot) for index, slot in enumerate(slots)]
    numbers = (*history.numbers, *range(1_000, 1_000 + len(faults)))
    return dataclasses.replace(history, faults=(*history.faults, *faults), numbers=numbers)


@pytest.mark.parametrize("name", ["calm-0", "network-1", "loss-2", "nodes-3", "steps-75"])
@pytest.mark.parametrize("slots", [(0,), (0, 1)])
def test_each_node_knows_how_many_have_another_list(name: str, slots: tuple[int, ...]) -> None:
    outcome = run(relisted(name, *slots))
    assert [violation.describe() for violation in outcome.violations] == []


@pytest.mark.pure("it plants a bug in a compiled class")
@pytest.mark.parametrize("mutation", [mutations.count_every_list, mutations.lists_outlive_their_runs])
def test_a_planted_bug_is_found(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    assert "lists" in {violation.invariant for violation in run(relisted("nodes-3", 0)).violations}


def test_the_log_says_once_when_lists_differ_and_once_when_they_agree_again() -> None:
    async def history() -> None:
        world = RegionWorld(1, shards=2)
        await world.start_node()
        other = await world.start_node(shard_list=b"another")
        await asyncio.sleep(3)
        assert [node.listed_otherwise for node in world.nodes] == [1, 1]
        await world.kill(other)
        await asyncio.sleep(10)
        assert [node.listed_otherwise for node in world.nodes] == [0]

    with capture_logs() as lines:
        virtually(history())
    said = [line["event"] for line in lines if line["event"].startswith("shard_lists_")]
    assert said == ["shard_lists_differ", "shard_lists_differ", "shard_lists_agree"], "the other one first"
