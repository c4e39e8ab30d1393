"""The rules that are in force, and the directory they come from.

`current` is one reference: read it once per request. A change of the directory is
compiled beside the serving loop and swapped in whole, or refused whole with every
problem named; then the old set serves on. Nothing that happens to the directory ends
the watch: it may vanish and come back.

The directory is watched by looking at it: names, sizes, times and inodes, four times a
second. That works for plain writes, editors that rename, links that Kubernetes swaps,
and network file systems, which report no changes. A thread looks, and the loop
hears of it only when there is something to do.
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
from headgate.rules.directory import RulesSource, Signature, compile_source, read_directory, signature
from headgate.rules.model import Version
from headgate.rules.pace import Pace
from headgate.rules.problems import NoSnapshot, OtherSnapshot, Problem, RulesError, SnapshotError
from headgate.rules.ruleset import RuleSet

POLL_S = 0.25
"""Seconds between looks at the directory. With the settling below, a change is live within 500 ms. Looking ten times a
second was nearly half of what an idle node cost.
"""

SETTLE_S = 0.1
"""Seconds that a changed directory must stay unchanged before it is read: a file that is being written does not."""

_SETTLE_POLL_S = 0.05

RETRY_S = 5.0
"""Seconds until the next attempt after a file system error, which may pass without a visible change."""

LOGGED_PROBLEMS = 100
"""Log lines per refused change; the status holds all problems."""

SourceKind = Literal["directory", "snapshot"]
_Unseen = Literal["unseen"]


def pause(stop: threading.Event, seconds: float) -> bool:
    """Wait so long, or until `stop` is set; whether it is."""
    return stop.wait(seconds)


@dataclass(frozen=True, slots=True)
class RuleStatus:
    """The state of the rules for operators: which version serves, since when, and what was refused last."""

    version: Version
    loaded_at: float
    """Unix seconds."""
    source: SourceKind
    """`snapshot` while the directory could not be used since the start."""
    in_sync: bool
    """True if the rules in force are those of the directory."""
    rules: int
    domains: int
    last_error: tuple[Problem, ...] = ()
    last_error_at: float | None = None
    accepted: int = 0
    rejected: int = 0


class RuleStore:
    """Holds the rule set in force. Call `load_initial` once, then keep `watch` running to follow the directory."""

    def __init__(
        self,
        directory: Path | str,
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
        self._directory = Path(directory)
        self._clock = clock
        self._data_dir = data_dir
        self._merge_domains = merge_domains
        self._start_empty = start_empty
        self._on_source = on_source
        self._log = logger if logger is not None else structlog.get_logger("headgate.rules")
        self._seen: Signature | _Unseen | None = "unseen"
        self._retry_at: float | None = None
        self._stop = threading.Event()
        self._status: RuleStatus | None = None
        self.looked_at = self._now()
        """Time of the last look at the directory, in unix seconds."""
        self.current: RuleSet = RuleSet({}, (), Version(0, ""), 0)

    @property
    def status(self) -> RuleStatus:
        """State of the rules in force, with the problems of the last set that was refused."""
        if self._status is None:
            raise RuntimeError("load_initial() comes first")
        return self._status

    # Starting

    def load_initial(self) -> RuleSet:
        """Load the directory's rules, or, if they can't be used, the last good ones from the snapshot.

        The latter is logged as an error. Raises `RulesError` when there are neither, unless it may start empty.
        """
        self._seen = signature(self._directory)
        try:
            self._accept(self._load_directory(self._pace(polite=False)), "directory")
        except RulesError as error:
            self._accept(self._last_good(error), "snapshot")
            self._refuse(error)
        return self.current

    def _load_directory(self, pace: Pace) -> RuleSet:
        source = read_directory(self._directory, merge_domains=self._merge_domains)
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

    def _last_good(self, error: RulesError) -> RuleSet:
        if self._data_dir is None:
            return self._empty(error)
        try:
            saved = snapshot.load(self._data_dir)
        except SnapshotError as missing:
            self._log.warning("no_last_good_rules", reason=str(missing))
            return self._empty(error)
        self._log.error(
            "serving_last_good_rules",
            directory=str(self._directory),
            version=str(saved.rules.version),
            saved_ms=saved.saved_ms,
        )
        return saved.rules

    def _empty(self, error: RulesError) -> RuleSet:
        if not self._start_empty:
            raise error
        self._log.error("serving_without_rules", directory=str(self._directory))
        return self.current

    # Watching

    async def watch(self) -> None:
        """Follow the directory until cancelled."""
        # One of its own: the thread of an earlier watch may not have seen yet that it is over.
        self._stop = threading.Event()
        executor = ThreadPoolExecutor(1, thread_name_prefix="headgate-rules")
        try:
            while True:
                try:
                    await self._follow(executor)
                except Exception:
                    # Whatever it was, the old set serves on and the next change is looked at again.
                    self._log.exception("rules_watch_failed")
                    await asyncio.sleep(1.0)
        finally:
            self._stop.set()
            executor.shutdown(wait=False, cancel_futures=True)

    async def _follow(self, executor: ThreadPoolExecutor) -> None:
        """Wait for a change, and see what it comes to."""
        loop = asyncio.get_running_loop()
        state = await loop.run_in_executor(executor, self._await_change, self._stop)
        state = await self._settled(executor, state)
        if state == self._seen and not self._retry_due():
            return
        try:
            rules = await loop.run_in_executor(executor, self._reload, state)
        except RulesError as error:
            self._seen = state
            self._retry_at = self._clock.monotonic() + RETRY_S if error.transient else None
            self._refuse(error)
            return
        if rules is None:
            return  # it changed while it was read: look again
        self._seen, self._retry_at = state, None
        if rules is self.current:
            self._unchanged()
        else:
            self._accept(rules, "directory")

    def _await_change(self, stop: threading.Event) -> Signature | None:
        """Watch, in the thread, until the directory's state changes, a retry is due, or `stop` is set.

        There and not on the loop, which would be woken twice for each look: most of what an idle node cost.
        """
        while not pause(stop, POLL_S):
            state = signature(self._directory)
            self.looked_at = self._now()
            if state != self._seen or self._retry_due():
                return state
        return None  # stopped

    def _retry_due(self) -> bool:
        return self._retry_at is not None and self._clock.monotonic() >= self._retry_at

    async def _settled(self, executor: ThreadPoolExecutor, state: Signature | None) -> Signature | None:
        """The directory's state once it has not changed for a moment."""
        loop = asyncio.get_running_loop()
        since = self._clock.monotonic()
        while self._clock.monotonic() - since < SETTLE_S:
            await asyncio.sleep(_SETTLE_POLL_S)
            now = await loop.run_in_executor(executor, signature, self._directory)
            if now != state:
                state, since = now, self._clock.monotonic()
        return state

    def _reload(self, state: Signature | None) -> RuleSet | None:
        """Read and compile, in the thread, unless nothing is new or everything just changed."""
        source = read_directory(self._directory, merge_domains=self._merge_domains)
        if signature(self._directory) != state:
            return None
        if source.digest == self.current.version.digest:
            return self.current
        return self._new(source, self._pace(polite=True))

    # Outcomes

    def _accept(self, rules: RuleSet, source: SourceKind) -> None:
        self.current = rules
        before = self._status
        self._status = RuleStatus(
            version=rules.version,
            loaded_at=self._now(),
            source=source,
            in_sync=source == "directory",
            rules=rules.count,
            domains=len(rules.domains),
            last_error=before.last_error if before else (),
            last_error_at=before.last_error_at if before else None,
            accepted=(before.accepted if before else 0) + (source == "directory"),
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
        """The files say what is in force already: after a touch, or a bad change that was taken back."""
        self._status = replace(self.status, in_sync=True, source="directory")
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
