"""Ten thousand rules are written and pushed in turns: no turn of the loop takes more than a few hundred series."""

import asyncio

from headgate.telemetry.metrics import SERIES_PER_TURN, Metrics
from headgate.telemetry.rule_instruments import register_rules
from headgate.telemetry.tallies import MAX_RULES, Tallies
from opentelemetry.sdk.metrics.export import MetricsData


def with_rules() -> Metrics:
    metrics, tallies = Metrics(node="n", region="r"), Tallies()
    for number in range(MAX_RULES + 500):
        tally = tallies.of_rule("edge", f"user=u{number}", f"user=u{number}")
        tally.within["local"] += 1
        tally.over["deny_cache"] += 1
    register_rules(metrics, tallies)
    return metrics


def points(part: MetricsData) -> int:
    metrics = part.resource_metrics[0].scope_metrics[0].metrics
    return sum(len(metric.data.data_points) for metric in metrics)


def test_no_piece_of_a_scrape_is_long() -> None:
    pieces = list(with_rules().pieces())
    sizes = [sum(1 for line in piece.splitlines() if not line.startswith(b"#")) for piece in pieces]
    assert max(sizes) <= SERIES_PER_TURN
    # Two results, two costs and one near the limit for each rule and for all beyond the bound.
    assert 5 * (MAX_RULES + 1) <= sum(sizes) <= 5 * (MAX_RULES + 1) + 5


def test_no_part_of_a_push_is_long() -> None:
    sizes = [points(part) for part in with_rules().snapshots()]
    assert max(sizes) <= SERIES_PER_TURN
    assert sum(sizes) >= 5 * (MAX_RULES + 1)


async def test_the_loop_has_its_turn_in_between() -> None:
    metrics = with_rules()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await metrics.scrape("")
    task.cancel()
    assert turns >= 5 * MAX_RULES // SERIES_PER_TURN
