"""The rules that are in force. Where they come from is a feed's matter (feed.py).

`current` is one reference: read it once per request. What a feed hands over is compiled
beside the serving loop and swapped in. A domain with a problem is refused, with every
problem named, and keeps the rules that it had (acceptance.py); the others go into force.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import structlog

from headgate.clock import Clock
from headgate.rules import snapshot
from headgate.rules.acceptance import KeptFile, accepted_files, keep, keep_layers, refused_domains
from headgate.rules.defaults import PROGRAM, Defaults
from headgate.rules.directory import compile_source
from headgate.rules.directory_feed import DirectoryFeed
from headgate.rules.feed import Feed, Outcome, RefusedDomain, Taker
from headgate.rules.model import Version
from headgate.rules.overlay_state import Files, OverlayState, OverlayTaker, Tried, check_overlay, choose
from headgate.rules.pace import Pace
from headgate.rules.problems import NoSnapshot, OtherSnapshot, Problem, RulesError, SnapshotError
from headgate.rules.ruleset import RuleSet
from headgate.rules.source import RulesSource, source_of
from headgate.rules.status import RuleStatus, SourceKind

LOGGED_PROBLEMS = 100
"""Log lines per refused change; the status holds all problems."""

AcceptBy = Literal["domain", "all"]
"""The part of a set with problems that is refused: the domains that have them, or the whole set."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The rules to have in force from now on, their text, and the problems by domain of what was refused."""

    rules: RuleSet
    files: tuple[KeptFile, ...]
    overlay: Files
    """The overlay that lies over them."""
    refused: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)
    overlay_problems: tuple[Problem, ...] = ()
    """Reasons why that is not the newest."""


