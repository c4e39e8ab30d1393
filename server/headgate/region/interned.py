"""Values that many counters of a shard have in common, each kept as one object."""

from typing import Final

from headgate.limiter.limit import Algorithm, Limit, TrafficClass
from headgate.origin.protocol import WindowTerms

MOST_NUMBERS: Final = 4_096
"""Numbers kept: windows and allowances. There are few at a time; when there are more, all are let go."""
MOST_TERMS: Final = 4_096
"""Limits whose terms are kept; when there are more, all are made anew."""


class Interned:
    """The shared values of one shard session."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._terms: dict[int, tuple[Limit, WindowTerms]] = {}

    def number(self, number: int) -> int:
        """Return the same number as one object for all counters: each of its own would be 32 bytes more per key."""
        if len(self._numbers) >= MOST_NUMBERS:
            self._numbers.clear()
        return self._numbers.setdefault(number, number)

    def window_terms(self, limit: Limit, component: bytes, leaving: bool, within: bool) -> WindowTerms:
        """Return what reports of a component under a limit have in common: made once, and packed once per call."""
        kept = self._terms.get(id(limit))
        if kept is not None and kept[0] is limit:
            terms = kept[1]
            if terms.component is component and terms.leaving is leaving and terms.within is within:
                return terms
        if len(self._terms) >= MOST_TERMS:
            self._terms.clear()
        sliding, urgent = limit.algorithm is Algorithm.SLIDING_WINDOW, limit.traffic_class is TrafficClass.ABUSE
        terms = WindowTerms(
            component,
            limit.requests_per_unit,
            limit.window_ms,
            limit.precision,
            sliding,
            leaving,
            limit.publish_at,
            urgent,
            within,
        )
        self._terms[id(limit)] = limit, terms
        return terms
