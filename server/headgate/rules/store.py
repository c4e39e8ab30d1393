"""The rules that are in force. Where they come from is a feed's matter (feed.py).

`current` is one reference: read it once per request. What a feed hands over is compiled
beside the serving loop and swapped in. A domain with a problem is refused, with every
problem named, and keeps the rules that it had (acceptance.py); the others go into force.
"""

import asyncio
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import structlog

from headgate.clock import Clock
from headgate.rules.acceptance import accepted, accepted_source, refused_domains, unread_of_no_domain
from headgate.rules.changes import changed
from headgate.rules.compiling import NOTHING, Compiled, compile_changed
from headgate.rules.defaults import PROGRAM, Defaults
from headgate.rules.directory_feed import DirectoryFeed
from headgate.rules.feed import ChangesOf, Feed, Outcome, RefusedDomain, Taker
from headgate.rules.marks import Marks
from headgate.rules.model import Version
from headgate.rules.on_disk import RulesOnDisk
from headgate.rules.overlay_state import Files, OverlayState, OverlayTaker, Tried, check_overlay, choose
from headgate.rules.pace import Pace
from headgate.rules.problems import OtherVersion, Problem, RulesError
from headgate.rules.ruleset import NO_RULES, RuleSet
from headgate.rules.snapshot import Snapshot
from headgate.rules.source import RulesSource
from headgate.rules.status import RuleStatus, SourceKind

LOGGED_PROBLEMS = 100
"""Log lines per refused change; the status holds all problems."""

_T = TypeVar("_T")

AcceptBy = Literal["domain", "all"]
"""The part of a set with problems that is refused: the domains that have them, or the whole set."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The rules to have in force from now on, what was compiled for them, and the problems by domain of the rest."""

    rules: RuleSet
    compiled: Compiled
    overlay: Files
    """The overlay that lies over them."""
    refused: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    overlay_problems: tuple[Problem, ...] = ()
    """Reasons why that is not the newest."""


def _fields_of(problems: Sequence[Problem]) -> list[dict[str, Any]]:
    """The fields of each problem's log line; of very many problems, those of the first."""
    return [{"file": one.file, "line": one.line, "reason": one.reason} for one in problems[:LOGGED_PROBLEMS]]


def _all_problems(refused: Iterable[RefusedDomain]) -> tuple[Problem, ...]:
    # A file that counts for several domains has its problems named once.
    return tuple(sorted({problem for item in refused for problem in item.problems}))


def _beside_overlay(marks: Mapping[str, Marks]) -> dict[str, Marks]:
    """Leave rollouts out: an overlay is laid over whole domains, and not over rules that are staged. Until a rollout is
    through, the rules in force decide here."""
    return {name: replace(item, rollout=None) for name, item in marks.items() if item.shadows}


