"""Heavy hitters: never too high, too low by no more than is said, and whoever is heavy is there."""

from collections import Counter

from headgate.telemetry.sketch import Recent, Sketch
from hypothesis import given
from hypothesis import strategies as st


@given(st.lists(st.lists(st.integers(0, 40), max_size=60), max_size=20), st.integers(1, 12))
def test_counts_are_within_the_error_that_is_said(batches: list[list[int]], size: int) -> None:
    sketch: Sketch[int] = Sketch(size)
    true = Counter[int]()
    for batch in batches:
        sketch.take(batch)
        true.update(batch)
    assert len(sketch.counts) <= size
    assert sketch.error <= true.total() / (size + 1)
    for name, count in true.items():
        assert sketch.counts[name] <= count <= sketch.counts[name] + sketch.error


def test_few_names_are_counted_exactly() -> None:
    sketch: Sketch[str] = Sketch(3)
    sketch.take("aabbbc")
    assert (sketch.counts, sketch.error) == ({"a": 2, "b": 3, "c": 1}, 0)


def test_what_is_older_than_two_periods_is_forgotten() -> None:
    recent: Recent[str] = Recent(10, 60.0)
    recent.take("aaa", 0.0)
    recent.take("bb", 61.0)
    assert recent.most(5) == [("a", 3), ("b", 2)]
    recent.take("", 122.0)
    assert recent.most(5) == [("b", 2)]
    recent.take("c", 500.0)
    assert recent.most(5) == [("c", 1)]
