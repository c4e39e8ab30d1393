"""How long a worker waits for its next start."""

import random

from headgate.supervisor.backoff import FIRST_S, LEAST_SHARE, MAX_S, STEADY_S, Backoff


class Highest(random.Random):
    def uniform(self, _: float, b: float) -> float:
        return b


def test_waits_double_up_to_the_bound() -> None:
    backoff = Backoff(Highest())
    waits = [backoff.next_s(0) for _ in range(12)]
    assert waits[:4] == [FIRST_S, FIRST_S * 2, FIRST_S * 4, FIRST_S * 8]
    assert waits[-2:] == [MAX_S, MAX_S]


def test_having_served_for_a_while_begins_anew_and_a_moment_does_not() -> None:
    backoff = Backoff(Highest())
    for _ in range(5):
        backoff.next_s(0)
    assert backoff.next_s(STEADY_S - 0.1) == FIRST_S * 32
    assert backoff.next_s(STEADY_S) == FIRST_S
    assert backoff.next_s(0) == FIRST_S * 2


def test_workers_that_fell_together_do_not_start_together() -> None:
    waits = [Backoff(random.Random(seed)).next_s(0) for seed in range(50)]
    assert len(set(waits)) == 50
    assert min(waits) >= FIRST_S * LEAST_SHARE
    assert max(waits) <= FIRST_S
