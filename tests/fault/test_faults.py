"""Every fault, short: no request fails or hangs, policies hold, healthy shards feel nothing, all is counted once."""

import asyncio
from collections.abc import Iterator

import pytest
from headgate_client import AsyncClient, RateLimitError

from tests.fault.faults import ALL, SICK, Outage, network, outages
from tests.fault.keys import DOMAIN, LOCAL_LIMIT, OPEN_LIMIT, Key
from tests.fault.region import NODES, Region, open_region
from tests.fault.traffic import Traffic
from tests.fault.trial import Load, run_trial
from tests.support.fault_proxy import Fault
from tests.support.headgate import wait_until

DEADLINE_MS = 95
"""Far above what a busy machine adds to a healthy shard's answer."""
SLACK_S = 0.105
"""For the same reason; with the deadline it is 200 ms, a bound of the server's histogram."""
LOAD = Load(per_s=300, before=60, during=220, after=50, deadline_s=DEADLINE_MS / 1000, slack_s=SLACK_S)
RECOVERY_MARGIN_S = 1.0
"""For what a busy machine adds: starting a server, polling, a probe that itself came too late."""
RECOVERY_TIMEOUT_S = 12.0
OUTAGES = outages(LOAD.deadline_s, slow_s=0.1)


@pytest.fixture(scope="module")
def region() -> Iterator[Region]:
    with open_region("--origin-deadline-ms", str(DEADLINE_MS)) as opened:
        yield opened


def key_of(region: Region, case: str, rule: str) -> Key:
    return next(key for key in region.make_keys(case) if key.rule == rule and key.shard == SICK)


@pytest.mark.parametrize("outage", OUTAGES, ids=str)
def test_an_outage_is_lived_through(outage: Outage, region: Region) -> None:
    trial = run_trial(region, outage, LOAD)
    assert not trial.problems(RECOVERY_MARGIN_S) + trial.side_effects(), trial


@pytest.mark.parametrize(
    ("rule", "admitted"), [("closed-exact", 0), ("open-tight", OPEN_LIMIT), ("local-tight", LOCAL_LIMIT // 2)]
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
    region.wait_until_closed([SICK], RECOVERY_TIMEOUT_S)


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
    region.wait_until_closed([SICK], RECOVERY_TIMEOUT_S)


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
    region.wait_until_closed(ALL, RECOVERY_TIMEOUT_S)
    wait_until(lambda: region.totals([key]) == [LOCAL_LIMIT // 2], "all that was admitted to be counted")


async def test_more_pending_calls_than_allowed_are_refused_at_once(region: Region) -> None:
    """And those that wait get their answer: a stalled shard can't fill the memory with requests."""
    key = key_of(region, "pending", "closed-exact")
    node = region.start_node(NODES, "--max-pending-calls", "4", "--origin-deadline-ms", "450")
    stalled = network("stalled", Fault("stall"))
    outcomes: list[str] = []

    async def ask(client: AsyncClient) -> None:
        try:
            decision = await client.should_rate_limit(DOMAIN, [{key.rule: key.value}], timeout_s=10)
            outcomes.append("admitted" if decision.admitted else "denied")
        except RateLimitError as error:
            outcomes.append(error.status)

    stalled.begin(region)
    try:
        async with AsyncClient(node.grpc) as client:
            await asyncio.gather(*(ask(client) for _ in range(12)))
    finally:
        stalled.heal(region)
    assert outcomes == ["UNAVAILABLE"] * 8 + ["denied"] * 4, "in the order in which they came"
