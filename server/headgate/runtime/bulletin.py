"""A node's bulletin: what it says of itself, for whoever looks at its region.

A brief one is a few hundred bytes: name, version, state, rules in force, shards. What goes on (decisions over time, the
heaviest keys, rates of rules and shards) is said while somebody looks. It travels as compressed JSON, bounded; one that
would be longer is brief.
"""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from headgate import __version__
from headgate.origin.operations.bulletins import MAX_BULLETIN_BYTES
from headgate.region.node import RegionNode
from headgate.rules.status import RuleStatus
from headgate.rules.store import RuleStore
from headgate.runtime.context import ProcessContext
from headgate.runtime.identity import started_ms
from headgate.runtime.rates import Rates
from headgate.runtime.top import MOST_SHOWN, Top
from headgate.runtime.trend import Trend
from headgate.telemetry.tallies import Tallies, TallyName

FORMAT: Final = 1
"""Number of the format: a bulletin of another one is shown by name alone."""
MAX_PLAIN_BYTES: Final = 1024 * 1024
MOST_RULES: Final = 100
"""Rules with their rates, the busiest."""
MOST_REASONS: Final = 5
"""Reasons why newer rules are not in force here."""
MOST_REASON_CHARS: Final = 200

Said = Mapping[str, Any]
"""A bulletin, as JSON has it."""


class BulletinWriter:
    """Writes the bulletin of one process."""

    def __init__(
        self,
        context: ProcessContext,
        store: RuleStore,
        node: RegionNode | None,
        top: Top,
        trend: Trend,
        tallies: Tallies,
    ) -> None:
        self._context = context
        self._store = store
        self._node = node
        self._top = top
        self._trend = trend
        self._rules: Rates[TallyName] = Rates(lambda: _rule_counts(tallies), context.clock.monotonic)
        self._shards: Rates[int] = Rates(self._shard_counts, context.clock.monotonic)

    async def look(self) -> None:
        """Read the counters whose rates are told."""
        await self._rules.look()
        await self._shards.look()

    def write(self, grains: Iterable[str]) -> dict[str, Any]:
        """Say how this node is; with `grains`, seconds of a step each, also what goes on here."""
        said = self._brief()
        trends = {grain_s: self._trend.describe({"grain_s": grain_s}) for grain_s in grains}
        if trends:
            busiest = sorted(self._rules.last.items(), key=lambda pair: sum(pair[1][:3]), reverse=True)[:MOST_RULES]
            said["trend"] = trends
            said["top"] = self._top.describe({"limit": str(MOST_SHOWN)})
            said["rates"] = [[*name, *rates] for name, rates in busiest]
            said["calls"] = [[shard, *rates] for shard, rates in self._shards.last.items()]
        return said

    def _brief(self) -> dict[str, Any]:
        context = self._context
        shards = [] if self._node is None else self._node.describe()["shards"]
        return {
            "format": FORMAT,
            "node": context.identity.node,
            "run": context.run.decode(),
            "version": __version__,
            "state": context.state.value,
            "started_ms": started_ms(context.identity),
            "rules": self._rules_in_force(),
            "shards": [{**shard, "error": (shard["error"] or "")[:200]} for shard in shards],
        }

    def _rules_in_force(self) -> Said:
        """Say which rules are in force, how old they may be, and why newer ones are not."""
        status, feed = self._store.status, self._store.feed
        place = feed.describe()
        return {
            "version": str(status.version),
            "digest": status.version.digest,
            "loaded_ms": int(status.loaded_at * 1000),
            "in_sync": status.in_sync,
            "refused_domains": len(status.refused),
            "age_ms": max(0, self._context.clock.now_ms() - int(feed.looked_at * 1000)),
            "loading": self._store.loading,
            # Of a plane's log, which numbers its entries.
            "entry": place.get("index", 0),
            "head": place.get("head", 0),
            "why": list(reasons_of(status)),
        }

    def _shard_counts(self) -> Iterator[tuple[int, tuple[float, ...]]]:
        for link in () if self._node is None else self._node.links_in_use:
            stats = link.stats
            yield link.index, (stats.calls, stats.failures, sum(stats.durations), stats.durations_sum_s)


def reasons_of(status: RuleStatus) -> Iterator[str]:
    """Yield reasons why the rules in force are not the feed's, a few of them: by domain, or as the feed says."""
    for item in status.refused[:MOST_REASONS]:
        yield f"{item.domain}: {item.problems[0].reason}"[:MOST_REASON_CHARS]
    if not status.in_sync and not status.refused:
        yield from (problem.reason[:MOST_REASON_CHARS] for problem in status.last_error[:MOST_REASONS])


def _rule_counts(tallies: Tallies) -> Iterator[tuple[TallyName, tuple[float, ...]]]:
    for tally in tallies.all():
        within, over, shadow = (sum(counts.values()) for counts in (tally.within, tally.over, tally.shadow))
        yield tally.name, (within, over, shadow, tally.near)


def encode(said: Said) -> bytes:
    """Pack a bulletin; what goes on is left out where it is too long."""
    content = _packed(said)
    if len(content) <= MAX_BULLETIN_BYTES:
        return content
    brief = {name: value for name, value in said.items() if name not in ("trend", "top", "rates", "calls")}
    return _packed(brief)


def _packed(said: Said) -> bytes:
    return zlib.compress(json.dumps(said, separators=(",", ":")).encode(), 1)


def decode(run: bytes, content: bytes) -> dict[str, Any]:
    """Unpack a bulletin; of one that can't be read, garbled or of another format, the node's name is told."""
    opened = zlib.decompressobj()
    try:
        plain = opened.decompress(content, MAX_PLAIN_BYTES)
        said = json.loads(plain) if opened.eof else None
    except (zlib.error, ValueError, RecursionError):
        said = None
    if isinstance(said, dict) and _is_known(said):
        return said
    name = run.decode("utf-8", "replace")
    return {"node": name.rpartition("/")[0], "run": name, "unreadable": True}


def _is_known(said: Said) -> bool:
    kinds = {"node": str, "run": str, "state": str, "rules": dict, "shards": list}
    return said.get("format") == FORMAT and all(isinstance(said.get(name), kind) for name, kind in kinds.items())
