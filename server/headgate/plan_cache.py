"""Plans by the bytes of their requests: kept on second sight, and bounded in number and bytes."""

from collections import OrderedDict
from collections.abc import Collection
from typing import Final

from headgate.plan import AnswerSettings, HandlerStats, Plan

MAX_CACHED_REQUEST_BYTES: Final = 1024
"""Larger requests are planned each time. Ordinary ones are under 200 bytes; with the number of
entries this bounds the cache's memory, whatever callers send."""


class PlanCache:
    """Plans by the bytes of their requests, of bounded number and size."""

    def __init__(self, settings: AnswerSettings, stats: HandlerStats) -> None:
        self._most = settings.match_cache_entries
        self._most_bytes = settings.match_cache_bytes
        self._stats = stats
        self.clear()

    def clear(self) -> None:
        """Forget all plans."""
        self.plans: OrderedDict[bytes, Plan] = OrderedDict()
        self._seen_once: set[int] = set()
        self._seen_before: set[int] = set()
        self._stats.plan_bytes = 0

    def drop(self, keys: Collection[bytes]) -> None:
        """Forget the plans of requests that charge any of these keys."""
        gone = [payload for payload, plan in self.plans.items() if any(charge.key in keys for charge in plan.charges)]
        for payload in gone:
            self._stats.plan_bytes -= self.plans.pop(payload).size

    def remove(self, payload: bytes) -> None:
        """Forget the plan of one request, which is there."""
        self._stats.plan_bytes -= self.plans.pop(payload).size

    def add(self, payload: bytes, plan: Plan) -> None:
        """Keep a plan on second sight: a request that comes once, as in a flood of new values, is not worth it."""
        if len(payload) > MAX_CACHED_REQUEST_BYTES:
            return
        seen, name = self._seen_once, hash(payload)
        if name not in seen and name not in self._seen_before:
            # Two halves, of which the older one is forgotten as a whole.
            if len(seen) >= self._most // 2:
                self._seen_before, self._seen_once = seen, set()
            seen.add(name)
            return
        self.keep(payload, plan)

    def keep(self, payload: bytes, plan: Plan) -> None:
        """Keep a plan, and forget the oldest ones if there are too many."""
        stats = self._stats
        self.plans[payload] = plan
        stats.plan_bytes += plan.size
        stats.charges_kept += len(plan.charges)
        # First in, first out: a hot request is planned again once per turn of the cache,
        # which costs less than remembering at every hit that it was used.
        while len(self.plans) > self._most or stats.plan_bytes > self._most_bytes:
            stats.plan_bytes -= self.plans.popitem(last=False)[1].size
            stats.plans_evicted += 1
