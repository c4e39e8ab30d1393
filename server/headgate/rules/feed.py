"""Feeds: where rules come from. A feed knows how to get rules; what is in force is the store's (store.py).

A feed hands over everything that it has, whole, as the same text that files are; or, where it knows them, the changes
of single rules since the version that is in force. It hears what became of it. It follows its place until it is
cancelled, and survives whatever happens there.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from headgate.rules.changes import Change
from headgate.rules.model import Version
from headgate.rules.problems import Problem, RulesError
from headgate.rules.source import RulesSource, SourceFile

FeedKind = Literal["directory", "xds", "plane"]


@dataclass(frozen=True, slots=True)
class RefusedDomain:
    """Rules of a domain that were not accepted, with every problem; those that it had before stay in force."""

    domain: str
    """Empty: what is refused belongs to no domain that is known."""
    problems: tuple[Problem, ...]
    since: float
    """Unix seconds."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to a feed: the version that is in force now, and what was refused of that which it handed over."""

    version: Version
    refused: tuple[RefusedDomain, ...] = ()


@dataclass(frozen=True, slots=True)
class ChangesOf:
    """Changes of the set of one version, made all or none, and the version that they lead to."""

    before: str
    """Digest of the set that they are changes of."""
    after: str
    changes: tuple[Change, ...]


class Taker(Protocol):
    """The side of the rule store that a feed sees."""

    async def take(self, source: RulesSource) -> Outcome:
        """Check a complete set aside, and bring into force what is good of it."""

    async def change(self, make: Callable[[], ChangesOf | None]) -> Outcome | None:
        """Make changes aside, and bring the set that they lead to into force. `make` says which, in the thread that
        makes them; None: none, and nothing is done.

        Raises `OtherVersion`, and then nothing changed, where they are changes of another set than the one in force, or
        lead to another version than they say: the feed then hands over everything. Raises `RulesError` for changes
        that no set takes.
        """

    def cannot_read(self, error: RulesError) -> None:
        """Note that the feed can't get at its rules: those in force serve on, and operators see why they are old."""


class Feed(ABC):
    """One place that rules come from."""

    kind: FeedKind

    def __init__(self, now: float) -> None:
        """`now` is in unix seconds."""
        self.looked_at = now
        """Time in unix seconds at which the feed last knew that there is nothing newer than what it handed over."""

    @abstractmethod
    def first(self) -> RulesSource | None:
        """Return the rules to start with, without a loop; None: none have come yet, `watch` brings them.

        Raises `RulesError` where there should be some and they can't be had.
        """

    def restored(self, files: Sequence[SourceFile]) -> None:  # noqa: B027  most feeds need not know
        """Hear of the files of the last good set, which serves until the feed's own first one comes."""

    @abstractmethod
    async def watch(self, taker: Taker) -> None:
        """Hand every change to `taker`, until cancelled; called again, a second later, after an exception."""

    @abstractmethod
    def describe(self) -> Mapping[str, Any]:
        """Describe the place and its state for `GET /rules`; at least `kind` and `from`, which is logged too."""
