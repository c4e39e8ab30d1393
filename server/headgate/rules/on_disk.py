"""The rules that a process keeps on its disk for the next start. A disk that fails is logged, and holds nothing up.

Changes are saved as they come, by the thread that makes them. Domains with many of them are written as a whole by a
thread of its own, politely, beside the changes that come meanwhile.
"""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from headgate.clock import Clock
from headgate.rules import snapshot
from headgate.rules.changes import Change
from headgate.rules.pace import LoadCancelledError
from headgate.rules.problems import NoSnapshot, SnapshotError
from headgate.rules.ruleset import RuleSet
from headgate.rules.snapshot import Snapshot, SnapshotWriter


class RulesOnDisk:
    """One process's rules in a data directory."""

    def __init__(self, directory: Path, *, merge_domains: bool, clock: Clock, logger: Any) -> None:
        self._directory = directory
        self._writer = SnapshotWriter(directory, merge_domains=merge_domains)
        self._clock = clock
        self._log = logger
        self._executor: ThreadPoolExecutor | None = None
        self._rewriting: asyncio.Future[None] | None = None

    def load(self, pause: Callable[[], None]) -> Snapshot | None:
        """Read the last good set; None where there is none that can be used."""
        try:
            saved = snapshot.load(self._directory, pause)
        except NoSnapshot as missing:
            self._log.debug("no_last_good_rules", reason=str(missing))
            return None
        except SnapshotError as error:
            # It is saved again when rules are in force; the log says why the file was refused.
            self._log.warning("rules_snapshot_not_used", reason=str(error))
            return None
        self._writer.loaded(saved)
        return saved

    def save(self, rules: RuleSet, pause: Callable[[], None]) -> None:
        """Save a set."""
        self._try(lambda: self._writer.save(rules, self._clock.now_ms(), pause))

    def append(self, rules: RuleSet, before: RuleSet, changes: Sequence[Change]) -> None:
        """Save a set that differs from the one before it by these changes."""
        self._try(lambda: self._writer.append(rules, before, changes, self._clock.now_ms()))

    # Beside the changes

    def begin(self) -> None:
        """Have a thread that writes domains as a whole, until `end`."""
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="headgate-rules-on-disk")

    def end(self) -> None:
        """Let the thread go; what it does ends at its next pause."""
        if self._executor is not None:
            self._executor.shutdown(wait=False, cancel_futures=True)

    def rewrite_due(self, pause: Callable[[], None]) -> None:
        """Have domains with many changes written as a whole, unless that is under way."""
        if self._writer.is_due and (self._rewriting is None or self._rewriting.done()):
            loop = asyncio.get_running_loop()
            self._rewriting = loop.run_in_executor(self._executor, self._rewrite, pause)

    def _rewrite(self, pause: Callable[[], None]) -> None:
        try:
            self._try(lambda: self._writer.rewrite(pause))
        except LoadCancelledError:
            self._log.debug("rules_not_written_as_a_whole", reason="the process stops")

    def _try(self, work: Callable[[], object]) -> None:
        try:
            work()
        except OSError as error:
            self._log.error("rules_not_saved", data_dir=str(self._directory), reason=str(error))
