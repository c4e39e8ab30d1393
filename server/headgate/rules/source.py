"""The text that rules are made of, wherever it comes from: files of a directory, or resources of a control plane."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

_DIGEST_SALT = b"headgate rules 1"
"""Changes when the same text begins to mean something else, so that old snapshots stop matching."""


@dataclass(frozen=True, slots=True)
class SourceFile:
    """One rules file as it was read."""

    path: str
    data: bytes
    name: str
    """Name within its feed (relative to the rules directory); part of the digest, so that the directory may move."""


@dataclass(frozen=True, slots=True)
class RulesSource:
    """All text of a rule set at one moment, and the digest that names it."""

    files: tuple[SourceFile, ...]
    digest: str


def source_of(files: Iterable[SourceFile], *, merge_domains: bool) -> RulesSource:
    """Name a set of files by its content; their order is that of their names, whoever lists them."""
    ordered = tuple(sorted(files, key=lambda file: (file.name, file.data)))
    digest = hashlib.sha256(_DIGEST_SALT + (b"+merge" if merge_domains else b""))
    for file in ordered:
        name = file.name.encode("utf-8", "surrogateescape")
        digest.update(b"%d:%s%d:" % (len(name), name, len(file.data)))
        digest.update(file.data)
    return RulesSource(ordered, digest.hexdigest())
