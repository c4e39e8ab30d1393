"""Changes of rule sets, rule by rule: what an entry of a log, or a call, does to a set, aside from the one in force.

A change costs the nodes on the way to its rule; everything else is shared with the set before it. Several changes are
made all or none, in their order; rules that change in a row are one walk.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from headgate.limiter.rule_name import Steps, steps_text
from headgate.rules.content import added, form_of, order_number, rule_head, rule_number, settings_number
from headgate.rules.marked import MarkedDomain
from headgate.rules.marks import NO_MARKS, Marks, Rollout, SlotOrder
from headgate.rules.model import RuleContent
from headgate.rules.problems import Problem, RulesError
from headgate.rules.request_limits import RequestLimits
from headgate.rules.ruleset import MOST_TRAIL, Domain, RuleSet, Trail
from headgate.rules.sharding import SHARED_BUT_SHARDED, split_counters
from headgate.rules.tree import Level, RuleNode
from headgate.rules.tree_edit import RuleEdit, node_at, patterns_at, reordered, rule_at, with_rules
from headgate.rules.wildcards import is_pattern

LEAVES_KEPT: Final = 4_096
"""Limits that rules which come one by one share: as many as most sets have."""


@dataclass(frozen=True, slots=True)
class Put:
    """A rule comes to a path of a domain, or takes the place of the one that is there."""

    domain: str
    path: Steps
    rule: RuleContent


@dataclass(frozen=True, slots=True)
class Delete:
    """The rule at a path goes, if there is one; those below it stay. Without a path the whole domain goes."""

    domain: str
    path: Steps = ()


@dataclass(frozen=True, slots=True)
class DomainSettings:
    """A domain has these settings from now on, and comes to be if there was none."""

    domain: str
    shard_by: str = ""
    request_limits: RequestLimits | None = None


@dataclass(frozen=True, slots=True)
class DomainMarks:
    """A domain has these marks from now on, and no others."""

    domain: str
    marks: Marks


@dataclass(frozen=True, slots=True)
class Reorder:
    """The wildcards of a key stand in this order from now on."""

    domain: str
    order: SlotOrder


Change = Put | Delete | DomainSettings | DomainMarks | Reorder


_Rules = dict[Steps, RuleContent | None]
"""Rules that come to paths of a domain, or, with None, go: in any order."""


def changed(rules: RuleSet, changes: Iterable[Change]) -> RuleSet:
    """Make the set that these changes lead to. Raises `RulesError`, and then nothing came of any of them."""
    by_domain: dict[str, list[Change]] = {}
    for change in changes:
        by_domain.setdefault(change.domain, []).append(change)
    domains = {name: _changed_domain(name, rules.domain(name), some) for name, some in by_domain.items()}
    return rules.with_domains({name: domain for name, domain in domains.items() if domain is not rules.domain(name)})


def _changed_domain(name: str, domain: Domain | None, changes: Iterable[Change]) -> Domain | None:
    for step in _steps(changes):
        domain = _changed_marked(domain, step) if isinstance(domain, MarkedDomain) else _changed(name, domain, step)
    return domain


def _steps(changes: Iterable[Change]) -> Iterator[Change | _Rules]:
    """Put rules together that change in a row, where their order means nothing: that of wildcards does."""
    rules: _Rules = {}
    for change in changes:
        rule = _one_rule(change)
        if rule is not None and not any(is_pattern(*step) for step in rule[0]) and rule[0] not in rules:
            rules[rule[0]] = rule[1]
            continue
        if rules:
            yield rules
        rules = {}
        yield change if rule is None else dict([rule])
    if rules:
        yield rules


def _one_rule(change: Change) -> tuple[Steps, RuleContent | None] | None:
    if isinstance(change, Put):
        return change.path, change.rule
    return (change.path, None) if isinstance(change, Delete) and change.path else None


def _changed(name: str, domain: Domain | None, step: Change | _Rules) -> Domain | None:
    if isinstance(step, Delete):
        return None
    if isinstance(step, Reorder):
        return None if domain is None else _reordered(domain, step.order)
    if domain is None:
        domain = Domain(name, {}, total=0, count=0)
        if isinstance(step, dict) and all(rule is None for rule in step.values()):
            return None
    if isinstance(step, DomainMarks):
        return marked(domain, step.marks)
    if isinstance(step, DomainSettings):
        return _with_settings(domain, step)
    return _with_rules(domain, step) if isinstance(step, dict) else domain


def _changed_marked(domain: MarkedDomain, step: Change | _Rules) -> Domain | None:
    """Change the base, and with it the staged rules: those that the rollout changes are not changed beside it."""
    if isinstance(step, DomainMarks):
        return domain if step.marks == domain.marks else marked(domain.base, step.marks)
    base = _changed(domain.name, domain.base, step)
    if base is None or base is domain.base:
        return None if base is None else domain
    staged = None if domain.staged is None else _changed(domain.name, domain.staged, step)
    return MarkedDomain(base, domain.marks, staged)


def marked(base: Domain, marks: Marks) -> Domain:
    """Lay marks over a domain that has none. Raises `RulesError` for staged rules that make no sense there."""
    if marks == NO_MARKS:
        return base
    rollout = marks.rollout
    return MarkedDomain(base, marks, None if rollout is None else _staged(base, rollout))


def unmarked(domain: Domain) -> Domain:
    """Return the domain without its marks."""
    return domain.base if isinstance(domain, MarkedDomain) else domain


def _staged(base: Domain, rollout: Rollout) -> Domain:
    domain = base
    for path, rule in rollout.changes:
        domain = _with_rules(domain, {path: rule})
    for order in rollout.orders:
        level = reordered(domain.level, order.above, order.key, order.patterns)
        domain = _with_level(domain, level, domain.total, domain.count, ())
    return domain


def _with_rules(domain: Domain, rules: _Rules) -> Domain:
    edits: dict[Steps, RuleEdit] = {}
    numbers: list[int] = []
    count = domain.count
    for path, rule in rules.items():
        before = rule_at(domain.level, path)
        forms = [None if item is None else form_of(item) for item in (before, rule)]
        if forms[0] == forms[1]:
            continue
        if rule is not None:
            _check_shared(domain, path, rule)
        key, value = path[-1]
        head = rule_head(path[:-1], key)
        left, right = (0 if form is None else rule_number(head, value, form) for form in forms)
        numbers += (right, -left)
        count += _limits_in(rule) - _limits_in(before)
        edits[path] = RuleEdit(rule, None if rule is None or forms[1] is None else _leaf(forms[1], rule))
    if not edits:
        return domain
    level, orders = with_rules(domain.level, edits)
    return _with_level(domain, level, added(domain.total, *numbers, orders), count, _trail(domain, edits))


def _reordered(domain: Domain, order: SlotOrder) -> Domain:
    above, key = order.above, order.key
    level = reordered(domain.level, above, key, order.patterns)
    before, after = (patterns_at(item, above, key) for item in (domain.level, level))
    if before == after:
        return domain
    numbers = order_number(above, key, after), -order_number(above, key, before)
    trail = _trail(domain, [(*above, (key, ""))])
    return _with_level(domain, level, added(domain.total, *numbers), domain.count, trail)


def _trail(domain: Domain, paths: Iterable[Steps]) -> Trail:
    """Put the places of a change before those of former ones; the last of its places names the version before it."""
    places = list(dict.fromkeys(_first_step(path) for path in paths))
    if len(places) > MOST_TRAIL:
        return ()
    own = [(domain.version if place == places[-1] else "", *place) for place in places]
    return (*own, *domain.trail)[:MOST_TRAIL]


def _first_step(path: Steps) -> tuple[str, str | None]:
    key, value = path[0]
    return key, value if value and not is_pattern(key, value) else None


def _limits_in(rule: RuleContent | None) -> int:
    return int(rule is not None and rule.limit is not None)


def _with_level(domain: Domain, level: Level, total: int, count: int, trail: Trail) -> Domain:
    return Domain(
        domain.name,
        level,
        total=total,
        count=count,
        shard_by=domain.shard_by,
        request_limits=domain.request_limits,
        paths=domain.paths,
        trail=trail,
        under=domain.under,
    )


def _with_settings(domain: Domain, said: DomainSettings) -> Domain:
    if said.shard_by != domain.shard_by:
        found = [reason for _, reason in split_counters(domain.level, said.shard_by, lambda: None)]
        if found:
            raise RulesError([Problem(domain.name, 1, reason) for reason in found])
    before = settings_number(domain.shard_by, domain.request_limits)
    after = settings_number(said.shard_by, said.request_limits)
    return Domain(
        domain.name,
        domain.level,
        total=added(domain.total, after, -before),
        count=domain.count,
        shard_by=said.shard_by,
        request_limits=said.request_limits,
        paths=domain.paths,
    )


def _check_shared(domain: Domain, path: Steps, rule: RuleContent) -> None:
    key, pattern = path[-1]
    above = [step[0] for step in path[:-1]]
    if rule.shared and key == domain.shard_by and key not in above:
        reason = SHARED_BUT_SHARDED.format(key=key, pattern=pattern)
        raise RulesError([Problem(f"{domain.name}: {steps_text(path)}", 1, reason)])


_leaves: dict[bytes, RuleNode] = {}


def _leaf(form: bytes, rule: RuleContent) -> RuleNode:
    """The leaf that all rules share which say this; forgotten when there are too many, which costs memory only."""
    leaf = _leaves.get(form)
    if leaf is None:
        if len(_leaves) >= LEAVES_KEPT:
            _leaves.clear()
        leaf = _leaves[form] = RuleNode(rule.limit, None, is_rule=True)
        leaf.form = form
    return leaf


# From one state of a domain to another


def changes_between(name: str, old: Domain | None, new: Domain | None) -> Iterator[Change]:
    """The changes that lead from one state of a domain to another, as few as the order of wildcards allows."""
    if new is None:
        if old is not None:
            yield Delete(name)
        return
    if old is None or (old.shard_by, old.request_limits) != (new.shard_by, new.request_limits):
        yield DomainSettings(name, new.shard_by, new.request_limits)
    before, after = dict(() if old is None else old.rules()), dict(new.rules())
    moved = _moved({} if old is None else old.level, new.level, ())
    yield from (Delete(name, path) for path in before if path not in after or _is_below(path, moved))
    for path, rule in after.items():
        if before.get(path) != rule or _is_below(path, moved):
            yield Put(name, path, rule)


def _moved(old: Level, new: Level, above: Steps) -> set[Steps]:
    """Paths of wildcards that must go and come again, with all below them, to stand in the new order."""
    found: set[Steps] = set()
    for key, slot in new.items():
        had = old.get(key)
        if had is None:
            continue
        wanted = [wildcard.pattern for wildcard in slot.ordered]
        stays = [wildcard.pattern for wildcard in had.ordered if wildcard.pattern in wanted]
        result = stays + [pattern for pattern in wanted if pattern not in stays]
        same = next((at for at, pattern in enumerate(wanted) if result[at] != pattern), len(wanted))
        found |= {(*above, (key, pattern)) for pattern in wanted[same:]}
        for value, node, _, _ in slot.rules():
            own = node_at(old, ((key, value),)) if node.children is not None else None
            if own is not None and own[0].children is not None and own[0] is not node:
                found |= _moved(own[0].children, node.children or {}, (*above, (key, value)))
    return found


def _is_below(path: Steps, moved: set[Steps]) -> bool:
    return bool(moved) and any(path[:length] in moved for length in range(1, len(path) + 1))
