"""Decisions over the last five hours, at falling resolution: `GET /trend`, for the page.

Every two seconds housekeeping adds what was decided since the last time to one bucket of each grain: five minutes in
steps of 2 s, an hour in steps of 20 s, five hours in steps of two minutes. Denials are told apart by rule every 20 s,
for the rules that deny most; of finer buckets the last one of these 20 s has them. Buckets begin at whole multiples of
their grain, so those of several workers add up. Nothing is done on the way of a request.
"""

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from typing import Any, Final

from headgate.clock import Clock
from headgate.errors import BadRequest
from headgate.plan import HandlerStats
from headgate.telemetry.tallies import Tallies, TallyName

GRAINS: Final = {2: 150, 20: 180, 120: 150}
"""Seconds of a bucket, and how many there are."""
BY_RULE_S: Final = 20
"""Seconds after which denials are told apart by rule: ten thousand rules are looked at that often, in milliseconds."""
MOST_RULES: Final = 8
"""Rules of one bucket, those that denied most; the rest are one more, `(others)`."""
OTHERS: Final = ("", "(others)")

Rule = tuple[str, str]
"""Domain and id."""


class Bucket:
    """Decisions of one stretch of time, by outcome and path, and denials by rule."""

    __slots__ = ("begin_s", "decisions", "denials")

    def __init__(self, begin_s: int) -> None:
        self.begin_s = begin_s
        self.decisions: Counter[str] = Counter()
        self.denials: Counter[Rule] = Counter()

    def to_json(self) -> dict[str, Any]:
        """For the page."""
        told: dict[str, Any] = {"begin_s": self.begin_s, "decisions": dict(self.decisions)}
        if self.denials:
            told["denials"] = [[domain, rule, count] for (domain, rule), count in self.denials.most_common()]
        return told


class Trend:
    """Decisions of one process over time. `look` is called several times a second."""

    def __init__(self, stats: HandlerStats, tallies: Tallies, clock: Clock) -> None:
        self._stats = stats
        self._tallies = tallies
        self._clock = clock
        self._buckets = {grain_s: deque[Bucket](maxlen=most) for grain_s, most in GRAINS.items()}
        self._looked: dict[int, int] = {}
        """Bucket of each grain in which it was looked last."""
        self._decided = self._decisions_so_far()
        self._denied = self._denials_so_far()

    def look(self) -> None:
        """Take in what was decided since the last look, once in each bucket of the finest grain."""
        now_s = self._clock.now_ms() // 1000
        if self._is_new(min(GRAINS), now_s):
            so_far = self._decisions_so_far()
            self._add(now_s, decisions=so_far - self._decided)
            self._decided = so_far
        if self._is_new(BY_RULE_S, now_s):
            denied = self._denials_so_far()
            self._add(now_s, denials=_most(denied - self._denied))
            self._denied = denied

    def describe(self, query: Mapping[str, str]) -> Mapping[str, Any]:
        """For `GET /trend?grain_s=N`: buckets, the oldest first. Raises BadRequest."""
        grain_s = asked_grain(query)
        return {
            "grain_s": grain_s,
            "most": GRAINS[grain_s],
            "buckets": [one.to_json() for one in self._buckets[grain_s]],
        }

    def _is_new(self, grain_s: int, now_s: int) -> bool:
        """Return true once in each bucket; what has just begun has nothing yet."""
        before, self._looked[grain_s] = self._looked.get(grain_s), now_s // grain_s
        return before is not None and before != now_s // grain_s

    def _add(self, now_s: int, decisions: Counter[str] | None = None, denials: Counter[Rule] | None = None) -> None:
        """Add to the buckets in which the time before `now_s` lies."""
        for grain_s, buckets in self._buckets.items():
            begin_s = (now_s - 1) // grain_s * grain_s
            if not buckets or buckets[-1].begin_s < begin_s:
                buckets.append(Bucket(begin_s))
            if decisions:
                buckets[-1].decisions += decisions
            if denials:
                buckets[-1].denials = _most(buckets[-1].denials + denials)

    def _decisions_so_far(self) -> Counter[str]:
        stats = self._stats
        return Counter(
            {
                f"{outcome} {path}": count
                for outcome, counts in (("admitted", stats.admitted), ("denied", stats.denied))
                for path, count in counts.items()
            }
        )

    def _denials_so_far(self) -> Counter[Rule]:
        found: Counter[Rule] = Counter()
        for tally in self._tallies.all():
            found[_rule(tally.name)] += sum(tally.over.values())
        return found


def asked_grain(query: Mapping[str, str]) -> int:
    """Grain that a query asks for, in seconds. Raises BadRequest."""
    text = query.get("grain_s", str(min(GRAINS)))
    if text not in map(str, GRAINS):
        raise BadRequest(f"grain_s: one of {', '.join(map(str, GRAINS))}, seconds of a step")
    return int(text)


def merge_trends(reports: Iterable[Mapping[str, Any]], grain_s: int) -> Mapping[str, Any]:
    """Merge the reports of several nodes: what they decided at one time is added up."""
    merged: dict[int, Bucket] = {}
    for report in reports:
        for told in report["buckets"]:
            bucket = merged.setdefault(told["begin_s"], Bucket(told["begin_s"]))
            for name, count in told["decisions"].items():
                bucket.decisions[name] += count
            for domain, rule, count in told.get("denials", ()):
                bucket.denials[domain, rule] += count
    for bucket in merged.values():
        bucket.denials = _most(bucket.denials)
    buckets = [merged[begin_s].to_json() for begin_s in sorted(merged)][-GRAINS[grain_s] :]
    return {"grain_s": grain_s, "most": GRAINS[grain_s], "buckets": buckets}


def _rule(name: TallyName) -> Rule:
    return name.domain, name.rule


def _most(denials: Counter[Rule]) -> Counter[Rule]:
    """Keep the rules that denied most; what the others denied is added up."""
    rest = denials.pop(OTHERS, 0)
    kept = denials.most_common(MOST_RULES)
    rest += sum(denials.values()) - sum(count for _, count in kept)
    most = Counter({rule: count for rule, count in kept if count > 0})
    if rest > 0:
        most[OTHERS] = rest
    return most
