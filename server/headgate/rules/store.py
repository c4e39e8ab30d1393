"""The rules that are in force. Where they come from is a feed's matter (feed.py).

`current` is one reference: read it once per request. What a feed hands over is compiled
beside the serving loop and swapped in. A domain with a problem is refused, with every
problem named, and keeps the rules that it had (acceptance.py); the others go into force.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import structlog

from headgate.clock import Clock
from headgate.rules import snapshot
from headgate.rules.acceptance import accepted, refused_domains, unread_of_no_domain
from headgate.rules.changes import changed
from headgate.rules.compiling import NOTHING, Compiled, compile_changed
from headgate.rules.feed import ChangesOf, Feed, FeedKind, Outcome, RefusedDomain
from headgate.rules.model import Version
from headgate.rules.pace import Pace
from headgate.rules.problems import NoSnapshot, OtherVersion, Problem, RulesError, SnapshotError
from headgate.rules.ruleset import NO_RULES, RuleSet
from headgate.rules.snapshot import Snapshot, SnapshotWriter
from headgate.rules.source import RulesSource

LOGGED_PROBLEMS = 100
"""Log lines per refused change; the status holds all problems."""

T = TypeVar("T")

SourceKind = Literal[FeedKind, "snapshot", "nothing"]
"""`snapshot`: the last good rules, while the feed's could not be used since the start; `nothing`: none came yet."""


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """The state of the rules for operators: which version serves, since when, and what was refused last."""

    version: Version
    loaded_at: float
    """Unix seconds."""
    source: SourceKind
    in_sync: bool
    """True if the rules in force are those that the feed has."""
    rules: int
    domains: int
    last_error: tuple[Problem, ...] = ()
    last_error_at: float | None = None
    accepted: int = 0
    rejected: int = 0
    refused: tuple[RefusedDomain, ...] = ()
    """Domains whose rules of the feed are not in force, because of problems."""


AcceptBy = Literal["domain", "all"]
"""The part of a set with problems that is refused: the domains that have them, or the whole set."""


