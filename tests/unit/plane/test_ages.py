"""Ages of followers' rules: since the first entry was made that they lack, or refuse."""

from pathlib import Path

import pytest
from headgate.plane import ages
from headgate.plane.ages import ages_of
from headgate.plane.database import Sqlite
from headgate.plane.entry import FollowerRefusal, FollowerState, Position, RuleChange
from headgate.plane.rule_log import Author, RuleLog

RULE = b'{"rate_limit":{"unit":"hour","requests_per_unit":7}}'


@pytest.fixture
def log(tmp_path: Path) -> RuleLog:
    """Four entries, made at 1,000, 2,000, 3,000 and 4,000 ms."""
    log = RuleLog(Sqlite(tmp_path))
    for number in range(1, 5):
        log.change([RuleChange("edge", (("user", f"u{number}"),), RULE)], Author("ops", "", 1_000 * number))
    return log


def follower(index: int, *, since_ms: int = 0, refuses: bool = False) -> FollowerState:
    refused = (FollowerRefusal("edge", "no"),) if refuses else ()
    return FollowerState("n", "eu", "1", False, Position("p", index, "v"), since_ms, refused)


@pytest.mark.parametrize(
    ("state", "age_ms"),
    [
        (follower(4), 0),
        (follower(3), 6_000),
        (follower(1), 8_000),
        (follower(0), 9_000),
        (follower(4, since_ms=4_500, refuses=True), 5_500),
        (follower(9), 0),
    ],
    ids=["at the head", "one behind", "three behind", "nothing", "refuses", "ahead of a root that was set back"],
)
def test_rules_are_as_old_as_the_first_entry_that_is_lacking(log: RuleLog, state: FollowerState, age_ms: int) -> None:
    assert ages_of([state], log, 10_000) == [age_ms]


def test_few_entries_are_looked_up_whoever_lacks_them(log: RuleLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ages, "MOST_LOOKS", 1)
    states = [follower(2), follower(2), follower(1)]
    assert ages_of(states, log, 10_000) == [7_000, 7_000, 7_000], "the others are as old as the oldest that is known"
