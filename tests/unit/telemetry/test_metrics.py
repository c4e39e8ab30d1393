"""Metrics: plain numbers in, Prometheus text out, from a registry of our own."""

import asyncio
import mmap
import time

from headgate.telemetry.metrics import Metrics
from headgate.telemetry.process import LAG_WINDOW_S, STALL_S, LoopLag, cpu_seconds, resident_bytes
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families


def samples(metrics: Metrics) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(metrics.render().decode())
    return {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in families
        if family.name != "target_info"
        for s in family.samples
    }


def test_counters_and_gauges_are_read_when_somebody_looks() -> None:
    metrics, counts = Metrics(node="n", region="r"), {"hits": 0, "level": 7}
    metrics.counter("headgate_hits", "Hits.", lambda: counts["hits"])
    metrics.gauge("headgate_level", "Level.", lambda: counts["level"])
    assert samples(metrics) == {("headgate_hits_total", ()): 0, ("headgate_level", ()): 7}
    counts.update(hits=3, level=-1)
    assert samples(metrics) == {("headgate_hits_total", ()): 3, ("headgate_level", ()): -1}


def test_labelled_series_are_exactly_what_the_reader_gives() -> None:
    metrics = Metrics(node="n", region="r")
    metrics.labelled_counter(
        "headgate_refused", "Refused.", ("reason",), lambda: [(1, {"reason": "a"}), (2, {"reason": "b"})]
    )
    assert samples(metrics) == {
        ("headgate_refused_total", (("reason", "a"),)): 1,
        ("headgate_refused_total", (("reason", "b"),)): 2,
    }


def test_two_processes_worth_of_metrics_do_not_meet_and_the_global_registry_stays_clean() -> None:
    one, two = Metrics(node="n", region="r"), Metrics(node="n", region="r")
    one.counter("headgate_hits", "Hits.", lambda: 1)
    two.counter("headgate_hits", "Hits.", lambda: 2)
    assert samples(one) == {("headgate_hits_total", ()): 1}
    assert samples(two) == {("headgate_hits_total", ()): 2}
    assert not any(family.name.startswith("headgate") for family in REGISTRY.collect())


def test_the_process_knows_its_memory_and_time() -> None:
    before = resident_bytes()
    # From the system, and written to: what a test before has given back to the allocator would not count again.
    with mmap.mmap(-1, 50_000_000) as ballast:
        ballast.write(b"x" * 50_000_000)
        assert 40_000_000 < resident_bytes() - before < 150_000_000
    assert cpu_seconds() > 0


def test_the_loops_lag_keeps_a_peak_for_a_window_and_counts_stalls() -> None:
    lag = LoopLag()
    lag.note(0.2, 100.0)
    lag.note(0.001, 100.1)
    lag.note(STALL_S, 100.2)
    assert (lag.last_s, lag.peak_s, lag.stalls) == (STALL_S, 0.2, 1)
    lag.note(0.002, 100.0 + LAG_WINDOW_S)
    lag.note(0.002, 99.9 + 2 * LAG_WINDOW_S)
    assert lag.peak_s == 0.2
    lag.note(0.002, 100.0 + 2 * LAG_WINDOW_S)
    assert lag.peak_s == 0.002


def test_a_peak_is_forgotten_when_nothing_was_measured_for_two_windows() -> None:
    lag = LoopLag()
    lag.note(0.2, 100.0)
    lag.note(0.001, 100.0 + 2 * LAG_WINDOW_S)
    assert lag.peak_s == 0.001


async def test_who_sleeps_regularly_measures_the_loops_lag() -> None:
    """A loop that was blocked for 100 ms ran late by nearly as much, and so did one that the sleeper itself held."""
    lag = LoopLag()
    asyncio.get_running_loop().call_later(0.005, time.sleep, 0.1)
    await lag.sleep(0.01)
    assert lag.last_s > 0.06
    assert lag.stalls == 1
    await lag.sleep(0.0, held_s=0.3)
    assert lag.last_s >= 0.3
    assert lag.stalls == 2
    assert lag.peak_s >= 0.3
