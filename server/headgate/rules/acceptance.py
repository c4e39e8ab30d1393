"""Accepting by domain: of a set with problems the good domains are taken, and a refused one keeps what it had."""

from collections.abc import Mapping

from headgate.rules.compiling import Compiled
from headgate.rules.problems import Problem
from headgate.rules.ruleset import Domain, RuleSet
from headgate.rules.source import RulesSource, SourceFile, source_of


def refused_domains(source: RulesSource, compiled: Compiled, in_force: RuleSet) -> Mapping[str, tuple[Problem, ...]]:
    """Sort the problems of a set by domain.

    A file that does not get as far as its domain counts as one of the domain that it gives in force; if it gives none,
    its problems stand under the empty name.
    """
    given = _domains_by_file(in_force)
    found = {name: list(outcome.problems) for name, outcome in compiled.domains.items() if outcome.problems}
    for file in source.rules:
        outcome = compiled.files[file.id]
        for domain in [] if outcome.domain else given.get(file.name, [""]):
            found.setdefault(domain, []).extend(outcome.problems)
    return {domain: tuple(problems) for domain, problems in found.items()}


def unread_of_no_domain(source: RulesSource, in_force: RuleSet) -> list[Problem]:
    """Problems of files that can't be read, and that give no domain in force: they may be of any."""
    given = _domains_by_file(in_force)
    return [file.problem for file in source.rules if file.problem is not None and file.name not in given]


def _domains_by_file(rules: RuleSet) -> dict[str, list[str]]:
    """Domains that the files in force give, by the files' names."""
    given: dict[str, list[str]] = {}
    for domain in rules.domains.values():
        for file in domain.files:
            given.setdefault(file.name, []).append(domain.name)
    return given


def accepted_source(
    source: RulesSource, compiled: Compiled, in_force: RuleSet, refused: Mapping[str, object]
) -> RulesSource:
    """Put together the new files of good domains and those in force of refused ones; a domain in neither is gone."""
    new = [file for file in source.rules if (domain := compiled.files[file.id].domain) and domain not in refused]
    kept = [file for name in refused if (held := in_force.domain(name)) is not None for file in held.files]
    return source_of([*new, *kept])


def accepted(
    compiled: Compiled, in_force: RuleSet, layers: tuple[SourceFile, ...], *, keep_unwritten: bool = False
) -> RuleSet:
    """Make the set of what was compiled; where all is as it is in force, that set itself is returned.

    `keep_unwritten`: domains that are in no file, because they came by changes, stay.
    """
    domains = {name: outcome.domain for name, outcome in compiled.domains.items() if outcome.domain is not None}
    changed: dict[str, Domain | None] = {
        name: None
        for name, held in in_force.domains.items()
        if name not in domains and (held.files or not keep_unwritten)
    }
    changed |= {name: domain for name, domain in domains.items() if domain is not in_force.domain(name)}
    if not changed and (compiled.overlay, layers) == (in_force.overlay, in_force.layers):
        return in_force
    return in_force.with_domains(changed).under(compiled.overlay, layers)
