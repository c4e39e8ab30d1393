"""Accepting by domain: of a set with problems the good domains are taken, and a refused one keeps what it had.

The set that comes into force is again plain text, the new of the one and the last good of the other, so its digest
names it like any other: same version, same decisions. The text in force is kept packed, beside its domain.
"""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from headgate.rules.problems import Problem, RulesError
from headgate.rules.source import LAYER, RulesSource, SourceFile

_LEVEL = 1
"""Level of compression, the fastest: rules repeat themselves, and get small at any level."""


@dataclass(frozen=True, slots=True)
class KeptFile:
    """A file that is in force, and the domain that it gives."""

    domain: str
    path: str
    name: str
    packed: bytes

    @property
    def is_layer(self) -> bool:
        """True if it is no rules file (source.py)."""
        return self.name.startswith(LAYER)

    def unpack(self) -> SourceFile:
        """Return the file as it was read."""
        return SourceFile(self.path, zlib.decompress(self.packed), self.name)


def keep(source: RulesSource, domains: Sequence[str]) -> tuple[KeptFile, ...]:
    """Pack the files of a set that comes into force; `domains` holds the domain of each."""
    return tuple(
        KeptFile(domain, file.path, file.name, zlib.compress(file.data, _LEVEL))
        for file, domain in zip(source.files, domains, strict=True)
    )


def keep_layers(source: RulesSource) -> tuple[KeptFile, ...]:
    """Pack what lies over and under the rules of a set."""
    layers = [file for file in source.files if file.is_layer]
    return tuple(KeptFile("", file.path, file.name, zlib.compress(file.data, _LEVEL)) for file in layers)


def refused_domains(
    source: RulesSource, error: RulesError, kept: Iterable[KeptFile]
) -> Mapping[str, tuple[Problem, ...]]:
    """Sort the problems of a set by domain.

    A file that does not get as far as its domain counts as one of the domain that it gives in force; if it gives none,
    its problems stand under the empty name.
    """
    given: dict[str, list[str]] = {}
    for item in kept:
        given.setdefault(item.name, []).append(item.domain)
    domains_of = {
        file.path: [domain] if domain else given.get(file.name, [""])
        for file, domain in zip(source.files, error.domains, strict=True)
    }
    found: dict[str, list[Problem]] = {}
    for problem in error.problems:
        for domain in domains_of[problem.file]:
            found.setdefault(domain, []).append(problem)
    return {domain: tuple(problems) for domain, problems in found.items()}


def accepted_files(
    source: RulesSource, error: RulesError, kept: Iterable[KeptFile], refused: Mapping[str, object]
) -> list[SourceFile]:
    """Return the new files of good domains and the kept ones of refused domains; a domain in neither is gone."""
    new = [file for file, domain in zip(source.files, error.domains, strict=True) if domain and domain not in refused]
    return new + [item.unpack() for item in kept if item.domain in refused]
