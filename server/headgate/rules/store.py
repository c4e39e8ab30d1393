"""The rules that are in force. Where they come from is a feed's matter (feed.py).

`current` is one reference: read it once per request. What a feed hands over is compiled
beside the serving loop and swapped in whole, or refused whole with every problem named;
then the old set serves on.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import structlog

from headgate.clock import Clock
from headgate.rules import snapshot
from headgate.rules.directory import compile_source
from headgate.rules.feed import Feed, FeedKind, Outcome, Refusal
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


class RuleStore:
    """Holds the rule set in force. Call `load_initial` once, then keep `watch` running to follow the feed."""

    def __init__(
        self,
        feed: Feed,
        *,
        clock: Clock,
        data_dir: Path | None = None,
        merge_domains: bool = False,
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
        self._start_empty = start_empty
        self._on_source = on_source
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

        Unusable rules are logged as an error. Raises `RulesError` when there are no last good ones either, unless it may
        start empty. A feed that has nothing yet is waited for: with the last good rules, else with none.
        """
        try:
            source = self.feed.first()
            if source is None:
                self._accept_before_first(self._last_good())
            else:
                self._accept(self._load(source, self._pace(polite=False)), self.feed.kind)
        except RulesError as error:
            last = self._last_good()
            if last is None and not self._start_empty:
                raise
            self._accept_before_first(last)
            self._refuse(error)
        return self.current

    def _accept_before_first(self, last: RuleSet | None) -> None:
        """Serve the last good rules, or none, until the feed has some that can be used."""
        if last is None:
            self._accept(self.current, "nothing")
        else:
            self._accept(last, "snapshot")

    def _load(self, source: RulesSource, pace: Pace) -> RuleSet:
        compiled = self._compiled(source, pace)
        if compiled is not None:
            self._on_source(source)
            return compiled
        return self._new(source, pace)

    def _new(self, source: RulesSource, pace: Pace) -> RuleSet:
        version = Version(self.current.version.counter + 1, source.digest)
        rules = compile_source(source, version, pace, merge_domains=self._merge_domains)
        self._save(rules, pace)
        self._on_source(source)
        return rules

    def _compiled(self, source: RulesSource, pace: Pace) -> RuleSet | None:
        """The snapshot of exactly these files, if there is one: no need to read a million rules' YAML again."""
        if self._data_dir is None:
            return None
        try:
            return snapshot.load(self._data_dir, pace.breathe, only_digest=source.digest).rules
        except (NoSnapshot, OtherSnapshot) as error:
            self._log.debug("rules_snapshot_not_used", reason=str(error))
            return None
        except SnapshotError as error:
            # It is compiled and saved again; the log says why the file was refused.
            self._log.warning("rules_snapshot_not_used", reason=str(error))
            return None

    def _last_good(self) -> RuleSet | None:
        if self._data_dir is None:
            return None
        try:
            saved = snapshot.load(self._data_dir)
        except SnapshotError as missing:
            self._log.warning("no_last_good_rules", reason=str(missing))
            return None
        self._log.error(
            "serving_last_good_rules",
            feed=self.feed.kind,
            place=str(self.feed.describe()["from"]),
            version=str(saved.rules.version),
            saved_ms=saved.saved_ms,
        )
        return saved.rules

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
        """Check what the feed handed over beside the serving loop, and bring it into force or refuse it."""
        if source.digest == self.current.version.digest:
            self._unchanged()
            return Outcome(self.current.version)
        loop = asyncio.get_running_loop()
        try:
            rules = await loop.run_in_executor(self._executor, self._new, source, self._pace(polite=True))
        except RulesError as error:
            self._refuse(error)
            return Outcome(self.current.version, (Refusal("", error.problems, self._now()),))
        self._accept(rules, self.feed.kind)
        return Outcome(rules.version)

    def cannot_read(self, error: RulesError) -> None:
        """Note that the feed can't get at its rules."""
        self._refuse(error)

    # Outcomes

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
        self._status = replace(self.status, in_sync=True, source=self.feed.kind)
        self._log.info("rules_unchanged", version=str(self.current.version))

    def _refuse(self, error: RulesError) -> None:
        if error.transient and not self.status.in_sync and error.problems == self.status.last_error:
            return  # said already
        self._status = replace(
            self.status,
            in_sync=False,
            last_error=error.problems,
            last_error_at=self._now(),
            rejected=self.status.rejected + 1,
        )
        self._log.error(
            "rules_refused",
            problems=len(error.problems),
            version=str(self.current.version),
        )
        for problem in error.problems[:LOGGED_PROBLEMS]:
            self._log.error("rules_problem", file=problem.file, line=problem.line, reason=problem.reason)

    def _save(self, rules: RuleSet, pace: Pace) -> None:
        if self._data_dir is None:
            return
        try:
            snapshot.save(rules, self._data_dir, self._clock.now_ms(), pace.breathe)
        except OSError as error:
            self._log.error("rules_not_saved", data_dir=str(self._data_dir), reason=str(error))

    def _pace(self, *, polite: bool) -> Pace:
        return Pace(self._clock, polite=polite, progress=self._progress, stopped=self._stop.is_set)

    def _progress(self, file: str, rules: int, share: float) -> None:
        self._log.info("rules_loading", file=file, rules=rules, percent=round(100 * share))

    def _now(self) -> float:
        return self._clock.now_ms() / 1000