def _all_problems(refused: Iterable[RefusedDomain]) -> tuple[Problem, ...]:
    # A file that counts for several domains has its problems named once.
    return tuple(sorted({problem for item in refused for problem in item.problems}))


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
        on_source: Callable[[RulesSource], None] = lambda source: None,
    ) -> None:
        """Make a store without rules. `on_source` gets the files of every set that comes into force, in the thread that
        reads.
        """
        self.feed = feed
        self.overlay = OverlayState(overlay)
        self._defaults = defaults.to_file()
        self._clock = clock
        self._data_dir = data_dir
        self._merge_domains = merge_domains
        self._accept_by = accept
        self._start_empty = start_empty
        self._on_source = on_source
        self._files: tuple[KeptFile, ...] = ()
        self._restored: bool | None = None
        self._log = logger if logger is not None else structlog.get_logger("headgate.rules")
        self._stop = threading.Event()
        self._executor: ThreadPoolExecutor | None = None
        self._changing = asyncio.Lock()
        self._status: RuleStatus | None = None
        self.current: RuleSet = RuleSet({}, (), Version(0, source_of((), merge_domains=merge_domains).digest), 0)

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
        self._offer_first_overlay()
        try:
            source = self.feed.first()
            if source is None:
                self._begin_without_feed()
            else:
                self._settle(self._judge(source, self._pace(polite=False)))
        except RulesError as error:
            if not self._restore() and not self._start_empty:
                raise
            self._begin_without_feed()
            self._refuse(error.problems, self.status.refused)
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
        if self._data_dir is None or self._restored is not None:
            return bool(self._restored)
        self._restored = False
        try:
            saved = snapshot.load(self._data_dir)
        except SnapshotError as missing:
            self._log.warning("no_last_good_rules", reason=str(missing))
            return False
        log = self._log.info if waiting else self._log.error
        log(
            "serving_last_good_rules",
            feed=self.feed.kind,
            place=str(self.feed.describe()["from"]),
            version=str(saved.rules.version),
            saved_ms=saved.saved_ms,
        )
        files = [file.unpack() for file in saved.files]
        self.current, self._files = saved.rules, tuple(file for file in saved.files if not file.is_layer)
        self.overlay.in_force = RulesSource(tuple(files), "").overlay
        self.feed.restored([file for file in files if not file.is_layer])
        self._restored = True
        return True

    # Judging, in the thread that reads

    def _judge(self, source: RulesSource, pace: Pace) -> _Verdict:
        """Compile what was handed over; raises `RulesError` if nothing of it can be used."""
        if self._status is None and (found := self._compiled(source, pace)) is not None:
            return found
        try:
            return self._new(source, pace)
        except RulesError as error:
            if self._status is None:
                self._restore()
            return self._accepted_part(source, error, pace)

    def _accepted_part(self, source: RulesSource, error: RulesError, pace: Pace) -> _Verdict:
        """Judge a set with problems: the good domains of it, and the last good rules of the others."""
        refused = refused_domains(source, error, self._files)
        files = [] if self._accept_by == "all" else accepted_files(source, error, self._files, refused)
        if not files:
            return replace(self._as_it_is(), rules=self._current_or_raise(error), refused=refused)
        part = source_of(files, merge_domains=self._merge_domains)
        return replace(self._new(part, pace), refused=refused)

    def _current_or_raise(self, error: RulesError) -> RuleSet:
        """Return the set that serves on, if there is one: at the start there may be none."""
        if self._status is None and not self._restored:
            raise error
        return self.current

    def _new(self, source: RulesSource, pace: Pace) -> _Verdict:
        """Compile a set under the newest overlay that makes sense with it; raises `RulesError`."""
        tried = [self._under(self.overlay.candidates[0], source, pace)]
        if tried[0].rules.overlay.clashes:
            if self._status is None:
                self._restore()  # for the last good overlay
            tried += [self._under(overlay, source, pace) for overlay in self.overlay.candidates[1:]]
        chosen = choose(tried)
        problems = () if chosen is tried[0] else tried[0].rules.overlay.clashes
        if chosen.rules is self.current:
            return replace(self._as_it_is(), overlay_problems=problems)
        files = keep(source, chosen.rules.file_domains)
        self._save(chosen.rules, (*files, *keep_layers(chosen.source)), pace)
        self._on_source(chosen.source)
        return _Verdict(chosen.rules, files, chosen.overlay, overlay_problems=problems)

    def _under(self, overlay: Files, source: RulesSource, pace: Pace) -> Tried:
        laid = source.under((*overlay, *self._defaults))
        if laid.digest == self.current.version.digest:
            return Tried(overlay, laid, self.current)
        version = Version(self.current.version.counter + 1, laid.digest)
        return Tried(overlay, laid, compile_source(laid, version, pace, merge_domains=self._merge_domains))

    def _lay_again(self, pace: Pace) -> _Verdict:
        """Lay the overlay over the rules in force, whatever the feed has by now."""
        files = [file.unpack() for file in self._files]
        return self._new(source_of(files, merge_domains=self._merge_domains), pace)

    def _as_it_is(self) -> _Verdict:
        return _Verdict(self.current, self._files, self.overlay.in_force or ())

    def _compiled(self, source: RulesSource, pace: Pace) -> _Verdict | None:
        """The snapshot of exactly these files, if there is one: no need to read a million rules' YAML again."""
        if self._data_dir is None:
            return None
        overlay = self.overlay.candidates[0]
        laid = source.under((*overlay, *self._defaults))
        try:
            saved = snapshot.load(self._data_dir, pace.breathe, only_digest=laid.digest)
        except (NoSnapshot, OtherSnapshot) as error:
            self._log.debug("rules_snapshot_not_used", reason=str(error))
            return None
        except SnapshotError as error:
            # It is compiled and saved again; the log says why the file was refused.
            self._log.warning("rules_snapshot_not_used", reason=str(error))
            return None
        self._on_source(laid)
        return _Verdict(saved.rules, tuple(file for file in saved.files if not file.is_layer), overlay)

    # Following

    async def watch(self) -> None:
        """Follow the feed until cancelled."""
        self._stop = threading.Event()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="headgate-rules")
        follow = [self._follow(self.feed, self)]
        if self.overlay.feed is not None:
            follow.append(self._follow(self.overlay.feed, OverlayTaker(self)))
        try:
            await asyncio.gather(*follow)
        finally:
            self._stop.set()
            self._executor.shutdown(wait=False, cancel_futures=True)

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
            if source.under((*(self.overlay.in_force or ()), *self._defaults)).digest == self.current.version.digest:
                self._settle(self._as_it_is())
            else:
                self._settle(await self._aside(partial(self._judge, source)))
        return Outcome(self.current.version, self.status.refused)

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

    async def _aside(self, judge: Callable[[Pace], _Verdict]) -> _Verdict:
        """Judge in the thread that reads, beside the serving loop."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, judge, self._pace(polite=True))

    def cannot_read(self, error: RulesError) -> None:
        """Note that the feed can't get at its rules."""
        if not error.transient or self.status.in_sync or error.problems != self.status.last_error:
            self._refuse(error.problems, self.status.refused)

    # Outcomes

    def _settle(self, verdict: _Verdict) -> None:
        """Bring a verdict's rules into force, and say what was refused."""
        refused = self._refused_since(verdict.refused)
        self._files = verdict.files
        if self._status is None and verdict.rules is self.current and verdict.refused:
            self._accept(verdict.rules, "snapshot")
        elif self._status is None or verdict.rules is not self.current:
            self._accept(verdict.rules, self.feed.kind)
        elif not verdict.refused:
            self._unchanged()
        self._note_overlay(verdict)
        if verdict.refused:
            self._refuse(_all_problems(refused), refused)

    def _settle_overlay(self, verdict: _Verdict) -> None:
        """Bring the rules in force under another overlay; what the feed has, and what was refused of it, stays."""
        before = self.status
        self._files = verdict.files
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
        self._log_problems("overlay_problem", problems)

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
        self._log_problems("overlay_clash", [item for item in rules.overlay.clashes if item not in said])
        for problem in [item for item in rules.overlay.unmatched if item not in said][:LOGGED_PROBLEMS]:
            self._log.warning("overlay_unmatched", file=problem.file, line=problem.line, reason=problem.reason)

    def _unchanged(self) -> None:
        """The feed says what is in force already: after a touch, or a bad change that was taken back."""
        self._status = replace(self.status, in_sync=True, source=self.feed.kind, refused=())
        self._log.info("rules_unchanged", version=str(self.current.version))

    def _refuse(self, problems: tuple[Problem, ...], refused: tuple[RefusedDomain, ...]) -> None:
        self._status = replace(
            self.status,
            in_sync=False,
            refused=refused,
            last_error=problems,
            last_error_at=self._now(),
            rejected=self.status.rejected + 1,
        )
        self._log.error(
            "rules_refused",
            problems=len(problems),
            domains=[item.domain for item in refused[:LOGGED_PROBLEMS]],
            version=str(self.current.version),
        )
        self._log_problems("rules_problem", problems)

    def _log_problems(self, event: str, problems: Sequence[Problem]) -> None:
        for problem in problems[:LOGGED_PROBLEMS]:
            self._log.error(event, file=problem.file, line=problem.line, reason=problem.reason)

    def _save(self, rules: RuleSet, files: tuple[KeptFile, ...], pace: Pace) -> None:
        if self._data_dir is None:
            return
        try:
            snapshot.save(rules, self._data_dir, self._clock.now_ms(), pace.breathe, files)
        except OSError as error:
            self._log.error("rules_not_saved", data_dir=str(self._data_dir), reason=str(error))

    def _pace(self, *, polite: bool) -> Pace:
        return Pace(self._clock, polite=polite, progress=self._progress, stopped=self._stop.is_set)

    def _progress(self, file: str, rules: int, share: float) -> None:
        self._log.info("rules_loading", file=file, rules=rules, percent=round(100 * share))

    def _now(self) -> float:
        return self._clock.now_ms() / 1000
