"""Callers that use most, and that are denied most: `GET /top`, from what a node knows anyway.

- *Admitted* is read from the counters themselves, when somebody asks: of the most recently used ones, those that use
  most of their limits now, by the limits' own algorithms. That is exact for this node's view, and costs a decision
  nothing. Who has more than the limit and its precision allow is said with by how much.
- *Denied* is a sketch over the last one to two minutes (telemetry/sketch.py), fed from denials in batches: a denial
  appends to a list, and housekeeping takes the list ten times a second. What does not fit the list is counted.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any, Final

from headgate.clock import Clock
from headgate.limiter.counter_table import CounterTable
from headgate.limiter.counters import KeyCounter
from headgate.limiter.decision import Charge
from headgate.limiter.limit import Algorithm, Limit
from headgate.limiter.rule_name import request_rule, rule_name
from headgate.limiter.usage import used_at
from headgate.rules.keys import decode_key, has_digest
from headgate.telemetry.sketch import Recent

PERIOD_S: Final = 60.0
SKETCH_SIZE: Final = 1_000
"""Denied keys that are followed: about 200 bytes each. Who has more than a thousandth of all denials is among them."""
LOOKED_AT: Final = 10_000
"""Most recently used counters, which are read when somebody asks: two milliseconds. Busy keys are among them."""
MOST_SHOWN: Final = 100
"""Keys in one answer, of each kind."""
KINDS: Final = ("denied", "admitted")

MOST_LIMITS: Final = 10 * SKETCH_SIZE
"""Before those are let go whose keys are no longer followed."""


class Top:
    """The heaviest users of one process. `denied` are charges that were over since it was last asked."""

    def __init__(
        self,
        denied: Callable[[], Sequence[Charge]],
        counters: CounterTable[Any],
        clock: Clock,
        time_of: Callable[[Any], int],
    ) -> None:
        self._denied = denied
        self._counters = counters
        self._clock = clock
        self._time_of = time_of
        """The time of a counter, in milliseconds: its shard's, where it has one."""
        self._recent: Recent[bytes] = Recent(SKETCH_SIZE, PERIOD_S)
        self._limits: dict[bytes, Limit] = {}
        """Limits of the keys in the sketch, and of some that were in it."""

    def take_denied(self) -> None:
        """Take in what was denied since the last time."""
        denied = self._denied()
        self._limits |= {charge.key: charge.limit for charge in denied}
        self._recent.take([charge.key for charge in denied], self._clock.monotonic())
        if len(self._limits) > MOST_LIMITS:
            self._limits = {key: self._limits[key] for key, _ in self._recent.most(2 * SKETCH_SIZE)}

    def describe(self, query: Mapping[str, str]) -> Mapping[str, Any]:
        """For `GET /top?limit=N`: rules with their heaviest keys, the most denied rule first."""
        self.take_denied()
        limit = asked_limit(query)
        rules: dict[tuple[str, str], dict[str, Any]] = {}
        for key, count in self._recent.most(MOST_SHOWN):
            _entry(rules, key, self._limits[key], "denied", limit, {"denied": count})
        for used, counter in self._heaviest():
            _entry(rules, counter.key, counter.limit, "admitted", limit, _usage(counter.limit, used))
        return {
            "denied_over_s": PERIOD_S * 2,
            "denied_may_be_low_by": self._recent.error,
            "rules": sorted(rules.values(), key=_weight, reverse=True),
        }

    def _heaviest(self) -> list[tuple[int, KeyCounter]]:
        """Those that use something of their limits now, with how much; who was only ever denied uses nothing."""
        seen = [(used_at(one, one.limit, self._time_of(one)), one) for one in self._counters.recent(LOOKED_AT)]
        used = [(amount, counter) for amount, counter in seen if amount]
        used.sort(key=lambda pair: pair[0] / max(1, _most(pair[1].limit)), reverse=True)
        return used[:MOST_SHOWN]


def asked_limit(query: Mapping[str, str]) -> int:
    """Number of keys of each kind that a query asks for."""
    text = query.get("limit", "10")
    return min(int(text), MOST_SHOWN) if text.isdecimal() else 10


def merge_tops(reports: Iterable[Mapping[str, Any]], limit: int) -> Mapping[str, Any]:
    """Merge the reports of several nodes: what they denied is added up, and of what is used each knows nearly all."""
    merged: dict[str, Any] = {"denied_over_s": PERIOD_S * 2, "denied_may_be_low_by": 0, "rules": []}
    rules: dict[tuple[str, str], dict[str, Any]] = {}
    for report in reports:
        merged["denied_may_be_low_by"] += report["denied_may_be_low_by"]
        for rule in report["rules"]:
            into = rules.setdefault((rule["domain"], rule["rule"]), {**rule, "denied": {}, "admitted": {}})
            for kind in KINDS:
                _merge(into[kind], rule[kind], kind)
    for rule in rules.values():
        rule |= {kind: sorted(rule[kind].values(), key=itemgetter(kind), reverse=True)[:limit] for kind in KINDS}
    merged["rules"] = sorted(rules.values(), key=_weight, reverse=True)
    return merged


def _merge(into: dict[tuple[str, ...], dict[str, Any]], entries: Iterable[dict[str, Any]], kind: str) -> None:
    for entry in entries:
        name = (*entry["values"], *entry["values"].values())
        there = into.get(name)
        if there is None:
            into[name] = dict(entry)
        elif kind == "denied":
            there[kind] += entry[kind]
        elif entry[kind] > there[kind]:
            # A node counts what the others of its region have admitted too: the newest view has most.
            there.update(entry)


def _entry(
    rules: dict[tuple[str, str], dict[str, Any]], key: bytes, of: Limit, kind: str, limit: int, fields: dict[str, Any]
) -> None:
    domain, steps, values = decode_key(key)
    name = rule_name(domain, of.name, steps) if steps else request_rule(domain)
    rule = rules.setdefault(
        (domain, name.id), {"domain": domain, "rule": name.id, "text": name.text, "denied": [], "admitted": []}
    )
    if len(rule[kind]) < limit:
        hashed = {"hashed": True} if has_digest(key) else {}
        rule[kind].append({"values": dict(values), **fields, **hashed})


def _most(limit: Limit) -> int:
    return limit.burst if limit.algorithm is Algorithm.GCRA else limit.requests_per_unit


def _usage(limit: Limit, used: int) -> dict[str, Any]:
    most = _most(limit)
    usage = {"admitted": used, "limit": most, "remaining": max(0, most - used)}
    return {**usage, "over_by": used - most} if used > most + limit.precision else usage


def _weight(rule: Mapping[str, Any]) -> tuple[int, int]:
    return sum(entry["denied"] for entry in rule["denied"]), sum(entry["admitted"] for entry in rule["admitted"])
