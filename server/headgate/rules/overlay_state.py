"""The overlay that is in force, and the one that its directory has: apart while that one has a problem.

An overlay is refused whole, and the last good one serves on: a mistake in it neither lifts a limit nor holds back
rules. It is refused if it can't be read, and if it makes no sense with a rule where the one in force does. It is tried
again with every change of the rules.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headgate.rules.compiling import Compiled
from headgate.rules.directory_feed import DirectoryFeed
from headgate.rules.feed import ChangesOf, Outcome
from headgate.rules.model import Version
from headgate.rules.overlay_reader import read_overlay
from headgate.rules.problems import OtherVersion, Problem, RulesError
from headgate.rules.source import RulesSource, SourceFile

Files = tuple[SourceFile, ...]


@dataclass(frozen=True, slots=True)
class RefusedOverlay:
    """The problems of the overlay that its directory has; the one before it is in force."""

    problems: tuple[Problem, ...]
    since: float
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class Tried:
    """The outcome of a set's files under one overlay."""

    overlay: Files
    compiled: Compiled


@dataclass(slots=True)
class OverlayState:
    """The overlay of a rule store. `offered` is None while the directory has none that can be read."""

    feed: DirectoryFeed | None
    offered: Files | None = None
    in_force: Files | None = None
    refused: RefusedOverlay | None = None

    @property
    def candidates(self) -> list[Files]:
        """Overlays to try with a set of rules, the newest first."""
        known = [overlay for overlay in (self.offered, self.in_force) if overlay is not None]
        return list(dict.fromkeys(known)) or [()]

    def refuse(self, problems: Sequence[Problem], now: float) -> bool:
        """Note why the directory's overlay is not in force; return true if that is news."""
        before = self.refused
        self.refused = RefusedOverlay(tuple(problems), now if before is None else before.since)
        return before is None or before.problems != self.refused.problems


def choose(tried: Sequence[Tried]) -> Tried:
    """Choose the newest overlay that makes sense with all rules; where none does, the newest: no other is better."""
    return next((item for item in tried if not item.compiled.overlay.clashes), tried[0])


def check_overlay(files: Files) -> None:
    """Raise `RulesError` with every problem that an overlay has by itself."""
    if unread := [file.problem for file in files if file.problem is not None]:
        raise RulesError(unread, transient=True)
    _, problems = read_overlay(files)
    if problems:
        raise RulesError(problems)


class OverlaidStore(Protocol):
    """A store that takes an overlay."""

    async def take_overlay(self, files: Files) -> Version:
        """Lay another overlay over the rules in force, if it can be used; return the version that is in force then."""

    def refuse_overlay(self, problems: tuple[Problem, ...]) -> None:
        """Note why the overlay that its directory has can't be used."""


class OverlayTaker:
    """The side of a store that the overlay's directory sees."""

    def __init__(self, store: OverlaidStore) -> None:
        self._store = store

    async def take(self, source: RulesSource) -> Outcome:
        """Hand over an overlay."""
        return Outcome(await self._store.take_overlay(source.files))

    async def change(self, make: Callable[[], ChangesOf | None]) -> Outcome | None:
        """An overlay changes as a whole."""
        raise OtherVersion("an overlay changes as a whole")

    def cannot_read(self, error: RulesError) -> None:
        """Note that the overlay can't be read: the last good one serves on."""
        self._store.refuse_overlay(error.problems)
