"""Counts per rule: each decision once per rule that it met, however many rules there are."""

from headgate.telemetry.tallies import LOOKED_AT, MAX_DOMAINS, MAX_LABEL_CHARS, OVERFLOW, Path, Tallies, Tally


def counted(tallies: Tallies) -> dict[str, int]:
    return {tally.name.rule: sum(count for *_, count in tally.results()) for tally in tallies.all()}


def path_of(rule: str) -> Path:
    return ((rule, ""),)


def plan(tallies: Tallies, rule: str) -> Tally:
    return tallies.of_rule("d", rule, rule, path_of(rule))


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
    tallies.rules_changed(lambda domain, path: path in [path_of(rule) for rule in ("a", "x", "y")])
    for rule in ("x", "y"):
        plan(tallies, rule).within["local"] += 1
    assert counted(tallies) == {"a": 5, OVERFLOW: 11, "x": 1}, "y is the first beyond the bound"
    assert sum(counted(tallies).values()) == 17
    assert tallies.dropped == 2


def test_rules_that_stay_keep_their_counts_although_nobody_asked_since() -> None:
    tallies = Tallies(max_rules=3)
    held = [plan(tallies, rule) for rule in ("a", "b", "c")]
    tallies.rules_changed(lambda domain, path: True)
    plan(tallies, "x").within["local"] += 1
    held[1].within["local"] += 1
    assert counted(tallies) == {"a": 0, "b": 1, "c": 0, OVERFLOW: 1}
    assert not any(tally.dropped for tally in held)


def test_a_name_that_several_rules_have_stays_while_one_of_them_does() -> None:
    tallies = Tallies(max_rules=1)
    tally = tallies.of_rule("d", "name", "a", path_of("a"))
    assert tallies.of_rule("d", "name", "b", path_of("b")) is tally
    tallies.rules_changed(lambda domain, path: path == path_of("b"))
    plan(tallies, "x")
    assert not tally.dropped
    tallies.rules_changed(lambda domain, path: False)
    plan(tallies, "x")
    assert tally.dropped


def test_a_few_are_looked_at_each_time_and_all_of_them_once() -> None:
    looks = [0]

    def gone_are_none(domain: str, path: Path | None) -> bool:
        looks[0] += 1
        return True

    tallies = Tallies(max_rules=5 * LOOKED_AT)
    for number in range(5 * LOOKED_AT):
        plan(tallies, f"r{number}")
    tallies.rules_changed(gone_are_none)
    plan(tallies, "x")
    assert looks == [LOOKED_AT]
    for _ in range(10):
        plan(tallies, "x")
    assert looks == [5 * LOOKED_AT]


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
