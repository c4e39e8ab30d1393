"""Rules as the plane holds them: one JSON text per rule, always the same for the same rule, and files made of them.

A rule's text has the fields that stand in a descriptor, without `key`, `value` and `descriptors`, which its path says;
defaults are left out. Of values with `*` the first that matches wins, so these have a `place` beside them: their order
in the file, from 0 on. One of them that has nothing of its own, and only leads on to others, says that (`leads_on`). A
domain's own fields are the rule with the empty path.
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headgate.clock import SystemClock
from headgate.errors import BadRequest
from headgate.limiter.rule_name import Steps
from headgate.plane.content import LEADS_ON, PLACE, own_text
from headgate.plane.entry import RuleChange
from headgate.rules import content
from headgate.rules.compiling import compile_source
from headgate.rules.model import RuleContent
from headgate.rules.one_rule import read_text
from headgate.rules.pace import Pace
from headgate.rules.problems import Problem, RulesError
from headgate.rules.ruleset import Domain, RuleSet
from headgate.rules.source import RulesSource, SourceFile
from headgate.rules.tree import KeySlot, Level
from headgate.rules.wildcards import is_pattern

_IN_THE_PATH: Final = ("key", "value", "descriptors")
_NOT_ASCII = re.compile(r"[^\x20-\x7e\n]")
Fields = dict[str, Any]


# From compiled rules


def rules_of(rules: RuleSet, domain: str) -> Iterator[RuleChange]:
    """Every rule of a domain of a compiled set, as puts, its own fields first."""
    compiled = rules.domains[domain]
    yield RuleChange(domain, (), dump(_own_fields(compiled)))
    places = {
        (*above, (slot.key, wildcard.pattern)): place
        for above, slot in _slots(compiled.level, ())
        for place, wildcard in enumerate(slot.ordered)
    }
    for path, rule in compiled.rules():
        place = {PLACE: places.pop(path)} if path in places else {}
        yield RuleChange(domain, path, dump(place | content.fields_of(rule)))
    for path, left in places.items():
        yield RuleChange(domain, path, dump({PLACE: left, LEADS_ON: True}))


def _own_fields(domain: Domain) -> Fields:
    fields = {"shard_by": domain.shard_by, "request_limits": domain.request_limits}
    return {name: str(value) for name, value in fields.items() if value}


def _slots(level: Level, above: Steps) -> Iterator[tuple[Steps, KeySlot]]:
    for slot in level.values():
        yield above, slot
        for value, node, _, _ in slot.rules():
            if node.children is not None:
                yield from _slots(node.children, (*above, (slot.key, value)))


def rule_content(change: RuleChange) -> RuleContent | None:
    """The rule of a put, as a rule set takes it; None for one that only leads on. Raises RulesError."""
    own = own_text(change.rule or b"{}")
    return None if own is None else read_text(change.domain, change.path, own)


# Texts


def dump(fields: Fields) -> bytes:
    """Write a rule's fields in the one way that they are written."""
    return content.canonical(fields)


def load(text: bytes) -> Fields:
    """Read a rule's fields. Raises BadRequest for what is no JSON object, or says what its path does."""
    try:
        fields = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"a rule is a JSON object: {error}") from None
    if not isinstance(fields, dict):
        raise BadRequest("a rule is a JSON object with the fields of a descriptor")
    for name in _IN_THE_PATH:
        if name in fields:
            raise BadRequest(f"`{name}` stands in the path of a rule, and not in its text")
    return fields


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


# Files


@dataclass(slots=True)
class _Node:
    fields: Fields = field(default_factory=dict)
    children: "dict[tuple[str, str], _Node]" = field(default_factory=dict)

    def in_order(self) -> "list[tuple[tuple[str, str], _Node]]":
        return sorted(self.children.items(), key=lambda item: _order(*item))


def _order(step: tuple[str, str], node: _Node) -> tuple[Any, ...]:
    """Order of one level. Of patterns with one place the longer comes first, which says more."""
    key, value = step
    return (key, *((node.fields.get(PLACE, 0), -len(value)) if is_pattern(key, value) else (0, 0)), value)


@dataclass(frozen=True, slots=True)
class DomainFile:
    """A rules file of one domain, each rule on a line of its own."""

    text: bytes
    paths: tuple[Steps, ...]
    """Path of the rule on each line."""


def domain_file(domain: str, rules: Mapping[Steps, Fields]) -> DomainFile:
    """Write a domain's rules as a file that the reader of rules takes."""
    root = _Node()
    for path, fields in rules.items():
        node = root
        for step in path:
            node = node.children.setdefault(step, _Node())
        node.fields = fields
    lines = [_json({"domain": domain, **root.fields})[:-1] + ', "descriptors": [']
    paths: list[Steps] = [()]
    _write(root, (), lines, paths)
    return DomainFile(("\n".join(lines) + "\n]}\n").encode(), tuple(paths))


