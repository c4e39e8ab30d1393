"""`make bench`: what fails it, and that the page shows what was recorded."""

import json
from pathlib import Path

import pytest

from benchmarks import bench, cold, performance_page

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(("ratio", "fails"), [(2.0, False), (2.29, False), (2.31, True), (1.0, False)])
def test_a_ratio_that_is_15_percent_worse_than_recorded_fails_the_run(ratio: float, fails: bool) -> None:
    recorded = {"costs": {"one, redis": {"ratio": 2.0}}}
    assert bool(bench.worse({"costs": {"one, redis": {"ratio": ratio}}}, recorded)) is fails


def test_what_was_never_recorded_fails_nothing() -> None:
    assert bench.worse({"costs": {"new": {"ratio": 9.0}}, "more_costs": {"x": {"ratio": 2.0}}}, {}) == []


def test_the_page_shows_what_was_recorded() -> None:
    """Nobody edits figures by hand: `python benchmarks/performance_page.py` writes the page again."""
    recorded = json.loads((ROOT / "benchmarks" / "recorded.json").read_text())
    page = (ROOT / "docs" / "performance.md").read_text()
    begin, end = page.index(performance_page.BEGIN), page.index(performance_page.END)
    assert page[begin + len(performance_page.BEGIN) : end].strip() == performance_page.generated(recorded)


def test_every_part_that_the_page_shows_is_measured() -> None:
    assert set(bench.PARTS) >= {"costs", "more_costs", "latency", "idle", "memory", "overload", "envoy"}


def page(*counts: int) -> str:
    bounds = ("0.001", "0.002", "0.0025", "+Inf")
    lines = [f'wait_bucket{{le="{bound}",shard="0"}} {count}' for bound, count in zip(bounds, counts, strict=True)]
    return "\n".join(["# TYPE wait histogram", *lines, "wait_sum 3"])


def test_times_in_the_server_are_those_between_two_pages() -> None:
    counted = cold.since(cold.buckets(page(10, 10, 10, 10), "wait"), cold.buckets(page(60, 108, 109, 110), "wait"))
    assert cold.quantile_ms(counted, 0.5) == 1.0
    assert cold.quantile_ms(counted, 0.98) == 2.0
    assert cold.quantile_ms(counted, 0.99) == 2.5
    assert cold.quantile_ms(counted, 0.999) == 2.5, "no more is known than that it is longer"
    assert cold.within(counted, 2.0) == 0.98


def test_the_page_shows_cold_answers_once_they_were_measured() -> None:
    recorded = json.loads((ROOT / "benchmarks" / "recorded.json").read_text())
    row = {"per_s": 1_000.0, "p50_ms": 0.5, "p99_ms": 2.5, "within": 0.98}
    parts = {"answer": row, "wait for the shard": {"p50_ms": 0.4, "p99_ms": 2.1}}
    shown = performance_page.generated({**recorded, "cold": {"cold": row, "warm": row, "parts": parts}})
    assert "| cold | 1,000 | 0.50 | 2.50 | 98.0% |" in shown
    assert "| p99 of cold answers at half of their saturation | ≤ 2 ms | 2.50 ms | **missed** |" in shown
