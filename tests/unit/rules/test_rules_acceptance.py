"""Accepting by domain: a domain with a problem keeps its last good rules, and nobody else notices."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from headgate.clock import Clock
from headgate.rules import snapshot
from headgate.rules.feed import Feed, FeedKind, Outcome, Taker
from headgate.rules.problems import RulesError
from headgate.rules.ruleset import RuleSet
from headgate.rules.source import RulesSource, SourceFile, source_of
from headgate.rules.store import AcceptBy, RuleStore
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import ManualClock
from tests.unit.rules.support import rules_text

START_MS = 1_800_000_000_000
BROKEN = "    rate_limit: {unit: fortnight, requests_per_unit: 1}\n"


class Silent:
    def __getattr__(self, level: str) -> Any:
        return lambda event, **fields: None


class HandFeed(Feed):
    """Has what a test gives it."""

    kind: FeedKind = "directory"

    def __init__(self, start: RulesSource | None) -> None:
        super().__init__(START_MS / 1000)
        self.start = start

    def first(self) -> RulesSource | None:
        return self.start

    async def watch(self, taker: Taker) -> None:
        await asyncio.Event().wait()

    def describe(self) -> dict[str, Any]:
        return {"kind": self.kind, "from": "a test"}


def source(files: dict[str, str]) -> RulesSource:
    return source_of([SourceFile(name, text.encode(), name) for name, text in files.items()])


class Rig:
    """A store that is given sets by hand."""

    def __init__(
        self,
        files: dict[str, str] | None,
        *,
        data_dir: Path | None = None,
        merge: bool = False,
        accept: AcceptBy = "domain",
        clock: Clock | None = None,
    ) -> None:
        self.clock = clock or ManualClock(START_MS)
        self.kept: list[RuleSet] = []
        self.store = RuleStore(
            HandFeed(None if files is None else source(files)),
            clock=self.clock,
            data_dir=data_dir,
            merge_domains=merge,
            accept=accept,
            logger=Silent(),
            on_rules=self.kept.append,
        )
        self.store.load_initial()

    def take(self, files: dict[str, str]) -> Outcome:
        return asyncio.run(self.store.take(source(files)))

    @property
    def limits(self) -> dict[str, int]:
        return limits(self.store.current)

    @property
    def refused(self) -> list[str]:
        return [item.domain for item in self.store.status.refused]


def limits(rules: RuleSet) -> dict[str, int]:
    return {f"{rule.domain}:{rule.rule}": rule.limit.requests_per_unit for rule in rules.rules()}


def good(domain: str, requests: int, key: str = "k") -> str:
    return rules_text(domain, (key, requests))


def bad(domain: str) -> str:
    return f"domain: {domain}\ndescriptors:\n  - key: k\n{BROKEN}"


NO_DOMAIN = "descriptors: [\n"


def test_a_typo_of_one_team_does_not_hold_back_another() -> None:
    rig = Rig({"a.yaml": good("a", 1), "b.yaml": good("b", 1)})
    outcome = rig.take({"a.yaml": good("a", 2), "b.yaml": bad("b")})
    assert rig.limits == {"a:k": 2, "b:k": 1}
    (refused,) = outcome.refused
    assert (refused.domain, [(p.file, p.line) for p in refused.problems]) == ("b", [("b.yaml", 4)])
    status = rig.store.status
    assert (status.in_sync, status.accepted, status.rejected, status.source) == (False, 2, 1, "directory")
    assert outcome.version == rig.store.current.version
    rig.take({"a.yaml": good("a", 2), "b.yaml": good("b", 3)})
    assert rig.limits == {"a:k": 2, "b:k": 3}
    assert (rig.refused, rig.store.status.in_sync) == ([], True)


def test_asked_to_it_refuses_the_whole_set() -> None:
    rig = Rig({"a.yaml": good("a", 1), "b.yaml": good("b", 1)}, accept="all")
    before = rig.store.current
    assert [item.domain for item in rig.take({"a.yaml": good("a", 2), "b.yaml": bad("b")}).refused] == ["b"]
    assert rig.store.current is before
    assert not rig.store.status.in_sync


def test_a_domain_is_refused_since_it_was_first() -> None:
    clock = ManualClock(START_MS)
    rig = Rig({"a.yaml": good("a", 1), "b.yaml": good("b", 1)}, clock=clock)
    rig.take({"a.yaml": good("a", 1), "b.yaml": bad("b")})
    clock.advance(5000)
    rig.take({"a.yaml": bad("a"), "b.yaml": bad("b") + "\n"})
    assert [(item.domain, item.since) for item in rig.store.status.refused] == [
        ("a", START_MS / 1000 + 5),
        ("b", START_MS / 1000),
    ]
    clock.advance(5000)
    rig.take({"a.yaml": good("a", 7), "b.yaml": bad("b")})
    assert [(item.domain, item.since) for item in rig.store.status.refused] == [("b", START_MS / 1000)]


def test_a_file_without_a_readable_domain_keeps_the_one_that_it_gave() -> None:
    rig = Rig({"a.yaml": good("a", 1), "b.yaml": good("b", 1)})
    rig.take({"a.yaml": good("a", 2), "b.yaml": NO_DOMAIN})
    assert (rig.limits, rig.refused) == ({"a:k": 2, "b:k": 1}, ["b"])
    rig.take({"a.yaml": good("a", 3), "b.yaml": NO_DOMAIN, "c.yaml": NO_DOMAIN})
    assert (rig.limits, rig.refused) == ({"a:k": 3, "b:k": 1}, ["", "b"])


def test_a_file_that_breaks_off_belongs_to_the_domain_it_named() -> None:
    rig = Rig({"a.yaml": good("a", 1), "b.yaml": good("b", 1)})
    rig.take({"a.yaml": good("a", 2), "renamed.yaml": "domain: b\ndescriptors: [\n"})
    assert (rig.limits, rig.refused) == ({"a:k": 2, "b:k": 1}, ["b"])


def test_a_deleted_domain_goes_even_beside_a_broken_one() -> None:
    rig = Rig({"a.yaml": good("a", 1), "b.yaml": good("b", 1), "c.yaml": good("c", 1)})
    rig.take({"a.yaml": good("a", 1), "b.yaml": bad("b")})
    assert rig.limits == {"a:k": 1, "b:k": 1}
    rig.take({"a.yaml": good("a", 1)})
    assert (rig.limits, rig.refused) == ({"a:k": 1}, [])


def test_a_set_of_which_nothing_can_be_used_empties_nothing() -> None:
    rig = Rig({"a.yaml": good("a", 1)})
    rig.take({"b.yaml": bad("b")})
    assert (rig.limits, rig.refused) == ({"a:k": 1}, ["b"])


def test_a_domain_in_two_files_is_refused_and_keeps_its_one() -> None:
    rig = Rig({"a.yaml": good("a", 1), "b.yaml": good("b", 1)})
    rig.take({"a.yaml": good("a", 2), "b.yaml": good("b", 2), "c.yaml": good("b", 3)})
    assert (rig.limits, rig.refused) == ({"a:k": 2, "b:k": 1}, ["b"])


def test_a_merged_domain_keeps_all_its_files() -> None:
    rig = Rig({"a.yaml": good("d", 1), "b.yaml": good("d", 1, "j"), "c.yaml": good("e", 1)}, merge=True)
    rig.take({"a.yaml": good("d", 2), "b.yaml": bad("d"), "c.yaml": good("e", 2)})
    assert rig.limits == {"d:k": 1, "d:j": 1, "e:k": 2}


def test_problems_that_show_late_hold_back_their_domain_alone() -> None:
    """A shard key that splits counters is found after everything was read, beside other domains' problems."""
    split = (
        good("s", 2) + "  - {key: t, value: x*, share_threshold: true, rate_limit: {unit: day, requests_per_unit: 1}}\n"
    )
    rig = Rig({"a.yaml": good("a", 1), "b.yaml": good("b", 1), "s.yaml": good("s", 1)})
    rig.take({"a.yaml": good("a", 2), "b.yaml": bad("b"), "s.yaml": "shard_by: t\n" + split})
    assert (rig.limits, rig.refused) == ({"a:k": 2, "b:k": 1, "s:k": 1}, ["b", "s"])