@dataclass(frozen=True, slots=True)
class _Verdict:
    """The rules to have in force from now on, what was compiled for them, and the problems by domain of the rest."""

    rules: RuleSet
    compiled: Compiled
    refused: Mapping[str, tuple[Problem, ...]] = field(default_factory=dict)


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
        data_dir: Path | None = None,
        merge_domains: bool = False,
        accept: AcceptBy = "domain",
        start_empty: bool = False,
        logger: Any = None,
        on_rules: Callable[[RuleSet], None] = lambda rules: None,
    ) -> None:
        """Make a store without rules. `on_rules` gets every set that comes into force, in the thread that reads."""
        self.feed = feed
        self.loading = False
        """True while a set is compiled: what is in force is not old, what is newer takes long."""
        self._clock = clock
        self._data_dir = data_dir
        self._merge_domains = merge_domains
        self._accept_by = accept
        self._start_empty = start_empty
        self._on_rules = on_rules
        self._writer = None if data_dir is None else SnapshotWriter(data_dir, merge_domains=merge_domains)
        self._compiled = NOTHING
        self._restored = False
        self._log = logger if logger is not None else structlog.get_logger("headgate.rules")
        self._stop = threading.Event()
        self._executor: ThreadPoolExecutor | None = None
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
        saved = self._load_saved()
        try:
            source = self.feed.first()
            if source is None:
                self._serve_saved(saved)
            else:
                self._settle(self._judge_first(source, saved))
        except RulesError as error:
            if saved is None and not self._start_empty:
                raise
            self._serve_saved(saved)
            self._refuse(error.problems, self.status.refused)
        return self.current

    def _load_saved(self) -> Snapshot | None:
        """Read the last good set, whose domains need not be compiled again where their files are the same."""
        if self._data_dir is None or self._writer is None:
            return None
        try:
            saved = snapshot.load(self._data_dir, self._pace(polite=False).breathe)
        except NoSnapshot as missing:
            self._log.debug("no_last_good_rules", reason=str(missing))
            return None
        except SnapshotError as error:
            # It is saved again when rules are in force; the log says why the file was refused.
            self._log.warning("rules_snapshot_not_used", reason=str(error))
            return None
        self._writer.loaded(saved.rules)
        return saved

    def _serve_saved(self, saved: Snapshot | None) -> None:
        if saved is None:
            self._accept(self.current, "nothing")
            return
        self._restore(saved)
        self._accept(saved.rules, "snapshot")

    def _restore(self, saved: Snapshot) -> None:
        """Bring back the last good set, and say so."""
        self._log.error(
            "serving_last_good_rules",
            feed=self.feed.kind,
            place=str(self.feed.describe()["from"]),
            version=str(saved.rules.version),
            saved_ms=saved.saved_ms,
        )
        self.current, self._restored = saved.rules, True
        self.feed.restored(saved.rules.files())

    def _judge_first(self, source: RulesSource, saved: Snapshot | None) -> _Verdict:
        """Judge the set of the start: by the last good one, which steps in where that can't be used."""
        rules = self.current if saved is None else saved.rules
        known = NO_RULES if saved is None or saved.merge_domains != self._merge_domains else rules
        verdict = self._judge(source, rules, known, self._pace(polite=False))
        if verdict.rules is rules:
            self._on_rules(rules)
        if verdict.refused and saved is not None:
            self._restore(saved)
        return verdict

    # Judging, in the thread that reads

    def _judge(self, source: RulesSource, in_force: RuleSet, known: RuleSet, pace: Pace) -> _Verdict:
        """Compile what was handed over, as far as it is not `known`; raises `RulesError` if nothing of it can be used,
        and nothing is in force."""
        if unread := unread_of_no_domain(source, in_force):
            raise RulesError(unread, transient=True)
        compiled = compile_changed(source, self._compiled, known, pace, merge_domains=self._merge_domains)
        refused = refused_domains(source, compiled, in_force)
        held_back = bool(refused) and self._accept_by == "all"
        rules = None if held_back else accepted(compiled, in_force, refused)
        if rules is None and in_force is NO_RULES and self._status is None:
            raise RulesError(compiled.problems())
        if rules is None or rules is in_force:
            return _Verdict(in_force, compiled, refused)
        self._bring(rules, pace)
        return _Verdict(rules, compiled, refused)

    def _bring(self, rules: RuleSet, pace: Pace) -> None:
        """Save rules that come into force, and tell who keeps their text."""
        if self._writer is not None:
            try:
                self._writer.save(rules, self._clock.now_ms(), pace.breathe)
            except OSError as error:
                self._log.error("rules_not_saved", data_dir=str(self._data_dir), reason=str(error))
        self._on_rules(rules)

    # Following

    async def watch(self) -> None:
        """Follow the feed until cancelled."""
        self._stop = threading.Event()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="headgate-rules")
        try:
            while True:
                try:
                    await self.feed.watch(self)
                except Exception:
                    # Whatever it was, the old set serves on and the next change is looked at again.
                    self._log.exception("rules_watch_failed")
                await asyncio.sleep(1.0)
        finally:
            self._stop.set()
            self._executor.shutdown(wait=False, cancel_futures=True)

    async def take(self, source: RulesSource) -> Outcome:
        """Check what the feed handed over beside the serving loop, and bring into force what is good of it."""
        rules, pace = self.current, self._pace(polite=True)
        try:
            self._settle(await self._aside(lambda: self._judge(source, rules, rules, pace)))
        except RulesError as error:
            self.cannot_read(error)
        return Outcome(self.current.version, self.status.refused)

    async def change(self, changes: ChangesOf) -> Outcome:
        """Make changes of single rules beside the serving loop, and bring the set that they lead to into force."""
        before = self.current
        rules = await self._aside(lambda: self._changed(before, changes))
        self._settle(_Verdict(rules, NOTHING))
        return Outcome(self.current.version)

    def _changed(self, before: RuleSet, changes: ChangesOf) -> RuleSet:
        if before.version.digest != changes.before:
            raise OtherVersion(f"changes of version {changes.before}, and {before.version.digest} is in force")
        rules = changed(before, changes.changes)
        if rules.version.digest != changes.after:
            raise OtherVersion(f"changes that lead to {rules.version.digest}, and not to {changes.after} as they say")
        if self._writer is not None:
            try:
                self._writer.append(rules, before, list(changes.changes), self._clock.now_ms())
            except OSError as error:
                self._log.error("rules_not_saved", data_dir=str(self._data_dir), reason=str(error))
        return rules

    async def _aside(self, work: Callable[[], T]) -> T:
        """Do work in the thread of the rules; what is under way is a load."""
        self.loading = True
        try:
            return await asyncio.get_running_loop().run_in_executor(self._executor, work)
        finally:
            self.loading = False

    def cannot_read(self, error: RulesError) -> None:
        """Note that the feed can't get at its rules."""
        if not error.transient or self.status.in_sync or error.problems != self.status.last_error:
            self._refuse(error.problems, self.status.refused)

    # Outcomes

    def _settle(self, verdict: _Verdict) -> None:
        """Bring a verdict's rules into force, and say what was refused."""
        refused = self._refused_since(verdict.refused)
        self._compiled = verdict.compiled
        if self._status is None and verdict.rules is self.current:
            self._accept(verdict.rules, "snapshot")
        elif self._status is None or verdict.rules.version is not self.current.version:
            self._accept(verdict.rules, self.feed.kind)
        else:
            # The same content, perhaps at other places of the files.
            self.current = verdict.rules
            if not verdict.refused:
                self._unchanged()
        if verdict.refused:
            self._refuse(_all_problems(refused), refused)

    def _refused_since(self, refused: Mapping[str, tuple[Problem, ...]]) -> tuple[RefusedDomain, ...]:
        """Refused domains in the order of their names; one that was refused already is so since then."""
        now = self._now()
        before = {item.domain: item.since for item in (self._status.refused if self._status else ())}
        return tuple(
            RefusedDomain(domain, problems, before.get(domain, now)) for domain, problems in sorted(refused.items())
        )

    def _accept(self, rules: RuleSet, source: SourceKind) -> None:
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
        for problem in problems[:LOGGED_PROBLEMS]:
            self._log.error("rules_problem", file=problem.file, line=problem.line, reason=problem.reason)

    def _pace(self, *, polite: bool) -> Pace:
        return Pace(self._clock, polite=polite, progress=self._progress, stopped=self._stop.is_set)

    def _progress(self, file: str, rules: int, share: float) -> None:
        self._log.info("rules_loading", file=file, rules=rules, percent=round(100 * share))

    def _now(self) -> float:
        return self._clock.now_ms() / 1000
