"""Counts per rule: each decision once per rule that it met, however many rules there are."""

from headgate.telemetry.tallies import MAX_DOMAINS, MAX_LABEL_CHARS, OVERFLOW, Tallies, Tally


def counted(tallies: Tallies) -> dict[str, int]:
    return {tally.name.rule: sum(count for *_, count in tally.results()) for tally in tallies.all()}


def plan(tallies: Tallies, rule: str) -> Tally:
    return tallies.of_rule("d", rule, rule)


def test_rules_beyond_the_bound_are_counted_together() -> None:
    tallies = Tallies(max_rules=3)
    for rule in ("a", "b", "c", "d", "e", "a"):
        plan(tallies, rule).within["local"] += 1
    assert counted(tallies) == {"a": 2, "b": 1, "c": 1, OVERFLOW: 2}
    assert tallies.overflowed == 2


def test_rules_that_are_gone_make_room_and_what_they_counted_is_kept() -> None:
    tallies = Tallies(max_rules=3)
    for rule in ("a", "b", "c"):
        plan(tallies, rule).over["deny_cache"] += 5
    plan(tallies, "a").near += 1
    tallies.rules_changed()
    plan(tallies, "a").within["local"] += 1
    for rule in ("x", "y"):
        plan(tallies, rule).within["local"] += 1
    assert counted(tallies) == {"a": 6, OVERFLOW: 11, "x": 1}, "y is the first beyond the bound"
    assert sum(counted(tallies).values()) == 18


def test_values_have_a_bound_of_their_own() -> None:
    tallies = Tallies(max_values=2)
    for value in ("one", "two", "three", "four"):
        tallies.of_value("d", "r", "r", value).within["local"] += 1
    assert [tally.name.value for tally in tallies.all()] == ["one", "two", OVERFLOW]
    assert tallies.all()[2].within["local"] == 2
    assert len(tallies.of_value("d", "r", "r", "x" * 500).name.value) <= MAX_LABEL_CHARS


def test_unknown_domains_are_told_once_and_bounded() -> None:
    tallies = Tallies()
    assert [tallies.of_unknown_domain("x")[1] for _ in range(3)] == [True, False, False]
    firsts = [tallies.of_unknown_domain(f"d{number}")[1] for number in range(10 * MAX_DOMAINS)]
    assert sum(firsts) == MAX_DOMAINS, "the overflow is told of too"
    assert len(tallies.unknown_domains()) == MAX_DOMAINS + 1


def test_costs_are_what_the_decisions_cost() -> None:
    tally = plan(Tallies(), "a")
    tally.within["local"] += 2
    tally.within_extra += 6
    assert dict(tally.costs()) == {"within_limit": 8, "over_limit": 0, "shadow_over_limit": 0}