def test_the_version_names_what_is_in_force() -> None:
    rig = Rig({"a.yaml": good("a", 1), "b.yaml": good("b", 1)})
    rig.take({"a.yaml": good("a", 2), "b.yaml": bad("b")})
    same = Rig({"a.yaml": good("a", 2), "b.yaml": good("b", 1)})
    assert rig.store.current.version.digest == same.store.current.version.digest
    assert rig.kept[-1].files() == same.kept[-1].files(), "the decision log keeps the text that decides"
    version = rig.store.current.version
    rig.take({"a.yaml": good("a", 2), "b.yaml": bad("b") + "# another\n"})
    assert rig.store.current.version == version


def test_two_files_of_one_name_are_in_force() -> None:
    """The file of a refused domain gives another domain now."""
    rig = Rig({"b.yaml": good("b", 1)})
    rig.take({"a.yaml": bad("b"), "b.yaml": good("c", 2)})
    assert (rig.limits, rig.refused) == ({"b:k": 1, "c:k": 2}, ["b"])
    rig.take({"a.yaml": good("b", 3), "b.yaml": good("c", 4)})
    assert rig.limits == {"b:k": 3, "c:k": 4}


def test_a_file_that_nobody_can_read_counts_for_every_domain_of_its_name() -> None:
    rig = Rig({"b.yaml": good("b", 1)})
    rig.take({"a.yaml": bad("b"), "b.yaml": good("c", 2)})
    rig.take({"a.yaml": good("a", 3), "b.yaml": NO_DOMAIN})
    assert (rig.limits, rig.refused) == ({"a:k": 3, "b:k": 1, "c:k": 2}, ["b", "c"])


# Starting


