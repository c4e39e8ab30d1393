"""Every fault, short: no request fails or hangs, policies hold, healthy shards feel nothing, all is counted once."""

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from headgate_client import AsyncClient, RateLimitError

from tests.fault.faults import ALL, SICK, Outage, network, outages, stopped
from tests.fault.keys import DOMAIN, LOCAL_LIMIT, OPEN_LIMIT, Key
from tests.fault.region import NODES, Region, open_region
from tests.fault.traffic import Traffic
from tests.fault.trial import Load, run_trial
from tests.support.fault_proxy import Fault
from tests.support.headgate import Headgate
from tests.support.redis_servers import RedisServer
from tests.support.waiting import PATIENCE_S, undisturbed, wait_until

DEADLINE_MS = 250
"""Far above what a busy machine adds to a healthy shard's answer, and still well below the time after which a
call is given up: what is slow or late must find the calls still there."""
LOAD = Load(per_s=300, before=60, during=220, after=50, deadline_s=DEADLINE_MS / 1000, slack_s=0.25)
OUTAGES = outages(late_s=0.35, slow_s=0.17, flap_s=0.6)
SHORT = (
    *("killed", "stopped (SIGSTOP)", "network stalled", "replies truncated", "slow", "all killed"),
    *("down at startup", "flapping, refused", "demoted (READONLY)", "answers ERR", "name gone"),
)
"""One of each kind; `make verify` has them all."""


def outage_param(outage: Outage) -> Any:
    return pytest.param(outage, id=str(outage), marks=() if outage.name in SHORT else pytest.mark.long)


@pytest.fixture(scope="module")
def region() -> Iterator[Region]:
    with open_region("--origin-deadline-ms", str(DEADLINE_MS)) as opened:
        yield opened


def key_of(region: Region, case: str, rule: str) -> Key:
    return next(key for key in region.make_keys(case) if key.rule == rule and key.shard == SICK)


@pytest.mark.parametrize("outage", [outage_param(outage) for outage in OUTAGES])
def test_an_outage_is_lived_through(outage: Outage, region: Region) -> None:
    """How soon it is over is for `make verify` to judge (table.py): here nothing depends on the machine."""

    def attempt(number: int) -> list[str]:
        trial = run_trial(region, outage, LOAD, f"{outage}-{number}")
        assert not trial.problems(), trial
        return trial.side_effects()

    undisturbed(attempt)


