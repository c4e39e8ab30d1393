"""Most of a second's questions that miss their deadlines, and what is not most of a second's."""

import pytest
from headgate.region.lateness import Lateness


def verdicts(share: float, seconds: list[tuple[int, int]]) -> list[str]:
    """Return what is said in seconds in which so many are sent, one by one, and so many of them miss, evenly."""
    lateness, sent, said = Lateness(share), 0, list[str]()
    for second, (sends, misses) in enumerate(seconds):
        for number in range(sends):
            sent += 1
            if number * misses // sends != (number + 1) * misses // sends:
                said.append(lateness.missed(1, sent, second + number / sends))
    return [reason for reason in said if reason]


@pytest.mark.parametrize(
    ("seconds", "times"),
    [
        pytest.param([(100, 100)] * 3, 2, id="all of them"),
        pytest.param([(100, 60)] * 3, 2, id="most of them"),
        pytest.param([(100, 40)] * 3, 0, id="less than half"),
        pytest.param([(100, 10)] * 30, 0, id="a tenth, all the time"),
        pytest.param([(100, 100)], 0, id="a burst within a second"),
        pytest.param([(3, 3)] * 10, 0, id="too few to speak of a share"),
        pytest.param([(100, 100), (100, 0), (100, 0), (100, 100), (100, 0)], 0, id="one second now and then"),
        pytest.param([(10, 10)] * 2, 1, id="ten a second"),
    ],
)
def test_most_of_a_second_is_said_when_it_is_over(seconds: list[tuple[int, int]], times: int) -> None:
    assert len(verdicts(0.5, seconds)) == times


def test_it_says_how_many() -> None:
    assert verdicts(0.5, [(20, 20)] * 2) == ["21 of 21 requests missed their deadline within a second"]


def test_questions_of_one_call_count_each() -> None:
    lateness = Lateness(0.5)
    said = [lateness.missed(8, sent, second) for sent, second in [(8, 0.0), (30, 0.5), (31, 1.0)]]
    assert said == ["", "", "24 of 31 requests missed their deadline within a second"]


def test_a_share_of_one_says_nothing() -> None:
    assert verdicts(1.0, [(100, 100)] * 9) == []
