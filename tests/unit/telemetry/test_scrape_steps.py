"""Ten thousand rules are written and pushed in steps: none takes more than a few hundred series."""

import asyncio

from headgate.telemetry.exposition import Format
from headgate.telemetry.metrics import SERIES_PER_STEP, Metrics
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
    assert max(sizes) <= SERIES_PER_STEP
    # Two results, two costs and one near the limit for each rule and for all beyond the bound.
    assert 5 * (MAX_RULES + 1) <= sum(sizes) <= 5 * (MAX_RULES + 1) + 5


def test_no_part_of_a_push_is_long() -> None:
    sizes = [points(part) for part in with_rules().snapshots()]
    assert max(sizes) <= SERIES_PER_STEP
    assert sum(sizes) >= 5 * (MAX_RULES + 1)


async def test_the_loop_runs_other_work_in_between() -> None:
    metrics = with_rules()
    steps = 0

    async def others() -> None:
        nonlocal steps
        while True:
            steps += 1
            await asyncio.sleep(0)

    task = asyncio.create_task(others())
    await metrics.scrape(Format.TEXT)
    task.cancel()
    assert steps >= 5 * MAX_RULES // SERIES_PER_STEP
