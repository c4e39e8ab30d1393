"""The text that rules are made of, wherever it comes from: files of a directory, or resources of a control plane.

Beside the rules a source holds its *layers*: the files of the overlay (overlay.py) and the server's defaults. They are
told by their names, which no rules file can have, so that whatever keeps the text of a set keeps all that decides.
"""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_DIGEST_SALT = b"headgate rules 1"
"""Changes when the same text begins to mean something else, so that old snapshots stop matching."""

LAYER = "/"
"""Beginning of the names of all layers; no name of a rules file begins with a slash."""

OVERLAY = "/overlay/"
"""Beginning of the names of overlay files."""

DEFAULTS = "/defaults"
"""Name of the file that holds the server's defaults."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One rules file as it was read."""

    path: str
    data: bytes
    name: str
    """Name within its feed (relative to the rules directory); part of the digest, so that the directory may move."""

    @property
    def is_layer(self) -> bool:
        """True if it is no rules file, but what lies over or under the rules."""
        return self.name.startswith(LAYER)


@dataclass(frozen=True, slots=True)
class RulesSource:
    """All text of a rule set at one moment, and the digest that names it."""

    files: tuple[SourceFile, ...]
    digest: str

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
        if not layers:
            return self
        digest = hashlib.sha256(f"{self.digest} under ".encode())
        for file in layers:
            _hash_file(digest, file)
        return RulesSource((*self.files, *layers), digest.hexdigest())


def source_of(files: Iterable[SourceFile], *, merge_domains: bool) -> RulesSource:
    """Name a set of files by its content; their order is that of their names, whoever lists them."""
    ordered = tuple(sorted(files, key=lambda file: (file.name, file.data)))
    digest = hashlib.sha256(_DIGEST_SALT + (b"+merge" if merge_domains else b""))
    for file in ordered:
        _hash_file(digest, file)
    return RulesSource(ordered, digest.hexdigest())


def _hash_file(digest: "hashlib._Hash", file: SourceFile) -> None:
    name = file.name.encode("utf-8", "surrogateescape")
    digest.update(b"%d:%s%d:" % (len(name), name, len(file.data)))
    digest.update(file.data)
