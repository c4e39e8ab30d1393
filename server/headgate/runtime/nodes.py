"""A region's nodes, for people: `GET /nodes`, from the nodes' bulletins.

A node whose last bulletin is older than a few seconds does not answer, and is told by name. Sums are of those that
answer and know that somebody looks; which these are is told with them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from headgate.runtime.bulletin import Said
from headgate.runtime.top import merge_tops
from headgate.runtime.trend import merge_trends

SILENT_MS: Final = 6_000
"""Age of a bulletin at which its node counts as silent: three were missed."""
MOST_WAITED_S: Final = SILENT_MS // 1000
"""Seconds that the newest step waits for nodes that have not told of it."""
MOST_RULES: Final = 100
MOST_KEYS: Final = 10
"""Keys of each rule, of those that are denied most and those that use most."""
_WORST: Final = ("closed", "half_open", "open")
"""States of breakers, the worst last."""


def describe_nodes(told: Mapping[str, Any], grain_s: int) -> Mapping[str, Any]:
    """Describe every node, and what goes on on all together, in steps of `grain_s`."""
    said = _latest(told["bulletins"])
    answering = [one for one in said if _answers(one)]
    summed = [one for one in answering if str(grain_s) in one.get("trend", {})]
    common = _common_rules(answering)
    return {
        "region": told["region"],
        "node": told["node"],
        "live_nodes": told["live_nodes"],
        "error": told["error"],
        "nodes": [_node(one, common) for one in said],
        "summed": [one["node"] for one in summed],
        "trend": _trend([one["trend"][str(grain_s)] for one in summed], grain_s),
        "top": merge_tops([one["top"] for one in summed], MOST_KEYS),
        "rules": _rules(summed),
        "shards": _shards(answering),
    }


def _latest(bulletins: Iterable[Said]) -> list[Said]:
    """One bulletin of each node, by name: the newest, should it have been started again."""
    found: dict[str, Said] = {}
    for said in sorted(bulletins, key=lambda one: one["age_ms"], reverse=True):
        found[said["node"]] = said
    return [found[name] for name in sorted(found)]


def _answers(said: Said) -> bool:
    return said["age_ms"] < SILENT_MS and not said.get("unreadable")


def _common_rules(answering: Sequence[Said]) -> str:
    """Digest of the rules that most nodes have; of several, the one that came into force last."""
    counts = Counter(one["rules"]["digest"] for one in answering)
    newest = {one["rules"]["digest"]: one["rules"]["loaded_ms"] for one in answering}
    return max(counts, key=lambda digest: (counts[digest], newest[digest]), default="")


def _node(said: Said, common: str) -> dict[str, Any]:
    known = {name: said[name] for name in ("node", "run", "age_ms")}
    if said.get("unreadable"):
        return {**known, "answers": False, "unreadable": True}
    rules = {**said["rules"], "differ": said["rules"]["digest"] != common}
    told = {name: said[name] for name in ("version", "state", "started_ms", "shards")}
    return {**known, "answers": _answers(said), **told, "rules": rules}


def _trend(trends: Sequence[Mapping[str, Any]], grain_s: int) -> Mapping[str, Any]:
    """Add up decisions over time, up to the step that every node has told of: bulletins are some seconds apart."""
    latest = [trend["buckets"][-1]["begin_s"] for trend in trends if trend["buckets"]]
    # A clock that is far behind does not hold all others back.
    end_s = max(min(latest), max(latest) - MOST_WAITED_S) if latest else 0
    told = [
        {**trend, "buckets": [bucket for bucket in trend["buckets"] if bucket["begin_s"] <= end_s]} for trend in trends
    ]
    return merge_trends(told, grain_s)


def _rules(summed: Iterable[Said]) -> list[dict[str, Any]]:
    """Add up rates per second by rule; the busiest first."""
    rates: dict[tuple[str, ...], list[float]] = {}
    for one in summed:
        for domain, rule, value, *gained in one["rates"]:
            into = rates.setdefault((domain, rule, value), [0.0] * len(gained))
            into[:] = [sum(pair) for pair in zip(into, gained, strict=True)]
    busiest = sorted(rates.items(), key=lambda pair: sum(pair[1][:3]), reverse=True)[:MOST_RULES]
    names = ("within_limit", "over_limit", "shadow_over_limit", "near_limit")
    return [
        {"domain": domain, "rule": rule, "value": value, **dict(zip(names, gained, strict=True))}
        for (domain, rule, value), gained in busiest
    ]


def _shards(answering: Sequence[Said]) -> list[dict[str, Any]]:
    """Describe each shard as all nodes together see it."""
    numbers = sorted({told["shard"] for one in answering for told in one["shards"]})
    return [_shard(number, answering) for number in numbers]


def _shard(number: int, answering: Iterable[Said]) -> dict[str, Any]:
    """Tell the worst breaker, the nodes on which it is not closed, an error, and the calls of all nodes."""
    seen = [(one, told) for one in answering for told in one["shards"] if told["shard"] == number]
    rates = [gained for one, _ in seen for shard, *gained in one.get("calls", ()) if shard == number]
    calls, failures, answered, took_s = map(sum, zip(*rates, strict=True)) if rates else (0.0,) * 4
    return {
        "shard": number,
        "breaker": max((told["breaker"] for _, told in seen), key=_WORST.index),
        "not_closed_on": [one["node"] for one, told in seen if told["breaker"] != "closed"],
        "error": next((told["error"] for _, told in seen if told["error"]), ""),
        "calls": calls,
        "failures": failures,
        "mean_s": took_s / answered if answered else None,
    }
