"""The text that rules are made of, wherever it comes from: files of a directory, or resources of a control plane.

A source is whole: all files, whether they changed or not. Their text is held packed, so that a file that stays the same
may be handed over again and again as the same object.

Beside the rules a source holds its *layers*: the files of the overlay (overlay.py) and the server's defaults. They are
told by their names, which no rules file can have, so that whatever keeps the text of a set keeps all that decides.
"""

import hashlib
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headgate.rules.marks import Marks
from headgate.rules.problems import Problem

_DIGEST_SALT = b"headgate rules 2"
"""Changes when the same text begins to mean something else, so that what was saved of it stops matching."""

_LEVEL = 1
"""Level of compression, the fastest: rules repeat themselves, and get small at any level."""


LAYER = "/"
"""Beginning of the names of all layers; no name of a rules file begins with a slash."""

OVERLAY = "/overlay/"
"""Beginning of the names of overlay files."""

DEFAULTS = "/defaults"
"""Name of the file that holds the server's defaults."""

FileId = tuple[str, str]
"""Name and digest: what a file is known by. Two files of one name may be in force, of two domains."""


class SourceFile:
    """One rules file as it was read, or the problem that kept it from being read."""

    __slots__ = ("digest", "name", "packed", "path", "problem")

    def __init__(self, path: str, data: bytes, name: str, problem: Problem | None = None) -> None:
        self.path = path
        self.name = name
        """Name within its feed (relative to the rules directory), so that the directory may move."""
        self.packed = zlib.compress(data, _LEVEL)
        self.digest = hashlib.sha256(_DIGEST_SALT + data).hexdigest()
        """Names the text: equal where that is equal."""
        self.problem = problem
        """The reason why there is no text; None: there is."""

    @classmethod
    def saved(cls, path: str, packed: bytes, name: str, digest: str) -> "SourceFile":
        """Make the file of a text that was packed and named before."""
        file = cls.__new__(cls)
        file.path, file.packed, file.name, file.digest, file.problem = path, packed, name, digest, None
        return file

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SourceFile):
            return NotImplemented
        return (self.id, self.path, self.problem) == (other.id, other.path, other.problem)

    def __hash__(self) -> int:
        return hash(self.id)

    @property
    def is_layer(self) -> bool:
        """True if it is no rules file, but what lies over or under the rules."""
        return self.name.startswith(LAYER)

    @property
    def id(self) -> FileId:
        """Name and digest."""
        return self.name, self.digest

    @property
    def data(self) -> bytes:
        """The text."""
        return zlib.decompress(self.packed)


@dataclass(frozen=True, slots=True)
class RulesSource:
    """All text of a rule set at one moment."""

    files: tuple[SourceFile, ...]
    marks: Mapping[str, Marks] = field(default_factory=dict)
    """Marks that lie over the rules, by domain."""
    problems: Mapping[str, Problem] = field(default_factory=dict)
    """Problems that are in no text, by domain."""

    @property
    def rules(self) -> tuple[SourceFile, ...]:
        """Files of rules, without the layers."""
        return tuple(file for file in self.files if not file.is_layer)

    @property
    def overlay(self) -> tuple[SourceFile, ...]:
        """Files of the overlay."""
        return tuple(file for file in self.files if file.name.startswith(OVERLAY))

    @property
    def defaults(self) -> SourceFile | None:
        """The server's defaults; None where it has those of the program."""
        return next((file for file in self.files if file.name == DEFAULTS), None)

    def under(self, layers: Sequence[SourceFile]) -> "RulesSource":
        """Add layers to a set of rules that has none."""
        return replace(self, files=(*self.files, *layers)) if layers else self


def source_of(files: Iterable[SourceFile], marks: Mapping[str, Marks] | None = None) -> RulesSource:
    """Put files into the order of their names, whoever lists them."""
    return RulesSource(tuple(sorted(files, key=lambda file: (file.name, file.digest))), marks or {})
