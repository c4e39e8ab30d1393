"""Which limit a descriptor meets, from the same mappings that rules files hold.

`yaml.safe_load` of a rules file is what this takes. What it does not know (`quota_mode`, fields of newer servers) it
refuses rather than ignore.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from headgate_client.rates import split_rate
from headgate_client.testing.limits import FakeLimit
from headgate_client.unmet import Unmet

_KNOWN = {"key", "value", "rate_limit", "descriptors", "shadow_mode", "share_threshold"}
_IGNORED = {"detailed_metric", "value_to_metric", "metadata"}


@dataclass(slots=True)
class _Level:
    limit: FakeLimit | None = None
    shared: bool = False
    """All values that match have one counter."""
    below: dict[tuple[str, str], "_Level"] = field(default_factory=dict)
    """By key and value; the value is empty where every value matches."""

    def find(self, key: str, value: str) -> "tuple[_Level, str] | None":
        """The level of that entry, and the value that the rule has."""
        for there, level in self.below.items():
            if there == (key, value) and value:
                return level, value
        for (its_key, its_value), level in self.below.items():
            if its_key == key and "*" in its_value and _matches(its_value, value):
                return level, its_value
        level_of_all = self.below.get((key, ""))
        return None if level_of_all is None else (level_of_all, "")


def _matches(pattern: str, value: str) -> bool:
    return re.fullmatch(".*".join(map(re.escape, pattern.split("*"))), value, re.DOTALL) is not None


class FakeRules:
    """The rules of all domains."""

    def __init__(self) -> None:
        self._domains: dict[str, _Level] = {}

    def load(self, rules: Mapping[str, Any]) -> None:
        """Add the rules of one file."""
        domain = str(rules["domain"])
        self._add(domain, self._domains.setdefault(domain, _Level()), rules.get("descriptors", ()))

    def limit(self, domain: str, rate: str, entries: Mapping[str, str]) -> None:
        """Add one rule: `rate` like `5/minute`, and entries whose value is `*` for each value by itself."""
        requests, unit = split_rate("rate", rate)
        level = self._domains.setdefault(domain, _Level())
        for key, value in entries.items():
            level = level.below.setdefault((key, "" if value == "*" else value), _Level())
        level.limit = FakeLimit.of("rate", {"requests_per_unit": requests, "unit": unit}, shadow=False)

    def has_domain(self, domain: str) -> bool:
        """Return true if there are rules of that domain."""
        return domain in self._domains

    def match(self, domain: str, entries: Iterable[tuple[str, str]]) -> tuple[FakeLimit, tuple[object, ...]] | None:
        """The limit, and the key of its counter; None where nothing limits."""
        level = self._domains.get(domain)
        key: list[object] = [domain]
        for name, value in entries:
            found = None if level is None else level.find(name, value)
            if found is None:
                return None
            level, of_rule = found
            key += [name, of_rule, "" if level.shared else value]
        return None if level is None or level.limit is None else (level.limit, tuple(key))

    def unmet(self, domain: str, entries: Iterable[tuple[str, str]]) -> Unmet:
        """Why nothing limits a descriptor."""
        level = self._domains.get(domain)
        if level is None:
            return Unmet.NO_DOMAIN
        for name, value in entries:
            found = level.find(name, value)
            if found is None:
                return Unmet.NO_RULE
            level = found[0]
        return Unmet.NO_RULE if level.below else Unmet.EXEMPT

    def _add(self, where: str, level: _Level, descriptors: Sequence[Mapping[str, Any]]) -> None:
        for given in descriptors:
            name = f"{where}: {given['key']}={given.get('value', '')}"
            for unknown in given.keys() - _KNOWN - _IGNORED:
                raise ValueError(f"{name}: the fake knows no {unknown!r}")
            below = level.below.setdefault((str(given["key"]), str(given.get("value") or "")), _Level())
            below.shared = bool(given.get("share_threshold"))
            if "rate_limit" in given:
                below.limit = FakeLimit.of(name, given["rate_limit"], shadow=bool(given.get("shadow_mode")))
            self._add(name, below, given.get("descriptors", ()))