@pytest.mark.parametrize(
    ("rule", "admitted"), [("closed-exact", 0), ("open-tight", OPEN_LIMIT // 2), ("local-tight", LOCAL_LIMIT // 2)]
)
def test_requests_that_waited_together_are_held_to_one_bound(rule: str, admitted: int, region: Region) -> None:
    """Each of them would fit by itself when it begins to wait."""
    key = key_of(region, "together", rule)
    region.wait_until_met()
    stalled = network("stalled", Fault("stall"))
    stalled.begin(region)
    try:
        asked = Traffic(per_s=1).ask(region.addresses[0], 0, [key] * 40, together=True)
    finally:
        stalled.heal(region)
    assert sum(request.admitted for request in asked) == admitted
    region.wait_until_closed([SICK])


@pytest.mark.parametrize("kind", ["refuse", "stall", "blackhole"])
def test_what_was_admitted_is_reported_though_nobody_asks_again(kind: str, region: Region) -> None:
    """Totals are cumulative: with more traffic on a key its next report would hide one that was dropped."""
    keys = [key_of(region, f"silent-{kind}", rule) for rule in ("open-wide", "local-wide")]
    traffic = Traffic(per_s=1)
    outage = network("silent", Fault(kind))
    outage.begin(region)
    try:
        for node, address in enumerate(region.addresses):
            traffic.ask(address, node, keys * 10)
        # Each has now tried to report, and failed: that is what opened its breaker, or has followed it.
        failures = [numbers.of_shard("call_failures", SICK) for numbers in region.numbers()]
        wait_until(
            lambda: all(
                numbers.of_shard("call_failures", SICK) > before
                for numbers, before in zip(region.numbers(), failures, strict=True)
            ),
            "a report that failed",
        )
    finally:
        outage.heal(region)
    admitted = [traffic.admitted(key) for key in keys]
    assert min(admitted) > 0
    wait_until(lambda: region.totals(keys) == admitted, "all of it to be counted")
    region.wait_until_closed([SICK])


def test_the_live_count_survives_a_restart_with_the_shards_away(region: Region) -> None:
    """A node that believed itself alone would admit the whole limit, as would every other."""
    key = key_of(region, "live", "local-tight")
    region.wait_until_met()
    away = network("away", Fault("refuse"), ALL)
    region.stop_node(0)
    away.begin(region)
    try:
        region.restart_node(0)
        assert region.origin_of(region.nodes[0])["live_nodes"] == NODES
        asked = Traffic(per_s=1).ask(region.addresses[0], 0, [key] * LOCAL_LIMIT)
        assert sum(request.admitted for request in asked) == LOCAL_LIMIT // 2, "its own count for 3 ÷ 1.5 nodes"
    finally:
        away.heal(region)
    region.wait_until_closed(ALL)
    wait_until(lambda: region.totals([key]) == [LOCAL_LIMIT // 2], "all that was admitted to be counted")


def test_more_pending_calls_than_allowed_are_refused_at_once(region: Region) -> None:
    """And those that wait get their answer: a stalled shard can't fill the memory with requests."""
    node = region.start_node(NODES, "--max-pending-calls", "4", "--origin-deadline-ms", "1000")
    stalled = network("stalled", Fault("stall"))

    def attempt(number: int) -> list[str]:
        key = key_of(region, f"pending-{number}", "closed-exact")
        wait_until(lambda: region.origin_of(node)["shards"][SICK]["breaker"] == "closed", "a shard that is asked")
        stalled.begin(region)
        try:
            outcomes = asyncio.run(ask_together(node.grpc, key, 12))
        finally:
            stalled.heal(region)
        in_order = outcomes == ["UNAVAILABLE"] * 8 + ["denied"] * 4
        # On a busy machine some may come only when others have got their answer.
        return [] if in_order else outcomes

    undisturbed(attempt)
    assert node.stop() == 0, "the others are counted by the tests below"


async def ask_together(address: str, key: Key, number: int) -> list[str]:
    """What came of each, in the order in which the answers came."""
    outcomes: list[str] = []

    async def ask(client: AsyncClient) -> None:
        try:
            decision = await client.should_rate_limit(DOMAIN, [{key.rule: key.value}], timeout_s=PATIENCE_S)
            outcomes.append("admitted" if decision.admitted else "denied")
        except RateLimitError as error:
            outcomes.append(error.status)

    async with AsyncClient(address) as client:
        await asyncio.gather(*(ask(client) for _ in range(number)))
    return outcomes


STALL_S = 3.0
"""Longer than a heartbeat is waited for, several times."""


def test_a_server_that_stalled_is_not_taken_to_have_lost_anything(region: Region) -> None:
    region.wait_until_met()
    server, refills = region.servers[SICK], [numbers.of_shard("refills", SICK) for numbers in region.numbers()]
    said = [len(losses_of(node)) for node in region.nodes]
    stall = stopped("stopped")
    stall.begin(region)
    time.sleep(STALL_S)  # the fault itself: heartbeats before, during and at the end of it are not answered
    stall.heal(region)
    resumed_s, _ = server.command("TIME")
    # Two heartbeats of each node: the answer to the first has been taken in when the second is sent.
    wait_until(lambda: beats_after(server, resumed_s + 2) >= NODES, "heartbeats after the stall")
    region.wait_until_closed([SICK])
    assert [numbers.of_shard("refills", SICK) for numbers in region.numbers()] == refills
    assert [len(losses_of(node)) for node in region.nodes] == said


def test_a_server_that_forgot_is_noticed_though_nobody_asks(region: Region) -> None:
    region.wait_until_met()
    refills = [numbers.of_shard("refills", SICK) for numbers in region.numbers()]
    region.servers[SICK].command("FLUSHALL")

    def noticed() -> bool:
        now = [numbers.of_shard("refills", SICK) for numbers in region.numbers()]
        return all(after > before for before, after in zip(refills, now, strict=True))

    wait_until(noticed, "every node to notice")


def losses_of(node: Headgate) -> list[dict[str, Any]]:
    return [event for event in node.events if event.get("event") == "shard_lost_memory" and event["shard"] == SICK]


def beats_after(server: RedisServer, time_s: int) -> int:
    """Nodes that the server has heard after that time of its own clock."""
    (live,) = server.command("KEYS", "*/live")
    return int(server.command("ZCOUNT", live, time_s * 1000, "+inf"))
