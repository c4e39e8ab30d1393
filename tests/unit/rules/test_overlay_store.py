"""The overlay in a store of rules: what is in force, what is refused, what a restart brings back."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from headgate.limiter.limit import Algorithm, OnError
from headgate.limiter.scopes import LimitsOfRegion
from headgate.limiter.shadows import Shadows
from headgate.rules.compiling import compile_source
from headgate.rules.defaults import Defaults
from headgate.rules.describe import describe_rules
from headgate.rules.directory_feed import DirectoryFeed
from headgate.rules.pace import Pace
from headgate.rules.problems import RulesError
from headgate.rules.ruleset import RuleSet
from headgate.rules.source import OVERLAY, RulesSource, SourceFile, source_of
from headgate.rules.store import RuleStore

from tests.support.clock import ManualClock
from tests.unit.rules.support import rules_text
from tests.unit.rules.test_rules_acceptance import START_MS, HandFeed, bad, source

NO_SHADOWS = Shadows(lambda: 0)

RULES = {"a.yaml": rules_text("a", ("k", 10)), "b.yaml": rules_text("b", ("k", 10))}
CLOSED = "overlay:\n- on_error: closed\n"
BUCKET = "overlay:\n- algorithm: gcra\n  on_error: closed\n"
NOTHING = {"a.yaml": rules_text("a", ("k", 0)), "b.yaml": rules_text("b", ("k", 10))}
"""Rules that no bucket keeps: 0 denies always."""
MISTAKE = "overlay:\n- on_error: shut\n"


class Log:
    def __init__(self) -> None:
        self.events: list[str] = []

    def __getattr__(self, level: str) -> Any:
        return lambda event, **fields: self.events.append(event)


class Rig:
    """A store whose rules and overlay are given by hand; the first overlay comes from a directory."""

    def __init__(
        self,
        tmp_path: Path,
        rules: dict[str, str] | None,
        overlay: str | None,
        *,
        data_dir: Path | None = None,
        start_empty: bool = False,
        defaults: Defaults | None = None,
    ) -> None:
        directory = tmp_path / "overlay"
        directory.mkdir(exist_ok=True)
        if overlay is not None:
            (directory / "o.yaml").write_text(overlay)
        self.clock, self.log = ManualClock(START_MS), Log()
        self.kept: list[RuleSet] = []
        self.store = RuleStore(
            HandFeed(None if rules is None else source(rules)),
            clock=self.clock,
            overlay=None if overlay is None else DirectoryFeed(directory, clock=self.clock, layer=OVERLAY),
            defaults=defaults or Defaults(),
            data_dir=data_dir,
            start_empty=start_empty,
            logger=self.log,
            on_rules=self.kept.append,
        )
        self.store.load_initial()

    def take(self, rules: dict[str, str]) -> None:
        asyncio.run(self.store.take(source(rules)))

    def lay(self, overlay: str) -> None:
        file = SourceFile("o.yaml", overlay.encode(), OVERLAY + "o.yaml")
        asyncio.run(self.store.take_overlay(source_of([file]).files))

    @property
    def limits(self) -> dict[str, tuple[int, str, str]]:
        return {
            rule.domain: (rule.limit.requests_per_unit, rule.limit.algorithm.value, rule.limit.on_error.value)
            for rule in self.store.current.rules()
        }

    @property
    def problems(self) -> list[str]:
        refused = self.store.overlay.refused
        return [] if refused is None else [str(problem) for problem in refused.problems]


def test_a_change_of_the_overlay_alone_brings_a_new_set_into_force(tmp_path: Path) -> None:
    rig = Rig(tmp_path, RULES, CLOSED)
    first = rig.store.current.version
    assert rig.limits == {"a": (10, "sliding_window", "closed"), "b": (10, "sliding_window", "closed")}
    rig.lay(BUCKET)
    assert rig.limits == {"a": (10, "gcra", "closed"), "b": (10, "gcra", "closed")}
    second = rig.store.current.version
    assert second.counter == first.counter + 1
    assert second.digest != first.digest
    assert (rig.store.status.accepted, rig.store.status.in_sync, rig.store.status.source) == (2, True, "directory")
    rig.lay(BUCKET)
    assert rig.store.current.version == second
    rig.lay("overlay: []\n")
    assert rig.limits["a"] == (10, "sliding_window", "local")


def test_the_overlay_lies_over_rules_that_come_later(tmp_path: Path) -> None:
    rig = Rig(tmp_path, RULES, CLOSED)
    rig.take({**RULES, "c.yaml": rules_text("c", ("k", 3))})
    assert rig.limits["c"] == (3, "sliding_window", "closed")
    version = rig.store.current.version
    rig.take({**RULES, "c.yaml": rules_text("c", ("k", 3))})
    assert rig.store.current.version == version


def test_with_a_mistake_in_it_the_last_good_overlay_serves_on_and_rules_are_not_held_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path, RULES, CLOSED)
    rig.lay(MISTAKE)
    assert rig.problems == ["o.yaml:2: `on_error` must be one of local, open, closed, found `shut`"]
    assert rig.limits["a"] == (10, "sliding_window", "closed")
    assert rig.log.events[-2:] == ["overlay_refused", "overlay_problem"]
    rig.take({"a.yaml": rules_text("a", ("k", 11))})
    assert rig.limits == {"a": (11, "sliding_window", "closed")}
    assert (rig.store.status.in_sync, rig.store.status.rejected) == (True, 1)
    assert rig.problems != []
    rig.take({"a.yaml": rules_text("a", ("k", 11))})
    assert rig.problems != []
    rig.lay(BUCKET)
    assert (rig.problems, rig.limits) == ([], {"a": (11, "gcra", "closed")})


def test_an_overlay_that_makes_no_sense_with_a_rule_in_force_is_refused_whole(tmp_path: Path) -> None:
    rig = Rig(tmp_path, NOTHING, CLOSED)
    rig.lay(BUCKET)
    (problem,) = rig.problems
    assert problem.startswith("o.yaml:2: algorithm: gcra needs a `requests_per_unit` of at least 1")
    assert problem.endswith("; this lies over `a: k` at a.yaml:3")
    assert rig.limits == {"a": (0, "sliding_window", "closed"), "b": (10, "sliding_window", "closed")}
    # It is tried again with the next rules.
    rig.take(RULES)
    assert (rig.problems, rig.limits["a"]) == ([], (10, "gcra", "closed"))


def test_a_rule_that_the_overlay_makes_no_sense_with_goes_into_force_without_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path, RULES, BUCKET)
    rig.take(NOTHING)
    assert rig.limits == {"a": (0, "sliding_window", "local"), "b": (10, "gcra", "closed")}
    assert (rig.problems, len(rig.store.current.overlay.clashes)) == ([], 1)
    assert rig.log.events[-1] == "overlay_clash"
    # Another overlay with the same clash is no worse.
    rig.lay("overlay:\n- algorithm: gcra\n  on_error: open\n")
    assert (rig.problems, rig.limits["b"]) == ([], (10, "gcra", "open"))


def test_entries_that_name_nothing_are_warned_of_once_and_hold_nothing_back(tmp_path: Path) -> None:
    rig = Rig(tmp_path, RULES, CLOSED + "- domain: c\n  algorithm: gcra\n")
    assert rig.log.events.count("overlay_unmatched") == 1
    rig.take({"a.yaml": rules_text("a", ("k", 11))})
    assert rig.log.events.count("overlay_unmatched") == 1
    assert rig.limits["a"] == (11, "sliding_window", "closed")
    rig.take({**RULES, "c.yaml": rules_text("c", ("k", 3))})
    assert (rig.store.current.overlay.unmatched, rig.limits["c"]) == ((), (3, "gcra", "closed"))


def test_what_is_refused_of_the_rules_stays_refused_when_the_overlay_changes(tmp_path: Path) -> None:
    rig = Rig(tmp_path, RULES, CLOSED)
    rig.take({**RULES, "b.yaml": bad("b")})
    rig.lay(BUCKET)
    assert rig.limits == {"a": (10, "gcra", "closed"), "b": (10, "gcra", "closed")}
    assert ([item.domain for item in rig.store.status.refused], rig.store.status.in_sync) == (["b"], False)


def test_an_overlay_that_can_not_be_used_ends_a_start_without_a_last_good_one(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match="`on_error` must be one of local, open, closed"):
        Rig(tmp_path, RULES, MISTAKE)
    rig = Rig(tmp_path, RULES, MISTAKE, start_empty=True)
    assert (rig.limits["a"], len(rig.problems)) == ((10, "sliding_window", "local"), 1)
    (tmp_path / "overlay" / "o.yaml").unlink()
    with pytest.raises(RulesError, match=r"no overlay file \(.yaml or .yml\) in this directory"):
        RuleStore(
            HandFeed(source(RULES)),
            clock=rig.clock,
            overlay=DirectoryFeed(tmp_path / "overlay", clock=rig.clock, layer=OVERLAY),
        ).load_initial()


@pytest.mark.parametrize("rules", [RULES, None], ids=["with its rules", "before they have come"])
@pytest.mark.parametrize("overlay", [BUCKET, MISTAKE], ids=["with it", "with a mistake in it"])
def test_a_restart_serves_what_was_in_force(tmp_path: Path, rules: dict[str, str] | None, overlay: str) -> None:
    before = Rig(tmp_path, RULES, BUCKET, data_dir=tmp_path / "data")
    after = Rig(tmp_path, rules, overlay, data_dir=tmp_path / "data")
    assert after.limits == before.limits == {"a": (10, "gcra", "closed"), "b": (10, "gcra", "closed")}
    assert after.store.current.version.digest == before.store.current.version.digest
    origins = [[rule.origins for rule in rig.store.current.rules()] for rig in (before, after)]
    assert origins[0] == origins[1]
    assert set(origins[0][0]) == {"algorithm", "on_error"}
    assert bool(after.problems) == (overlay is MISTAKE)


def test_what_changed_during_a_restart_is_laid_over_the_last_good_rules(tmp_path: Path) -> None:
    Rig(tmp_path, RULES, CLOSED, data_dir=tmp_path / "data")
    other = Rig(tmp_path, None, BUCKET, data_dir=tmp_path / "data")
    assert (other.limits["a"], other.store.status.source) == ((10, "gcra", "closed"), "snapshot")
    defaults = Rig(tmp_path, None, "overlay: []", data_dir=tmp_path / "data", defaults=Defaults(Algorithm.FIXED_WINDOW))
    assert defaults.limits["a"] == (10, "fixed_window", "local")
    none = Rig(tmp_path, None, None, data_dir=tmp_path / "data")
    assert none.limits["a"] == (10, "sliding_window", "local")


def test_a_restart_with_an_overlay_that_clashes_keeps_the_last_good_one(tmp_path: Path) -> None:
    Rig(tmp_path, NOTHING, CLOSED, data_dir=tmp_path / "data")
    rig = Rig(tmp_path, NOTHING, BUCKET, data_dir=tmp_path / "data")
    assert rig.limits["b"] == (10, "sliding_window", "closed")
    assert (len(rig.problems), rig.store.status.source, rig.store.status.in_sync) == (1, "directory", True)


def test_before_any_rules_an_overlay_is_taken_and_makes_nothing_ready(tmp_path: Path) -> None:
    rig = Rig(tmp_path, None, CLOSED, data_dir=tmp_path / "data")
    rig.lay(BUCKET)
    assert (rig.store.status.source, rig.problems) == ("nothing", [])
    assert not (tmp_path / "data").exists()
    rig.take(RULES)
    assert rig.limits["a"] == (10, "gcra", "closed")


def test_whoever_keeps_the_text_of_a_set_keeps_what_lies_over_and_under_it(tmp_path: Path) -> None:
    rig = Rig(tmp_path, RULES, CLOSED, defaults=Defaults(Algorithm.GCRA, OnError.OPEN))
    (kept,) = rig.kept
    assert [file.name for file in kept.files()] == ["a.yaml", "b.yaml", "/overlay/o.yaml", "/defaults"]
    assert kept is rig.store.current
    # As the decision log reads it again: by the names alone.
    again = RulesSource(tuple(SourceFile(file.name, file.data, file.name) for file in kept.files()))
    rules = compile_source(again, Pace(rig.clock), merge_domains=False)
    assert rules.version.digest == kept.version.digest


def test_get_rules_shows_the_overlay_and_where_fields_come_from(tmp_path: Path) -> None:
    rig = Rig(tmp_path, RULES, CLOSED + "- domain: c\n  algorithm: gcra\n")
    described = describe_rules(rig.store, LimitsOfRegion(1), NO_SHADOWS, {})
    overlay = described["overlay"]
    assert (overlay["from"], overlay["in_sync"], overlay["entries"]) == (str(tmp_path / "overlay"), True, 2)
    assert overlay["unmatched"]["problems_total"] == 1
    assert described["rules"][0]["origins"] == {"on_error": f"overlay {tmp_path}/overlay/o.yaml:2"}
    rig.lay(MISTAKE)
    overlay = describe_rules(rig.store, LimitsOfRegion(1), NO_SHADOWS, {})["overlay"]
    assert (overlay["in_sync"], overlay["refused"]["problems_total"]) == (False, 1)
    assert describe_rules(Rig(tmp_path, RULES, None).store, LimitsOfRegion(1), NO_SHADOWS, {})["overlay"] is None
