"""The overlay: fields of Headgate's own, laid over rules that others write.

An entry names rules by domain and path, and says how their limits are kept. It is laid over the rule at its path and
over all rules below that. Of several entries that name one rule the later counts, field by field: files are in the
order of their names, entries in the order of their lines. The outcome is as if the rules said these fields themselves.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from headgate.rules.problems import Problem
from headgate.rules.wildcards import STAR, matches
from headgate.rules.yaml_events import Event

STEP = " > "
"""DomainMarks between two steps of a path, as `GET /rules` and `headgate rules explain` write it."""


class Glob:
    """Text with stars, each of which stands for zero or more characters."""

    __slots__ = ("_parts", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self._parts = text.split(STAR)

    @property
    def is_exact(self) -> bool:
        """True if it has no star: it matches its own text alone."""
        return len(self._parts) == 1

    def matches(self, text: str) -> bool:
        """Return true if `text` is the glob's, or what its stars make of it."""
        return text == self.text or (len(self._parts) > 1 and matches(self._parts, text))


ANYTHING = Glob(STAR)


@dataclass(frozen=True, slots=True)
class Step:
    """One level of a path: `key`, whatever its value is, or `key=value`."""

    key: Glob
    value: Glob

    def __str__(self) -> str:
        return self.key.text if self.value is ANYTHING else f"{self.key.text}={self.value.text}"


def step_of(text: str) -> Step:
    """Read one step; `key=` is the rule of a key that has no value."""
    key, equals, value = text.partition("=")
    return Step(Glob(key), Glob(value) if equals else ANYTHING)


@dataclass(frozen=True, slots=True, eq=False)
class OverlayEntry:
    """One entry of the overlay: the rules that it names, and the fields that it lays over them."""

    file: str
    line: int
    domain: Glob
    path: tuple[Step, ...]
    fields: Mapping[str, Event]
    """Fields of `rate_limit`."""
    flags: Mapping[str, bool]
    """Flags of the descriptor."""
    lines: Mapping[str, int]
    """Line of each of them."""

    def key_at(self, depth: int) -> Glob:
        """Keys that lead to what it names, so many levels down; below its path, all."""
        return self.path[depth].key if depth < len(self.path) else ANYTHING

    def value_at(self, depth: int) -> Glob:
        """Values that lead to what it names, so many levels down; below its path, all."""
        return self.path[depth].value if depth < len(self.path) else ANYTHING


class EntryChoice:
    """Entries to choose from by one text each; those that want another exact text cost nothing."""

    def __init__(self, entries: Sequence[OverlayEntry], wanted: Callable[[OverlayEntry], Glob]) -> None:
        self._wanted = [(entry, wanted(entry)) for entry in entries]
        self._loose = [(entry, glob) for entry, glob in self._wanted if not glob.is_exact]
        self._exact = {glob.text for _, glob in self._wanted if glob.is_exact}

    def of(self, text: str) -> list[OverlayEntry]:
        """Return the entries that want this text, in their order."""
        some = self._wanted if text in self._exact else self._loose
        return [entry for entry, glob in some if glob.matches(text)]


@dataclass(frozen=True, slots=True)
class OverlayReport:
    """Outcome of an overlay with one set of rules."""

    entries: int = 0
    clashes: tuple[Problem, ...] = ()
    """Entries that make no sense with a rule that they name: those rules are as if there were no overlay."""
    unmatched: tuple[Problem, ...] = ()
    """Entries that name no limit."""


def over(entries: Sequence[OverlayEntry], depth: int) -> tuple[OverlayEntry, ...]:
    """Choose, of entries whose paths led to a rule so many levels down, those that name it: they end here or above."""
    return tuple(entry for entry in entries if len(entry.path) <= depth)
