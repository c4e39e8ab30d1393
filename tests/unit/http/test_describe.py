"""What `GET /rules` shows of the rules in force, bounded whatever they are."""

from pathlib import Path
from typing import Any

import pytest
from headgate.errors import BadRequest
from headgate.limiter.scopes import LimitsOfRegion
from headgate.limiter.shadows import Shadow, Shadows
from headgate.rules.changes import DomainMarks, changed
from headgate.rules.describe import MAX_RULES, describe_rules
from headgate.rules.directory_feed import DirectoryFeed
from headgate.rules.marks import Marks, Rollout
from headgate.rules.store import RuleStore

from tests.support.clock import ManualClock

NO_SHADOWS = Shadows(lambda: 0)

EDGE = """\
domain: edge
descriptors:
- key: user
  rate_limit: {unit: minute, unit_multiplier: 5, requests_per_unit: 10, name: users}
  descriptors:
  - key: path
    value: /login
    rate_limit: {unit: second, requests_per_unit: 1, algorithm: gcra, burst: 4, class: abuse}
- {key: staff, rate_limit: {unlimited: true}}
"""


@pytest.fixture
def store(tmp_path: Path) -> RuleStore:
    (tmp_path / "edge.yaml").write_text(EDGE)
    many = "".join(
        f"- {{key: k, value: v{n}, rate_limit: {{unit: day, requests_per_unit: 1}}}}\n" for n in range(MAX_RULES + 5)
    )
    (tmp_path / "many.yaml").write_text(f"domain: many\ndescriptors:\n{many}")
    clock = ManualClock(1_800_000_000_000)
    store = RuleStore(DirectoryFeed(tmp_path, clock=clock), clock=clock, logger=Silent())
    store.load_initial()
    return store


class Silent:
    def __getattr__(self, _: str) -> Any:
        return lambda *_args, **_fields: None


def test_rules_are_shown_with_their_limits_and_places(store: RuleStore, tmp_path: Path) -> None:
    shown = describe_rules(store, LimitsOfRegion(), NO_SHADOWS, {"domain": "edge"})
    assert (shown["version"], shown["source"], shown["in_sync"]) == (str(store.current.version), "directory", True)
    assert (shown["loaded_at"], shown["last_error"]) == ("2027-01-15T08:00:00.000+00:00", None)
    users, login, staff = sorted(shown["rules"], key=lambda rule: rule["place"])
    assert users["rule"] == "user"
    assert users["place"].startswith(f"{tmp_path}/edge.yaml:")
    assert users["limit"]["requests_per_unit"] == 10
    assert (users["limit"]["unit"], users["limit"]["unit_multiplier"]) == ("minute", 5)
    assert users["limit"]["name"] == "users"
    assert (login["rule"], login["limit"]["burst"]) == ("user > path=/login", 4)
    assert (login["limit"]["class"], login["limit"]["on_error"]) == ("abuse", "closed")
    assert staff["limit"] == {"unlimited": True, "name": ""}


def test_rules_that_were_refused_are_shown_beside_those_in_force(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "edge.yaml").write_text(EDGE)
    clock = ManualClock(1_800_000_000_000)
    RuleStore(DirectoryFeed(rules, clock=clock), clock=clock, data_dir=data_dir, logger=Silent()).load_initial()
    (rules / "edge.yaml").write_text("domain:\n")
    clock.advance(60_000)
    broken = RuleStore(DirectoryFeed(rules, clock=clock), clock=clock, data_dir=data_dir, logger=Silent())
    broken.load_initial()
    shown = describe_rules(broken, LimitsOfRegion(), NO_SHADOWS, {"domain": "edge"})
    assert (shown["source"], shown["in_sync"], len(shown["rules"])) == ("snapshot", False, 3)
    assert shown["last_error"] == {
        "at": "2027-01-15T08:01:00.000+00:00",
        "problems": [f"{rules}/edge.yaml:1: `domain` is empty"],
        "problems_total": 1,
    }
    refused = {"domain": "edge", "since": shown["last_error"].pop("at"), **shown["last_error"]}
    assert (shown["refused"], shown["refused_total"]) == ([refused], 1)


def test_the_answer_is_bounded_and_says_how_much_there_is(store: RuleStore) -> None:
    shown = describe_rules(store, LimitsOfRegion(), NO_SHADOWS, {})
    assert (shown["shown"], len(shown["rules"])) == (MAX_RULES, MAX_RULES)
    assert (shown["total"], shown["domains"]) == (MAX_RULES + 8, 2)
    assert len(describe_rules(store, LimitsOfRegion(), NO_SHADOWS, {"limit": "2"})["rules"]) == 2
    assert {
        rule["domain"] for rule in describe_rules(store, LimitsOfRegion(), NO_SHADOWS, {"domain": "edge"})["rules"]
    } == {"edge"}


@pytest.mark.parametrize("query", [{"limit": "x"}, {"limit": "-1"}, {"limit": str(MAX_RULES + 1)}, {"domain": "none"}])
def test_a_bad_query_is_the_callers_fault(store: RuleStore, query: dict[str, str]) -> None:
    with pytest.raises(BadRequest):
        describe_rules(store, LimitsOfRegion(), NO_SHADOWS, query)


def test_what_is_staged_and_what_is_in_shadow_is_shown(store: RuleStore) -> None:
    laid = (Shadow((), 1_000), Shadow((("user", ""),), 2_000))
    marks = Marks(Rollout("r1", 100_000, (((("user", "ann"),), None),)), laid, total=1)
    store.current = changed(store.current, [DomainMarks("edge", marks)])
    shadows = Shadows(lambda: 0)
    shadows.lay("region", {"edge": [Shadow((), 3_000, ends_elsewhere=True)]})
    shown = describe_rules(store, LimitsOfRegion(), shadows, {"limit": "0"})
    assert shown["rollouts"] == [{"domain": "edge", "rollout": "r1", "share": 0.1, "changes": 1}]
    assert shown["shadows"] == [
        {"domain": "edge", "rule": "", "until": "1970-01-01T00:00:03.000+00:00"},
        {"domain": "edge", "rule": "user", "until": "1970-01-01T00:00:02.000+00:00"},
    ]
