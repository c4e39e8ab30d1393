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
from typing import Any, Literal

import structlog

from headgate.clock import Clock
from headgate.rules import snapshot
from headgate.rules.acceptance import KeptFile, accepted_files, keep, refused_domains
from headgate.rules.directory import compile_source
from headgate.rules.feed import Feed, FeedKind, Outcome, RefusedDomain
from headgate.rules.model import Version
from headgate.rules.pace import Pace
from headgate.rules.problems import NoSnapshot, OtherSnapshot, Problem, RulesError, SnapshotError
from headgate.rules.ruleset import RuleSet
from headgate.rules.source import RulesSource, source_of

LOGGED_PROBLEMS = 100
"""Log lines per refused change; the status holds all problems."""

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
    """The rules to have in force from now on, their text, and the problems by domain of what was refused."""

    rules: RuleSet
    files: tuple[KeptFile, ...]
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
        on_source: Callable[[RulesSource], None] = lambda source: None,
    ) -> None:
        """Make a store without rules. `on_source` gets the files of every set that comes into force, in the thread that
        reads.
        """
        self.feed = feed
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
        try:
            source = self.feed.first()
            if source is None:
                source_kind: SourceKind = "snapshot" if self._restore() else "nothing"
                self._accept(self.current, source_kind)
            else:
                self._settle(self._judge(source, self._pace(polite=False)))
        except RulesError as error:
            if not self._restore() and not self._start_empty:
                raise
            self._accept(self.current, "snapshot" if self._restored else "nothing")
            self._refuse(error.problems, self.status.refused)
        return self.current

    def _restore(self) -> bool:
        """Bring back the last good set, at the start and once; false if there is none."""
        if self._data_dir is None or self._restored is not None:
            return bool(self._restored)
        self._restored = False
        try:
            saved = snapshot.load(self._data_dir)
        except SnapshotError as missing:
            self._log.warning("no_last_good_rules", reason=str(missing))
            return False
        self._log.error(
            "serving_last_good_rules",
            feed=self.feed.kind,
            place=str(self.feed.describe()["from"]),
            version=str(saved.rules.version),
            saved_ms=saved.saved_ms,
        )
        self.current, self._files = saved.rules, saved.files
        self.feed.restored([file.unpack() for file in saved.files])
        self._restored = True
        return True

    # Judging, in the thread that reads

    def _judge(self, source: RulesSource, pace: Pace) -> _Verdict:
        """Compile what was handed over; raises `RulesError` if nothing of it can be used."""
        if self._status is None and (saved := self._compiled(source, pace)) is not None:
            self._on_source(source)
            return _Verdict(saved.rules, saved.files)
        try:
            return self._new(source, pace)
        except RulesError as error:
            if self._status is None:
                self._restore()
            return self._accepted_part(source, error, pace)

    def _accepted_part(self, source: RulesSource, error: RulesError, pace: Pace) -> _Verdict:
        """Judge a set with problems: the good domains of it, and the last good rules of the others."""
        refused = refused_domains(source, error, self._files)
        if self._accept_by == "all":
            return _Verdict(self._current_or_raise(error), self._files, refused)
        files = accepted_files(source, error, self._files, refused)
        if not files:
            return _Verdict(self._current_or_raise(error), self._files, refused)
        part = source_of(files, merge_domains=self._merge_domains)
        if part.digest == self.current.version.digest:
            return _Verdict(self.current, self._files, refused)
        return replace(self._new(part, pace), refused=refused)

    def _current_or_raise(self, error: RulesError) -> RuleSet:
        """Return the set that serves on, if there is one: at the start there may be none."""
        if self._status is None and not self._restored:
            raise error
        return self.current

    def _new(self, source: RulesSource, pace: Pace) -> _Verdict:
        version = Version(self.current.version.counter + 1, source.digest)
        rules = compile_source(source, version, pace, merge_domains=self._merge_domains)
        files = keep(source, rules.file_domains)
        self._save(rules, files, pace)
        self._on_source(source)
        return _Verdict(rules, files)

    def _compiled(self, source: RulesSource, pace: Pace) -> snapshot.Snapshot | None:
        """The snapshot of exactly these files, if there is one: no need to read a million rules' YAML again."""
        if self._data_dir is None:
            return None
        try:
            return snapshot.load(self._data_dir, pace.breathe, only_digest=source.digest)
        except (NoSnapshot, OtherSnapshot) as error:
            self._log.debug("rules_snapshot_not_used", reason=str(error))
            return None
        except SnapshotError as error:
            # It is compiled and saved again; the log says why the file was refused.
            self._log.warning("rules_snapshot_not_used", reason=str(error))
            return None

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
        if source.digest == self.current.version.digest:
            self._settle(_Verdict(self.current, self._files))
        else:
            loop = asyncio.get_running_loop()
            pace = self._pace(polite=True)
            self._settle(await loop.run_in_executor(self._executor, self._judge, source, pace))
        return Outcome(self.current.version, self.status.refused)

    def cannot_read(self, error: RulesError) -> None:
        """Note that the feed can't get at its rules."""
        if not error.transient or self.status.in_sync or error.problems != self.status.last_error:
            self._refuse(error.problems, self.status.refused)

    # Outcomes

    def _settle(self, verdict: _Verdict) -> None:
        """Bring a verdict's rules into force, and say what was refused."""
        refused = self._refused_since(verdict.refused)
        self._files = verdict.files
        if self._status is None and verdict.rules is self.current:
            self._accept(verdict.rules, "snapshot")
        elif verdict.rules is not self.current:
            self._accept(verdict.rules, self.feed.kind)
        elif not verdict.refused:
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
