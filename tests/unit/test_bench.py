"""`make bench`: what fails it, and that the page shows what was recorded."""

import json
from pathlib import Path

import pytest

from benchmarks import bench, performance_page

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
