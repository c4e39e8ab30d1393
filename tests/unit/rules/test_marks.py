"""Domains with marks: which rules decide, what they cost to keep, and what is read back from the disk."""

from itertools import pairwise

from headgate.limiter.limit import Limit, Unit
from headgate.limiter.shadows import Shadow
from headgate.rules.changes import Delete, DomainMarks, DomainSettings, Put, changed
from headgate.rules.marks import NO_MARKS, Marks, Rollout, Side, SlotOrder
from headgate.rules.model import RuleContent
from headgate.rules.ruleset import NO_RULES, Domain, RuleSet
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.rules.support import saved_and_read
from tests.unit.rules.test_changes import LIMITS, PATHS, Path, domain_of, put

FIVE, ONE = Limit(5, Unit.MINUTE), Limit(1, Unit.MINUTE)
ENTRIES = st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "y", "xy", "z"])), min_size=1, max_size=3)
STAGED = st.dictionaries(PATHS, st.none() | st.builds(RuleContent, LIMITS), max_size=6)
BASE = st.dictionaries(PATHS, LIMITS, max_size=8)
SHARES = st.sampled_from([0, 10_000, 500_000, 1_000_000])


def rules_of(base: dict[Path, Limit | None]) -> RuleSet:
    return changed(NO_RULES, [DomainSettings("d"), *(put(path, limit) for path, limit in base.items())])


def rollout(share: int, staged: dict[Path, RuleContent | None], name: str = "r1") -> Marks:
    return Marks(Rollout(name, share, tuple(staged.items())), total=share + 1)


def staged_by_hand(base: RuleSet, staged: dict[Path, RuleContent | None]) -> Domain:
    changes = [Delete("d", path) if rule is None else Put("d", path, rule) for path, rule in staged.items()]
    return domain_of(changed(base, changes))


@given(BASE, STAGED, SHARES, ENTRIES)
def test_the_key_under_the_rules_in_force_says_which_rules_decide(
    base: dict[Path, Limit | None],
    staged: dict[Path, RuleContent | None],
    share: int,
    entries: list[tuple[str, str]],
) -> None:
    rules = rules_of(base)
    marks = rollout(share, staged)
    domain = domain_of(changed(rules, [DomainMarks("d", marks)]))
    old, new = domain_of(rules), staged_by_hand(rules, staged)
    before, after = old.match(entries), new.match(entries)
    first = before or after
    assert marks.rollout is not None
    by_staged = first is not None and marks.rollout.includes(first.key)
    decides = new if by_staged else old
    assert domain.match(entries) == decides.match(entries)
    assert domain.exempts(entries) == decides.exempts(entries)
    assert domain.side(entries) == (None if before == after else Side("r1", by_staged))


@given(BASE, STAGED, BASE, ENTRIES)
def test_a_change_beside_a_rollout_goes_into_both_versions(
    base: dict[Path, Limit | None],
    staged: dict[Path, RuleContent | None],
    beside: dict[Path, Limit | None],
    entries: list[tuple[str, str]],
) -> None:
    """The plane sees to it that it is of no rule that the rollout changes; wildcards come with their order."""
    changes = [
        put(path, limit)
        for path, limit in beside.items()
        if path not in staged and not any("*" in value for _, value in path)
    ]
    for share in (0, 1_000_000):
        under = changed(changed(rules_of(base), [DomainMarks("d", rollout(share, staged))]), changes)
        anew = changed(changed(rules_of(base), changes), [DomainMarks("d", rollout(share, staged))])
        assert under.version.digest == anew.version.digest
        assert under.match("d", entries) == anew.match("d", entries)


@given(BASE, STAGED, SHARES, ENTRIES)
def test_marks_are_on_the_disk_too(
    base: dict[Path, Limit | None],
    staged: dict[Path, RuleContent | None],
    share: int,
    entries: list[tuple[str, str]],
) -> None:
    marks = Marks(rollout(share, staged).rollout, (Shadow((("a", "x"),), 7), Shadow((), 8)), total=12)
    rules = changed(rules_of(base), [DomainMarks("d", marks)])
    again = saved_and_read(rules)
    assert again.version == rules.version
    assert again.marks() == rules.marks() == {"d": marks}
    assert again.match("d", entries) == rules.match("d", entries)