class RuleStore:
    """Holds the rule set in force. Call `load_initial` once, then keep `watch` running to follow the feed."""

    def __init__(
        self,
        feed: Feed,
        *,
        clock: Clock,
        overlay: DirectoryFeed | None = None,
        defaults: Defaults = PROGRAM,
        data_dir: Path | None = None,
        merge_domains: bool = False,
        accept: AcceptBy = "domain",
        start_empty: bool = False,
        logger: Any = None,
        on_rules: Callable[[RuleSet], None] = lambda rules: None,
    ) -> None:
        """Make a store without rules. `on_rules` gets every set that comes into force, in the thread that reads."""
        self.feed = feed
        self.overlay = OverlayState(overlay)
        self.loading = False
        """True while a set is compiled: what is in force is not old, what is newer takes long."""
        self._defaults = defaults.to_file()
        self._clock = clock
        self._merge_domains = merge_domains
        self._accept_by = accept
        self._start_empty = start_empty
        self._on_rules = on_rules
        self._saved: Snapshot | None = None
        """The last good set, while the first one is judged."""
        self._compiled = NOTHING
        self._restored = False
        self._log = logger if logger is not None else structlog.get_logger("headgate.rules")
        self._disk = (
            None
            if data_dir is None
            else RulesOnDisk(data_dir, merge_domains=merge_domains, clock=clock, logger=self._log)
        )
        self._stop = threading.Event()
        self._executor: ThreadPoolExecutor | None = None
        self._changing = asyncio.Lock()
        self._status: RuleStatus | None = None
        self.current: RuleSet = NO_RULES

    @property
    def status(self) -> RuleStatus:
        """State of the rules in force, with the problems of the last set that was refused."""
        if self._status is None:
            raise RuntimeError("load_initial() comes first")
        return self._status

    # Starting

    def load_initial(self) -> RuleSet:
        """Load the feed's rules, or, if they can't be used or have not come yet, the last good ones from the snapshot.

        Unusable rules are logged as an error. Raises `RulesError` when there are no last good ones either, unless it
        may start empty. A feed that has nothing yet is waited for: with the last good rules, else with none.
        """
        # Domains need not be compiled again where their files are the same.
        self._saved = None if self._disk is None else self._disk.load(self._pace(polite=False).breathe)
        self._offer_first_overlay()
        try:
            source = self.feed.first()
            if source is None:
                self._begin_without_feed()
            else:
                self._settle(self._judge_first(source))
        except RulesError as error:
            if not self._restore() and not self._start_empty:
                raise
            self._begin_without_feed()
            self.cannot_read(error)
        self._saved = None
        return self.current

    def _begin_without_feed(self) -> None:
        """Serve the last good rules, under the overlay of today, or none."""
        restored = self._restore(waiting=True)
        self._accept(self.current, "snapshot" if restored else "nothing")
        if not restored:
            self.overlay.in_force = self.overlay.offered
            return
        try:
            self._settle_overlay(self._lay_again(self._pace(polite=False)))
        except RulesError as error:
            # Of another version, or under other defaults: they serve as they were compiled.
            self._log.error("rules_not_laid_again", problems=[str(problem) for problem in error.problems])

    def _offer_first_overlay(self) -> None:
        """Read the overlay. Raises `RulesError` if it can't be used, there is no last good one, and there must be."""
        if self.overlay.feed is None:
            self.overlay.offered = ()
            return
        try:
            files = self.overlay.feed.first().files
            check_overlay(files)
            self.overlay.offered = files
        except RulesError as error:
            if not self._restore() and not self._start_empty:
                raise
            self.refuse_overlay(error.problems)

    def _restore(self, *, waiting: bool = False) -> bool:
        """Bring back the last good set, at the start and once; false if there is none. `waiting`: nothing is wrong, the
        feed has nothing yet."""
        saved = self._saved
        if self._restored or saved is None:
            return self._restored
        log = self._log.info if waiting else self._log.error
        log(
            "serving_last_good_rules",
            feed=self.feed.kind,
            place=str(self.feed.describe()["from"]),
            version=str(saved.rules.version),
            saved_ms=saved.saved_ms,
        )
        source = RulesSource(tuple(saved.rules.files()))
        self.current, self._restored = saved.rules, True
        self.overlay.in_force = source.overlay
        self.feed.restored(source.rules)
        return True

    def _judge_first(self, source: RulesSource) -> _Verdict:
        """Judge the set of the start by the last good one, which steps in where that can't be used."""
        saved, pace = self._saved, self._pace(polite=False)
        rules = self.current if saved is None else saved.rules
        verdict = self._judge(source, rules, pace)
        if verdict.rules is rules and rules is not NO_RULES:
            self._on_rules(rules)
        return verdict

    # Judging, in the thread that reads

    def _judge(self, source: RulesSource, in_force: RuleSet, pace: Pace) -> _Verdict:
        """Compile what was handed over; raises `RulesError` if nothing of it can be used, and nothing is in force."""
        if unread := unread_of_no_domain(source, in_force):
            raise RulesError(unread, transient=True)
        compiled = self._under(self.overlay.candidates[0], source, in_force, pace).compiled
        refused = refused_domains(source, compiled, in_force)
        if not refused:
            return self._laid(source, in_force, compiled, pace)
        if self._status is None:
            self._restore()
        part = accepted_source(source, compiled, in_force, refused)
        if self._accept_by == "all" or not part.files:
            if self._status is None and not self._restored:
                raise RulesError(compiled.problems())
            return _Verdict(in_force, compiled, self.overlay.in_force or (), refused)
        return replace(self._laid(part, in_force, compiled, pace, keep=refused), refused=refused)

    def _laid(
        self, source: RulesSource, in_force: RuleSet, before: Compiled, pace: Pace, *, keep: Collection[str] = ()
    ) -> _Verdict:
        """Make a set without problems, under the newest overlay that makes sense with it, and save it.

        `keep` names domains that stay though they are in no file.
        """
        self._compiled = before
        tried = [self._under(self.overlay.candidates[0], source, in_force, pace)]
        if tried[0].compiled.overlay.clashes:
            if self._status is None:
                self._restore()  # for the last good overlay
            tried += [self._under(overlay, source, in_force, pace) for overlay in self.overlay.candidates[1:]]
        chosen = choose(tried)
        problems = () if chosen is tried[0] else tried[0].compiled.overlay.clashes
        layers = (*chosen.overlay, *self._defaults)
        marks = _beside_overlay(source.marks) if chosen.overlay else source.marks
        rules = accepted(chosen.compiled, in_force, layers, marks, keep)
        if rules is not in_force:
            self._bring(rules, pace)
        return _Verdict(rules, before, chosen.overlay, overlay_problems=problems)

    def _under(self, overlay: Files, source: RulesSource, in_force: RuleSet, pace: Pace) -> Tried:
        """Compile what is not known of a source under an overlay, and under the defaults."""
        laid = source.under((*overlay, *self._defaults))
        same_setting = self._saved is None or self._saved.merge_domains == self._merge_domains
        known = in_force if same_setting else NO_RULES
        merge = self._merge_domains
        return Tried(overlay, compile_changed(laid, self._compiled, known, pace, merge_domains=merge))

    def _lay_again(self, pace: Pace) -> _Verdict:
        """Lay the overlay over the rules in force, whatever the feed has by now."""
        files = tuple(file for file in self.current.files() if not file.is_layer)
        source = RulesSource(files, self.current.marks())
        return self._laid(source, self.current, self._compiled, pace, keep=self.current.domains)

    def _bring(self, rules: RuleSet, pace: Pace) -> None:
        """Save rules that come into force, and tell who keeps their text."""
        if self._disk is not None:
            self._disk.save(rules, pace.breathe)
        self._on_rules(rules)

    # Following

    async def watch(self) -> None:
        """Follow the feed until cancelled."""
        self._stop = threading.Event()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="headgate-rules")
        follow = [self._follow(self.feed, self)]
        if self.overlay.feed is not None:
            follow.append(self._follow(self.overlay.feed, OverlayTaker(self)))
        if self._disk is not None:
            self._disk.begin()
        self._rewrite_due()
        try:
            await asyncio.gather(*follow)
        finally:
            self._stop.set()
            self._executor.shutdown(wait=False, cancel_futures=True)
            if self._disk is not None:
                self._disk.end()

    async def _follow(self, feed: Feed, taker: Taker) -> None:
        while True:
            try:
                await feed.watch(taker)
            except Exception:
                # Whatever it was, the old set serves on and the next change is looked at again.
                self._log.exception("rules_watch_failed")
            await asyncio.sleep(1.0)

    async def take(self, source: RulesSource) -> Outcome:
        """Check what the feed handed over beside the serving loop, and bring into force what is good of it."""
        async with self._changing:
            try:
                self._settle(await self._aside(partial(self._judge, source, self.current)))
            except RulesError as error:
                self.cannot_read(error)
        return Outcome(self.current.version, self.status.refused)

    async def change(self, make: Callable[[], ChangesOf | None]) -> Outcome | None:
        """Make changes of single rules beside the serving loop, and bring the set that they lead to into force."""
        async with self._changing:
            verdict = await self._aside(partial(self._changed, make, self.current))
            if verdict is None:
                return None
            self._settle(verdict)
        self._rewrite_due()
        return Outcome(self.current.version)

    def _changed(self, make: Callable[[], ChangesOf | None], before: RuleSet, _pace: Pace) -> _Verdict | None:
        changes = make()
        if changes is None:
            return None
        if self.overlay.feed is not None:
            raise OtherVersion("an overlay lies over the rules, and is laid over whole domains")
        if before.version.digest != changes.before:
            raise OtherVersion(f"changes of version {changes.before}, and {before.version.digest} is in force")
        rules = changed(before, changes.changes)
        if rules.version.digest != changes.after:
            raise OtherVersion(f"changes that lead to {rules.version.digest}, and not to {changes.after} as they say")
        if self._disk is not None:
            self._disk.append(rules, before, changes.changes)
        return _Verdict(rules, NOTHING, self.overlay.in_force or ())

    def _rewrite_due(self) -> None:
        if self._disk is not None:
            self._disk.rewrite_due(self._pace(polite=True).breathe)

    async def take_overlay(self, files: Files) -> Version:
        """Check an overlay beside the serving loop, and lay it over the rules in force."""
        async with self._changing:
            try:
                check_overlay(files)
                self.overlay.offered = files
                if self.status.source == "nothing":
                    self.overlay.in_force, self.overlay.refused = files, None
                else:
                    self._settle_overlay(await self._aside(self._lay_again))
            except RulesError as error:
                self.refuse_overlay(error.problems)
        return self.current.version

    async def _aside(self, judge: Callable[[Pace], _T]) -> _T:
        """Judge in the thread that reads, beside the serving loop."""
        self.loading = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, judge, self._pace(polite=True))
        finally:
            self.loading = False

    def cannot_read(self, error: RulesError) -> None:
        """Note that the feed can't get at its rules: wrong where they are, or not to be had for a while."""
        if not error.transient:
            self._refuse(error.problems, self.status.refused)
        elif self.status.in_sync or error.problems != self.status.last_error:
            self._note_not_delivered(error.problems)

    # Outcomes

    def _settle(self, verdict: _Verdict) -> None:
        """Bring a verdict's rules into force, and say what was refused."""
        refused = self._refused_since(verdict.refused)
        self._compiled = verdict.compiled
        if self._status is None and verdict.rules is self.current and verdict.refused:
            self._accept(verdict.rules, "snapshot")
        elif self._status is None or verdict.rules.version is not self.current.version:
            self._accept(verdict.rules, self.feed.kind)
        else:
            # The same content, perhaps at other places of the files.
            self.current = verdict.rules
            if not verdict.refused:
                self._unchanged()
        self._note_overlay(verdict)
        if verdict.refused:
            self._refuse(_all_problems(refused), refused)

    def _settle_overlay(self, verdict: _Verdict) -> None:
        """Bring the rules in force under another overlay; what the feed has, and what was refused of it, stays."""
        before = self.status
        if verdict.rules is not self.current:
            self._accept(verdict.rules, before.source)
            accepted = before.accepted + 1
            self._status = replace(self.status, in_sync=before.in_sync, refused=before.refused, accepted=accepted)
        self._note_overlay(verdict)

    def _note_overlay(self, verdict: _Verdict) -> None:
        self.overlay.in_force = verdict.overlay
        if verdict.overlay_problems:
            self._note_refused_overlay(verdict.overlay_problems)
        elif verdict.overlay == self.overlay.offered:
            self.overlay.refused = None

    def refuse_overlay(self, problems: tuple[Problem, ...]) -> None:
        """Note why the overlay that its directory has can't be used."""
        self.overlay.offered = None
        self._note_refused_overlay(problems)

    def _note_refused_overlay(self, problems: tuple[Problem, ...]) -> None:
        if not self.overlay.refuse(problems, self._now()):
            return
        if self._status is not None:
            self._status = replace(self._status, rejected=self._status.rejected + 1)
        self._log.error("overlay_refused", problems=len(problems), version=str(self.current.version))
        for fields in _fields_of(problems):
            self._log.error("overlay_problem", **fields)

    def _refused_since(self, refused: Mapping[str, tuple[Problem, ...]]) -> tuple[RefusedDomain, ...]:
        """Refused domains in the order of their names; one that was refused already is so since then."""
        now = self._now()
        before = {item.domain: item.since for item in (self._status.refused if self._status else ())}
        return tuple(
            RefusedDomain(domain, problems, before.get(domain, now)) for domain, problems in sorted(refused.items())
        )

    def _accept(self, rules: RuleSet, source: SourceKind) -> None:
        said = {*self.current.overlay.clashes, *self.current.overlay.unmatched}
        self.current = rules
        before = self._status
        self._status = RuleStatus(
            version=rules.version,
            loaded_at=self._now(),
            source=source,
            in_sync=source == self.feed.kind,
            rules=rules.count,
            domains=len(rules.domains),
            last_error=before.last_error if before else (),
            last_error_at=before.last_error_at if before else None,
            accepted=(before.accepted if before else 0) + (source == self.feed.kind),
            rejected=before.rejected if before else 0,
        )
        self._log.info(
            "rules_in_force",
            version=str(rules.version),
            source=source,
            rules=rules.count,
            domains=len(rules.domains),
        )
        for fields in _fields_of([item for item in rules.overlay.clashes if item not in said]):
            self._log.error("overlay_clash", **fields)
        for fields in _fields_of([item for item in rules.overlay.unmatched if item not in said]):
            self._log.warning("overlay_unmatched", **fields)

    def _unchanged(self) -> None:
        """The feed says what is in force already: after a touch, or a bad change that was taken back."""
        self._status = replace(self.status, in_sync=True, source=self.feed.kind, refused=())
        self._log.info("rules_unchanged", version=str(self.current.version))

    def _refuse(self, problems: tuple[Problem, ...], refused: tuple[RefusedDomain, ...]) -> None:
        self._behind(problems)
        self._status = replace(self.status, refused=refused, rejected=self.status.rejected + 1)
        self._log.error(
            "rules_refused",
            problems=len(problems),
            domains=[item.domain for item in refused[:LOGGED_PROBLEMS]],
            version=str(self.current.version),
        )
        for fields in _fields_of(problems):
            self._log.error("rules_problem", **fields)

    def _note_not_delivered(self, problems: tuple[Problem, ...]) -> None:
        """Nothing was refused: what there is could not be had, and whatever is in force serves on."""
        self._behind(problems)
        self._log.warning("rules_not_delivered", problems=len(problems), version=str(self.current.version))
        for fields in _fields_of(problems):
            self._log.warning("rules_problem", **fields)

    def _behind(self, problems: tuple[Problem, ...]) -> None:
        self._status = replace(self.status, in_sync=False, last_error=problems, last_error_at=self._now())

    def _pace(self, *, polite: bool) -> Pace:
        return Pace(self._clock, polite=polite, progress=self._progress, stopped=self._stop.is_set)

    def _progress(self, file: str, rules: int, share: float) -> None:
        self._log.info("rules_loading", file=file, rules=rules, percent=round(100 * share))

    def _now(self) -> float:
        return self._clock.now_ms() / 1000