def _write(node: _Node, above: Steps, lines: list[str], paths: list[Steps]) -> None:
    children = node.in_order()
    for number, (step, child) in enumerate(children):
        named = {"key": step[0], **({"value": step[1]} if step[1] else {})}
        fields = {name: value for name, value in child.fields.items() if name not in (PLACE, LEADS_ON)}
        end = "," if number + 1 < len(children) else ""
        paths.append((*above, step))
        if not child.children:
            lines.append(_json(named | fields) + end)
            continue
        lines.append(_json(named | fields)[:-1] + ', "descriptors": [')
        _write(child, (*above, step), lines, paths)
        lines[-1] += "]}" + end


def _json(fields: Fields) -> str:
    return _NOT_ASCII.sub(_escaped, json.dumps(fields, ensure_ascii=False))


def _escaped(match: re.Match[str]) -> str:
    """Escape a character that YAML does not print, as YAML reads it."""
    character = match[0]
    if character.isprintable() and character != "\ufeff":
        return character
    number = ord(character)
    return f"\\u{number:04x}" if number < 65536 else f"\\U{number:08x}"


# Checking


@dataclass(frozen=True, slots=True)
class RuleProblem:
    """A reason for which a change is refused."""

    domain: str
    path: Steps
    reason: str


def checked(
    domain: str, puts: Iterable[RuleChange], own_fields: bytes | None
) -> tuple[list[RuleChange], list[RuleProblem]]:
    """Check rules of one domain as `rules check` would, and write them in canonical form; or every problem of theirs.

    `own_fields` are the domain's where no put says them.
    """
    given, problems = _loaded(domain, puts)
    if problems:
        return [], problems
    if () not in given and own_fields is not None:
        found = _compile(domain, {(): load(own_fields), **given})
    else:
        found = _compile(domain, given)
    if not isinstance(found, RuleSet):
        return [], found
    canonical = {change.path: change for change in rules_of(found, domain)}
    return [_placed(canonical.get(path) or _bare(domain, path), fields) for path, fields in given.items()], []


def _loaded(domain: str, puts: Iterable[RuleChange]) -> tuple[dict[Steps, Fields], list[RuleProblem]]:
    given: dict[Steps, Fields] = {}
    problems: list[RuleProblem] = []
    for put in puts:
        try:
            given[put.path] = load(put.rule or b"{}")
            _check_place(put.path, given[put.path])
        except BadRequest as error:
            problems.append(RuleProblem(domain, put.path, str(error)))
    return given, problems


def _check_place(path: Steps, fields: Fields) -> None:
    place = fields.get(PLACE, 0)
    if LEADS_ON in fields and (fields[LEADS_ON] is not True or not fields.keys() <= {PLACE, LEADS_ON}):
        raise BadRequest("`leads_on: true` stands beside `place` alone")
    if fields.keys() & {PLACE, LEADS_ON} and not (path and is_pattern(*path[-1])):
        raise BadRequest("`place` and `leads_on` have a meaning for a value with a `*` in it only")
    if type(place) is not int or not 0 <= place < 2**31:
        raise BadRequest("`place` is a whole number, from 0 on")
    if not all(key for key, _ in path):
        raise BadRequest("a step of a path has no key")


def _bare(domain: str, path: Steps) -> RuleChange:
    """A rule that only leads on to others of the same call: without fields of its own."""
    return RuleChange(domain, path, dump({}))


def _placed(change: RuleChange, fields: Fields) -> RuleChange:
    """Give a rule the place that its author says: in the file that it was checked in it had another."""
    if not change.path or not is_pattern(*change.path[-1]):
        return change
    own = fields if LEADS_ON in fields else {**json.loads(change.rule or b"{}"), PLACE: fields.get(PLACE, 0)}
    return RuleChange(change.domain, change.path, dump(own))


def _compile(domain: str, given: Mapping[Steps, Fields]) -> RuleSet | list[RuleProblem]:
    file = domain_file(domain, given)
    source = RulesSource((SourceFile(domain, file.text, domain),))
    try:
        return compile_source(source, Pace(SystemClock()), merge_domains=False)
    except RulesError as error:
        return [RuleProblem(domain, _path_at(file, problem), problem.reason) for problem in error.problems]


def _path_at(file: DomainFile, problem: Problem) -> Steps:
    return file.paths[min(problem.line, len(file.paths)) - 1]