def users(domain: Domain, share: int) -> set[str]:
    """Of a thousand, those who are decided by the staged rules."""
    staged: dict[Path, RuleContent | None] = {(("user", ""),): RuleContent(ONE)}
    marked = domain_of(changed(NO_RULES.with_domains({"d": domain}), [DomainMarks("d", rollout(share, staged))]))
    met = {name: marked.match([("user", name)]) for name in map(str, range(10_000))}
    return {name for name, match in met.items() if match is not None and match.limit == ONE}


def test_a_share_of_the_keys_is_staged_and_stays_so_as_the_share_grows() -> None:
    domain = domain_of(rules_of({(("user", ""),): FIVE}))
    found = [users(domain, share) for share in (0, 10_000, 100_000, 500_000, 1_000_000)]
    assert [len(names) for names in found[::4]] == [0, 10_000]
    assert 60 < len(found[1]) < 140
    assert 880 < len(found[2]) < 1_120
    assert 4_800 < len(found[3]) < 5_200
    for fewer, more in pairwise(found):
        assert fewer <= more, "a caller keeps what it was given"


def test_where_the_key_changes_the_one_in_force_decides() -> None:
    """So a caller's share does not depend on what it will be given."""
    base = rules_of({(("user", ""),): FIVE})
    marks = rollout(500_000, {(("user", "*"),): RuleContent(ONE)})
    domain = domain_of(changed(base, [DomainMarks("d", marks)]))
    assert marks.rollout is not None
    for name in map(str, range(50)):
        before, now = base.match("d", [("user", name)]), domain.match([("user", name)])
        assert before is not None
        assert now is not None
        assert (now.limit == ONE) is marks.rollout.includes(before.key)


def test_another_rollout_begins_with_others() -> None:
    keys = [str(number).encode() for number in range(1_000)]
    first, second = ({key for key in keys if Rollout(name, 100_000, ()).includes(key)} for name in "ab")
    assert len(first & second) < 30


def test_wildcards_of_the_staged_rules_have_their_order() -> None:
    base = rules_of({(("user", "a*"),): FIVE, (("user", "*"),): FIVE})
    staged = ((("user", "ab*"),), RuleContent(ONE))
    order = SlotOrder((), "user", ("ab*", "a*", "*"))
    domain = domain_of(changed(base, [DomainMarks("d", Marks(Rollout("r", 1_000_000, (staged,), (order,)), total=1))]))
    match = domain.match([("user", "abc")])
    assert match is not None
    assert match.limit == ONE, "the new one stands before those that matched so far"


def test_without_its_marks_a_domain_is_what_it_was() -> None:
    base = rules_of({(("user", ""),): FIVE})
    marked = changed(base, [DomainMarks("d", rollout(10_000, {(("user", ""),): RuleContent(ONE)}))])
    assert marked.version.digest != base.version.digest
    further = changed(marked, [DomainMarks("d", rollout(100_000, {(("user", ""),): RuleContent(ONE)}))])
    assert further.version.digest not in (marked.version.digest, base.version.digest), "it decides otherwise"
    assert changed(further, [DomainMarks("d", NO_MARKS)]).version.digest == base.version.digest
    assert changed(further, [DomainMarks("d", NO_MARKS)]).marks() == {}
    assert changed(further, [Delete("d")]).domain("d") is None


def test_rules_that_come_by_a_rollout_are_known() -> None:
    """Their counts are kept apart like those of other rules."""
    staged: dict[Path, RuleContent | None] = {(("user", "ann"),): RuleContent(ONE)}
    marked = changed(rules_of({}), [DomainMarks("d", rollout(0, staged))])
    assert marked.has_rule("d", (("user", "ann"),))
    assert list(domain_of(marked).limits()) == [((("user", "ann"),), ONE)]