def test_a_restart_serves_the_last_good_rules_of_the_broken_domain(tmp_path: Path) -> None:
    rig = Rig({"a.yaml": good("a", 1), "b.yaml": good("b", 1)}, data_dir=tmp_path)
    rig.take({"a.yaml": good("a", 2), "b.yaml": bad("b")})
    assert limits(snapshot.load(tmp_path).rules) == {"a:k": 2, "b:k": 1}
    same = Rig({"a.yaml": good("a", 2), "b.yaml": bad("b")}, data_dir=tmp_path)
    assert (same.limits, same.refused, same.store.status.source) == ({"a:k": 2, "b:k": 1}, ["b"], "snapshot")
    newer = Rig({"a.yaml": good("a", 3), "b.yaml": bad("b")}, data_dir=tmp_path)
    assert (newer.limits, newer.refused, newer.store.status.source) == ({"a:k": 3, "b:k": 1}, ["b"], "directory")
    again = Rig({"a.yaml": good("a", 4), "b.yaml": NO_DOMAIN}, data_dir=tmp_path)
    assert (again.limits, again.refused) == ({"a:k": 4, "b:k": 1}, ["b"])
    assert again.store.current.version.counter == newer.store.current.version.counter + 1


def test_a_start_without_last_good_rules_serves_the_good_domains() -> None:
    rig = Rig({"a.yaml": good("a", 1), "b.yaml": bad("b")})
    assert (rig.limits, rig.refused, rig.store.status.in_sync) == ({"a:k": 1}, ["b"], False)


@pytest.mark.parametrize(
    ("files", "accept"), [({"b.yaml": bad("b")}, "domain"), ({"b.yaml": bad("b"), "a.yaml": good("a", 1)}, "all")]
)
def test_a_start_with_nothing_to_serve_fails(files: dict[str, str], accept: AcceptBy) -> None:
    with pytest.raises(RulesError):
        Rig(files, accept=accept)


def test_a_feed_that_has_nothing_yet_is_waited_for(tmp_path: Path) -> None:
    rig = Rig(None, data_dir=tmp_path)
    assert (rig.limits, rig.store.status.source, rig.store.status.in_sync) == ({}, "nothing", False)
    rig.take({"a.yaml": good("a", 1)})
    assert (rig.limits, rig.store.status.in_sync) == ({"a:k": 1}, True)
    later = Rig(None, data_dir=tmp_path)
    assert (later.limits, later.store.status.source) == ({"a:k": 1}, "snapshot")
    later.take({})
    assert (later.limits, later.store.status.source, later.store.status.in_sync) == ({}, "directory", True)


# Any edits, compared with a simple model

FILES = ["a.yaml", "b.yaml", "c.yaml"]


@dataclass
class Model:
    """The rules in force by domain, and the domain that each file in force gives, as one would say it."""

    limits: dict[str, int] = field(default_factory=dict)
    given: dict[str, str] = field(default_factory=dict)

    def take(self, files: dict[str, tuple[str, str, int]]) -> set[str]:
        """Files are (kind, domain, requests); return the refused domains."""
        domain_of = {
            name: domain if kind != "unreadable" else self._gave(name) for name, (kind, domain, _) in files.items()
        }
        refused = {
            domain
            for name, domain in domain_of.items()
            if files[name][0] != "good" or list(domain_of.values()).count(domain) > 1
        }
        limits, given = {}, {}
        for name, (_, _, requests) in files.items():
            if domain_of[name] not in refused:
                limits[domain_of[name]], given[domain_of[name]] = requests, name
        for domain in refused & self.limits.keys():
            limits[domain], given[domain] = self.limits[domain], self.given[domain]
        if limits or not refused:
            self.limits, self.given = limits, given
        return refused

    def _gave(self, name: str) -> str:
        return next((domain for domain, file in sorted(self.given.items()) if file == name), "")


FILE = st.tuples(
    st.sampled_from(["good", "good", "bad", "broken off", "unreadable"]), st.sampled_from("xyz"), st.integers(1, 3)
)
EDITS = st.lists(st.dictionaries(st.sampled_from(FILES), FILE), min_size=1, max_size=8)


def written(files: dict[str, tuple[str, str, int]]) -> dict[str, str]:
    def text(kind: str, domain: str, requests: int) -> str:
        texts = {"bad": bad(domain), "broken off": f"domain: {domain}\ndescriptors: [\n", "unreadable": NO_DOMAIN}
        return texts.get(kind) or good(domain, requests)

    return {name: text(*file) for name, file in files.items()}


def one_name_twice(model: Model) -> bool:
    return len(set(model.given.values())) < len(model.given)


@given(EDITS)
def test_any_edits_come_to_what_a_simple_model_says(edits: list[dict[str, tuple[str, str, int]]]) -> None:
    rig, model = Rig(None), Model()
    digests: dict[str, dict[str, int]] = {}
    for files in edits:
        if one_name_twice(model) and any(kind == "unreadable" for kind, _, _ in files.values()):
            return  # such a file counts for both domains; a test of its own says so
        refused = model.take(files)
        rig.take(written(files))
        assert rig.limits == {f"{domain}:k": requests for domain, requests in model.limits.items()}
        assert set(rig.refused) == refused
        assert rig.store.status.in_sync == (not refused)
        assert digests.setdefault(rig.store.current.version.digest, rig.limits) == rig.limits
