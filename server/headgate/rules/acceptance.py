"""Accepting by domain: of a set with problems the good domains are taken, and a refused one keeps what it had."""

from collections.abc import Collection, Mapping

from headgate.rules.changes import marked, unmarked
from headgate.rules.compiling import Compiled
from headgate.rules.marks import NO_MARKS, Marks
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
    for name, problem in source.problems.items():
        found.setdefault(name, []).append(problem)
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
    """Put together the new files of good domains and those in force of refused ones, each with their marks; a domain in
    neither is gone."""
    new = [file for file in source.rules if (domain := compiled.files[file.id].domain) and domain not in refused]
    kept = [file for name in refused if (held := in_force.domain(name)) is not None for file in held.files]
    marks = {name: marks for name, marks in source.marks.items() if name not in refused}
    marks |= {name: marks for name, marks in in_force.marks().items() if name in refused}
    return source_of([*new, *kept], marks)


def accepted(
    compiled: Compiled,
    in_force: RuleSet,
    layers: tuple[SourceFile, ...],
    marks: Mapping[str, Marks],
    keep: Collection[str],
) -> RuleSet:
    """Make the set of what was compiled, under its marks; where all is as it is in force, that set itself is returned.

    `keep` names domains that stay as they are where they are in no file, because they came by changes.
    """
    domains = {
        name: _marked(outcome.domain, marks.get(name, NO_MARKS))
        for name, outcome in compiled.domains.items()
        if outcome.domain is not None
    }
    changed: dict[str, Domain | None] = {
        name: None
        for name, held in in_force.domains.items()
        if name not in domains and (held.files or name not in keep)
    }
    changed |= {name: domain for name, domain in domains.items() if domain is not in_force.domain(name)}
    if not changed and (compiled.overlay, layers) == (in_force.overlay, in_force.layers):
        return in_force
    return in_force.with_domains(changed).under(compiled.overlay, layers)


def _marked(domain: Domain, marks: Marks) -> Domain:
    return domain if domain.marks == marks else marked(unmarked(domain), marks)
