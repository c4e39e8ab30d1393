"""Lists of shards on bad days: nodes know who wants another one, and a change costs no count and no bound."""

import asyncio
import dataclasses
from collections.abc import Callable, Iterable

import pytest
from headgate.simulation.generate import generate
from headgate.simulation.history import Fault, FaultKind, SimulationHistory
from headgate.simulation.runner import run
from structlog.testing import capture_logs

from tests.simulation import mutations
from tests.simulation.fixed_set import named
from tests.support.region import RegionWorld, virtually

LEFT_OUT = (FaultKind.SHARD_CLOCK, FaultKind.CLOCK_STEP)
"""A key that moves to a shard of another time is as one whose shard's clock is set, which costs what that costs."""


def with_faults(name: str, added: Callable[[int, int], Iterable[Fault]]) -> SimulationHistory:
    """A history of the fixed set with more faults, made from its length and its number of nodes; clocks agree."""
    history = named(name)
    assert isinstance(history, SimulationHistory)
    faults = list(added(history.asks[-1].at_us // 1000, history.nodes))
    clocks = (0,) * history.shards
    kept = [fault for fault in history.faults if fault.kind not in LEFT_OUT]
    numbers = tuple(range(len(kept) + len(faults)))
    return dataclasses.replace(
        history, shard_offsets_ms=clocks, shard_drifts_ppm=clocks, faults=(*kept, *faults), numbers=numbers
    )


def relisted(name: str, *slots: int) -> SimulationHistory:
    """A history in which these nodes come back with another list, in the midst of its faults."""
    return with_faults(
        name,
        lambda length_ms, _: [
            Fault(FaultKind.RELISTED, length_ms // (index + 2), 300, slot) for index, slot in enumerate(slots)
        ],
    )


def rolled(name: str, lost: int = 0) -> SimulationHistory:
    """A history in which all nodes come to want one shard more, one after the other, and then one less again.

    `lost`: the share in % of calls to that shard that are lost.
    """
    spare = named(name).shards

    def changes(length_ms: int, nodes: int) -> Iterable[Fault]:
        if lost:
            yield Fault(FaultKind.LOST_CALLS, 0, length_ms, -1, spare, amount=lost)
        for slot in range(nodes):
            yield Fault(FaultKind.LISTED, length_ms // 10 + slot * 150, 0, slot, amount=1)
            yield Fault(FaultKind.LISTED, length_ms * 6 // 10 + slot * 150, 0, slot)

    return with_faults(name, changes)


DAYS = ["calm-0", "network-1", "loss-2", "nodes-3", "steps-75"]
LONG_DAYS = [f"{generate(seed).name}" for seed in range(40)]


@pytest.mark.parametrize("name", DAYS)
@pytest.mark.parametrize("slots", [(0,), (0, 1)])
def test_each_node_knows_how_many_have_another_list(name: str, slots: tuple[int, ...]) -> None:
    outcome = run(relisted(name, *slots))
    assert [violation.describe() for violation in outcome.violations] == []


@pytest.mark.parametrize("name", [*DAYS, "network-61", "queue-19"])
def test_a_list_that_changes_to_and_fro_costs_nothing(name: str) -> None:
    outcome = run(rolled(name))
    assert [violation.describe() for violation in outcome.violations] == []


@pytest.mark.parametrize("name", ["calm-0", "network-1"])
def test_nor_does_it_where_calls_to_the_new_shard_are_lost(name: str) -> None:
    outcome = run(rolled(name, lost=30))
    assert [violation.describe() for violation in outcome.violations] == []


@pytest.mark.long
@pytest.mark.parametrize("name", LONG_DAYS)
def test_nor_on_many_more_bad_days(name: str) -> None:
    outcome = run(rolled(name))
    assert [violation.describe() for violation in outcome.violations] == []


def test_on_a_calm_day_no_policy_has_to_decide() -> None:
    outcome = run(rolled("calm-0"))
    assert not [path for path in outcome.paths if path.startswith("degraded")], outcome.paths


@pytest.mark.pure("it plants a bug in a compiled class")
@pytest.mark.parametrize("mutation", [mutations.count_every_list, mutations.lists_outlive_their_runs])
def test_a_planted_bug_in_who_has_which_list_is_found(
    mutation: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    mutation(monkeypatch)
    assert "lists" in {violation.invariant for violation in run(relisted("nodes-3", 0)).violations}


@pytest.mark.pure("it plants a bug in a compiled class")
@pytest.mark.parametrize(
    ("mutation", "history", "invariant"),
    [
        (mutations.straight_to_the_new_list, rolled("network-1"), "lists"),
        (mutations.copy_without_sealing, rolled("calm-0"), "lists"),
        (mutations.begin_where_keys_leave, rolled("calm-0"), "cover"),
        (mutations.no_fence, rolled("calm-0"), "cover"),
        (mutations.over_before_all_have_moved, rolled("calm-0"), "lists"),
        (mutations.leave_behind_what_was_let_go_of, rolled("network-61"), "lists"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_planted_bug_in_moving_is_found(
    mutation: Callable[[pytest.MonkeyPatch], None],
    history: SimulationHistory,
    invariant: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutation(monkeypatch)
    assert invariant in {violation.invariant for violation in run(history).violations}


def test_the_log_says_once_when_lists_differ_and_once_when_they_agree_again() -> None:
    async def history() -> None:
        world = RegionWorld(1, shards=2)
        await world.start_node(listed=("0", "1"))
        other = await world.start_node(listed=("0",))
        await asyncio.sleep(3)
        assert [node.listed_otherwise for node in world.nodes] == [1, 1]
        await world.kill(other)
        await asyncio.sleep(10)
        assert [node.listed_otherwise for node in world.nodes] == [0]

    with capture_logs() as lines:
        virtually(history())
    said = [line["event"] for line in lines if line["event"].startswith("shard_lists_")]
    assert said == ["shard_lists_differ", "shard_lists_differ", "shard_lists_agree"], "the other one first"
