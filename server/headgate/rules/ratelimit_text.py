"""The rules in the words of envoyproxy/ratelimit, as its debug port shows them: a line for each limit."""

from collections.abc import Iterator
from itertools import islice

from headgate.limiter.rule_name import Steps
from headgate.rules.ruleset import RuleSet

MAX_LINES = 10_000
"""About a megabyte; the last line says how many more there are."""


def ratelimit_text(rules: RuleSet) -> str:
    """Return a line for each rule: its full name, unit, count and shadow mode."""
    lines = list(islice(_lines(rules), MAX_LINES))
    more = rules.count - len(lines)
    return "".join(lines) + (f"# {more} more\n" if more > 0 and len(lines) == MAX_LINES else "")


def full_key(domain: str, steps: Steps) -> str:
    """Return a rule's name in ratelimit: `edge.user_alice.path_/login`; a key without a value is the key alone."""
    return ".".join([domain, *(f"{key}_{value}" if value else key for key, value in steps)])


def _lines(rules: RuleSet) -> Iterator[str]:
    for domain in rules.domains.values():
        for steps, limit in domain.limits():
            name, shadow = full_key(domain.name, steps), str(limit.shadow).lower()
            if limit.unlimited:
                yield f"{name}: unlimited, shadow_mode: {shadow}\n"
            else:
                unit = limit.unit.name.upper()
                yield f"{name}: unit={unit} requests_per_unit={limit.requests_per_unit}, shadow_mode: {shadow}\n"
