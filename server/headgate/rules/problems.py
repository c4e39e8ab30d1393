"""Problems of a rule set, each with its file, line and reason."""

from collections.abc import Iterable
from dataclasses import dataclass

from headgate.errors import ConfigError


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing that is wrong with a rules file, and where."""

    file: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.reason}"


class RulesError(ConfigError):
    """Rules that can't be used; carries every problem of every file, and prints one per line."""

    def __init__(self, problems: Iterable[Problem], *, transient: bool = False) -> None:
        self.problems: tuple[Problem, ...] = tuple(problems)
        self.transient = transient
        """True if it may pass without a visible change: a file system that fails, not a file that is wrong."""
        super().__init__("\n".join(map(str, self.problems)))


class SnapshotError(ConfigError):
    """A snapshot that is damaged, half-written, not ours or of another version; nothing of it was used."""


class NoSnapshot(SnapshotError):
    """No snapshot exists."""


class OtherVersion(ConfigError):
    """Changes that are not of the rules in force, or lead to other rules than they say; nothing of them was made."""
