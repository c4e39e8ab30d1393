"""Changes that may deny somebody more than before: they are found, whatever rules stand beside them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from headgate.limiter.rule_name import Steps
from headgate.plane.effect import tighter
from headgate.plane.entry import RuleChange
from headgate.plane.records import Records
from headgate.plane.rule_log import Author, RuleLog
from headgate.plane.rule_text import domain_file, rules_of
from headgate.rules.diff import Effect, differences
from headgate.rules.ruleset import RuleSet
from headgate.simulation.plane.world import MemoryDatabase
from hypothesis import strategies as st

from tests.support.properties import check, examples_of
from tests.unit.rules.support import compile_text

Rules = Mapping[Steps, dict[str, Any]]


def limit(requests: int, **more: Any) -> dict[str, Any]:
    return {"rate_limit": {"unit": "minute", "requests_per_unit": requests, **more}}


def path(text: str) -> Steps:
    return tuple((key, value) for key, _, value in (step.partition("=") for step in text.split(",")))


def compiled(rules: Rules) -> RuleSet:
    return compile_text(domain_file("d", rules).text.decode())


@contextmanager
def in_a_log(rules: RuleSet) -> Iterator[Records]:
    log = RuleLog(MemoryDatabase())
    log.change(list(rules_of(rules, "d")), Author("ann", "", 0))
    with log.looking() as records:
        yield records


def changes_between(old: RuleSet, new: RuleSet) -> list[RuleChange]:
    before, after = ({rule.path: rule for rule in rules_of(rules, "d")} for rules in (old, new))
    gone = [RuleChange("d", path, None) for path in before if path not in after]
    return [rule for path, rule in after.items() if before.get(path) != rule] + gone


def effect(old: RuleSet, new: RuleSet) -> str | None:
    with in_a_log(old) as records:
        return tighter(records, "d", changes_between(old, new))


ANY, ANN, LIKE_A = "user", "user=ann", "user=a*"

LOOSER: list[Any] = [
    pytest.param({ANY: limit(3)}, {ANY: limit(4)}, id="raised"),
    pytest.param({ANY: limit(3)}, {ANY: limit(3, name="n") | {"detailed_metric": True}}, id="a name"),
    pytest.param({ANY: limit(3)}, {ANY: limit(1) | {"shadow_mode": True}}, id="shadow"),
    pytest.param({ANY: limit(3)}, {ANY: {"rate_limit": {"unlimited": True}}}, id="unlimited"),
    pytest.param({ANY: limit(3, on_error="closed")}, {ANY: limit(3)}, id="less strict when the origin is away"),
    pytest.param({ANY: limit(3)}, {}, id="no limit any more"),
    pytest.param({ANY: limit(3)}, {ANY: limit(3), ANN: limit(3)}, id="a rule of its own with as much"),
    pytest.param({ANY: limit(3)}, {ANY: limit(3), ANN: {}}, id="an exception"),
    pytest.param({ANY: limit(3), ANN: limit(1)}, {ANY: limit(3)}, id="a lower one is gone"),
    pytest.param({LIKE_A: limit(3), ANY: limit(1)}, {LIKE_A: limit(3), ANY: limit(1), ANN: limit(4)}, id="a pattern's"),
    pytest.param({"user=a*": limit(3)}, {"user=b*": {}, "user=a*": limit(3)}, id="a pattern that exempts, before it"),
    pytest.param({ANY: limit(3), "user,path=/a": limit(1)}, {ANY: limit(3), "user,path=/a": limit(2)}, id="below"),
]
TIGHTER: list[Any] = [
    pytest.param({ANY: limit(3)}, {ANY: limit(2)}, id="lowered"),
    pytest.param({}, {ANY: limit(3)}, id="a new limit"),
    pytest.param({}, {ANN: limit(3)}, id="a new limit of one value"),
    pytest.param({ANN: {}}, {ANN: limit(3)}, id="a limit in the place of an exception"),
    pytest.param({ANY: limit(3)}, {ANY: limit(3), ANN: limit(2)}, id="a lower rule of its own"),
    pytest.param({ANY: limit(3)}, {ANY: limit(3), LIKE_A: limit(9)}, id="a limit for several values"),
    pytest.param({ANY: limit(3), ANN: {}}, {ANY: limit(3)}, id="an exception is gone"),
    pytest.param({ANY: limit(3), ANN: limit(4)}, {ANY: limit(3)}, id="a higher one is gone"),
    pytest.param({LIKE_A: limit(3), ANN: limit(4)}, {LIKE_A: limit(3)}, id="a higher one is gone, beside a pattern"),
    pytest.param({LIKE_A: {}, "user=*": limit(1)}, {"user=*": limit(1)}, id="an exempting pattern is gone"),
    pytest.param({"user=ann,x=1": {}, ANY: limit(3)}, {ANY: limit(3)}, id="all below an exception is gone"),
    pytest.param({ANY: limit(3) | {"shadow_mode": True}}, {ANY: limit(3)}, id="shadow off"),
    pytest.param({ANY: limit(3)}, {ANY: limit(3, on_error="closed")}, id="a stricter on_error"),
    pytest.param({ANY: limit(3)}, {ANY: limit(3, algorithm="fixed_window")}, id="another algorithm"),
    pytest.param({ANY: limit(3)}, {ANY: limit(3, unit_multiplier=2)}, id="a longer window"),
    pytest.param({ANY: limit(3, algorithm="gcra", burst=9)}, {ANY: limit(4, algorithm="gcra", burst=8)}, id="burst"),
    pytest.param({ANY: limit(3, name="n")}, {ANY: limit(3, name="m")}, id="another name, which others may replace"),
    pytest.param({ANY: limit(3, replaces=[{"name": "n"}])}, {}, id="one that replaces others is gone"),
    pytest.param({ANY: limit(3, replaces=[{"name": "n"}])}, {ANY: limit(3)}, id="replaces others no more"),
    pytest.param(
        {ANY: {}, "user,path=/a": limit(3, replaces=[{"name": "n"}])},
        {ANY: {}, "user,path=/a": limit(3, replaces=[{"name": "n"}]), ANN: {}},
        id="callers leave what replaces others",
    ),
    pytest.param({ANY: limit(3) | {"quota_mode": True}}, {}, id="one of several quotas is gone"),
    pytest.param({LIKE_A: limit(3)}, {LIKE_A: limit(3) | {"share_threshold": True}}, id="one counter for all"),
    pytest.param(
        {"user=a*": {"place": 0}, "user=*n": limit(1) | {"place": 1}},
        {"user=a*": {"place": 1}, "user=*n": limit(1) | {"place": 0}},
        id="another order",
    ),
]


@pytest.mark.parametrize(("old", "new"), LOOSER)
def test_looser(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert effect(compiled_of(old), compiled_of(new)) is None


@pytest.mark.parametrize(("old", "new"), TIGHTER)
def test_tighter(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert effect(compiled_of(old), compiled_of(new)) is not None


def compiled_of(rules: dict[str, Any]) -> RuleSet:
    return compiled({path(text): rule for text, rule in rules.items()})


def test_the_reason_names_the_rule_and_what_is_tighter() -> None:
    old, new = {ANY: limit(3)}, {ANY: limit(3), ANN: limit(2)}
    assert effect(compiled_of(old), compiled_of(new)) == "user=ann: a lower limit"


def test_what_is_moved_by_a_pattern_before_it_keeps_its_order() -> None:
    old = {"user=a*": limit(1) | {"place": 0}, "user=*n": limit(2) | {"place": 1}}
    new = {"user=x*": {"place": 0}, "user=a*": limit(1) | {"place": 1}, "user=*n": limit(2) | {"place": 2}}
    assert effect(compiled_of(old), compiled_of(new)) is None


def test_a_pattern_that_leads_nowhere_any_more_is_none() -> None:
    """It has a place, and no rule: whoever came to it goes on to the next."""
    rules = compiled_of({"user=a*,path=/x": limit(3), ANY: limit(1)})
    with in_a_log(rules) as records:
        assert records.rule("d", path(LIKE_A)) == b'{"leads_on":true,"place":0}'
        assert tighter(records, "d", [RuleChange("d", path("user=a*,path=/x"), None)]) is not None
        assert tighter(records, "d", [RuleChange("d", path("user=bob"), b"{}")]) is None
    rules = compiled_of({ANN: limit(3), "user=bob,path=/x*,y=1": limit(3), ANY: limit(1)})
    with in_a_log(rules) as records:
        nowhere = RuleChange("d", path(LIKE_A), b'{"leads_on":true,"place":0}')
        assert tighter(records, "d", [RuleChange("d", path(ANN), None), nowhere]) is not None
        assert tighter(records, "d", [RuleChange("d", path("user=bob,path=/x*,y=1"), None)]) is not None


# Random rules

steps = st.tuples(st.sampled_from(["user", "path"]), st.sampled_from(["", "ann", "abn", "a*", "*n", "*"]))
limits = st.builds(
    limit,
    st.integers(1, 3),
    algorithm=st.sampled_from(["sliding_window", "gcra"]),
    unit_multiplier=st.sampled_from([1, 1, 1, 2]),
)
fields = st.one_of(
    st.just({}),
    limits,
    limits,
    limits.map(lambda fields: fields | {"shadow_mode": True}),
    st.just({"rate_limit": {"unlimited": True}}),
)
rule_sets = st.dictionaries(
    st.lists(steps, min_size=1, max_size=2).map(tuple),
    st.tuples(fields, st.integers(0, 3)),
    max_size=6,
)


def placed(drawn: Mapping[Steps, tuple[dict[str, Any], int]]) -> Rules:
    return {path: fields | ({"place": place} if "*" in path[-1][1] else {}) for path, (fields, place) in drawn.items()}


def judged(before: RuleSet, after: RuleSet) -> None:
    """The comparison of whole sets, which looks at every caller, finds nothing that the look at the change misses."""
    worse = [one for one in differences(before, after) if one.effect in (Effect.TIGHTER, Effect.NEW_LIMIT)]
    if any(one.after is not None and not _free(one.after.limit) for one in worse):
        assert effect(before, after) is not None, list(map(str, worse))


@examples_of(200, 5_000)
def test_what_is_tighter_for_some_caller_is_always_found(count: int) -> None:
    check(count, lambda old, new: judged(compiled(placed(old)), compiled(placed(new))), old=rule_sets, new=rule_sets)


@examples_of(400, 5_000)
def test_one_change_among_others_is_judged_as_well(count: int) -> None:
    """Of many changes one is nearly always tighter, so single ones show more: a rule that is put, or deleted."""

    def one_change(old: Any, new: Any, which: int) -> None:
        after = {path: rule for number, (path, rule) in enumerate(old.items()) if number != which}
        after |= {} if which < len(old) else dict(list(new.items())[:1])
        judged(compiled(placed(old)), compiled(placed(after)))

    check(count, one_change, old=rule_sets, new=rule_sets, which=st.integers(0, 8))


def _free(limit: Any) -> bool:
    """A limit that denies nobody: `differences` calls it a new one where there was none."""
    return bool(limit.unlimited or limit.shadow)
