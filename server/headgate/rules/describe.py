"""The current rules for people, as `GET /rules` shows them.

The answer is bounded for any rule set: at most `MAX_RULES` rules, of one domain if the query names one, with the number
of all.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Any

from headgate.errors import BadRequest
from headgate.limiter.limit import MILLION, Algorithm, Limit
from headgate.limiter.rule_name import steps_text
from headgate.limiter.scopes import LimitsOfRegion
from headgate.limiter.shadows import Shadows
from headgate.rules.marks import lay_shadows
from headgate.rules.problems import Problem
from headgate.rules.ruleset import RuleInfo, RuleSet
from headgate.rules.status import RuleStatus
from headgate.rules.store import RuleStore

MAX_RULES = 1_000
"""About 250 KB of JSON, a few milliseconds of the loop. More is a job for the files themselves."""

MAX_PROBLEMS = 100

MAX_MARKS = 100
"""Rollouts and shadows that are shown."""

MAX_REFUSED = 20
"""Refused domains that are shown, each with `MAX_PROBLEMS`."""


def describe_rules(
    store: RuleStore, limits: LimitsOfRegion, shadows: Shadows, query: Mapping[str, str]
) -> Mapping[str, Any]:
    """Version, source, last error, what is staged or in shadow, and rules; `?domain=D` and `?limit=N` narrow these."""
    current = store.current
    limit = _limit(query.get("limit"))
    shown = list(islice(_chosen(current, query.get("domain")), limit))
    # The next request lays them too, but there may be none.
    lay_shadows(current.marks(), shadows)
    return {
        **_status(store.status),
        "feed": {**store.feed.describe(), "looked_at": _time(store.feed.looked_at)},
        "overlay": _overlay(store),
        "rollouts": [
            {"domain": name, "rollout": rollout.name, "share": rollout.share / MILLION, "changes": len(rollout.changes)}
            for name, marks in islice(current.marks().items(), MAX_MARKS)
            if (rollout := marks.rollout) is not None
        ],
        "shadows": [
            {"domain": domain, "rule": steps_text(shadow.path), "until": _time(shadow.until_ms / 1000)}
            for domain, shadow in islice(shadows.in_force(), MAX_MARKS)
        ],
        "domains": len(current.domains),
        "total": current.count,
        "shown": len(shown),
        "rules": [_rule(rule, limits.bind(rule.limit)) for rule in shown],
    }


def _chosen(rules: RuleSet, domain: str | None) -> Iterator[RuleInfo]:
    if domain is None:
        return rules.rules()
    if not rules.has_domain(domain):
        raise BadRequest(f"there is no domain {domain!r}")
    return rules.domains[domain].infos()


def _limit(text: str | None) -> int:
    if text is None:
        return MAX_RULES
    if not (text.isascii() and text.isdigit() and int(text) <= MAX_RULES):
        raise BadRequest(f"limit is a whole number from 0 to {MAX_RULES}")
    return int(text)


def _status(status: RuleStatus) -> dict[str, Any]:
    error = None
    if status.last_error_at is not None:
        error = {
            "at": _time(status.last_error_at),
            **_problems(status.last_error),
        }
    return {
        "version": str(status.version),
        "digest": status.version.digest,
        "loaded_at": _time(status.loaded_at),
        "source": status.source,
        "in_sync": status.in_sync,
        "accepted": status.accepted,
        "rejected": status.rejected,
        "last_error": error,
        "refused": [
            {
                "domain": item.domain,
                "since": _time(item.since),
                **_problems(item.problems),
            }
            for item in status.refused[:MAX_REFUSED]
        ],
        "refused_total": len(status.refused),
    }


def _overlay(store: RuleStore) -> dict[str, Any] | None:
    """Describe what lies over the rules, and what does not although somebody wrote it; None without an overlay."""
    state, report = store.overlay, store.current.overlay
    if state.feed is None:
        return None
    refused = state.refused
    return {
        "from": state.feed.describe()["from"],
        "in_sync": refused is None,
        "refused": refused and {"since": _time(refused.since), **_problems(refused.problems)},
        "entries": report.entries,
        "clashes": _problems(report.clashes),
        "unmatched": _problems(report.unmatched),
    }


def _problems(problems: Sequence[Problem]) -> dict[str, Any]:
    return {"problems": [str(problem) for problem in problems[:MAX_PROBLEMS]], "problems_total": len(problems)}


def _time(unix_s: float) -> str:
    return datetime.fromtimestamp(unix_s, UTC).isoformat(timespec="milliseconds")


def _rule(rule: RuleInfo, here: Limit) -> dict[str, Any]:
    limit = _describe_limit(rule.limit, here)
    described = {"domain": rule.domain, "rule": rule.rule, "id": rule.id, "place": rule.place, "limit": limit}
    return described | ({"origins": dict(rule.origins)} if rule.origins else {})


def _describe_limit(limit: Limit, here: Limit) -> dict[str, Any]:
    """Describe a rule's limit as its file says it, and the part of it that this region enforces."""
    if limit.unlimited:
        return {"unlimited": True, "name": limit.name}
    described: dict[str, Any] = {
        "requests_per_unit": limit.requests_per_unit,
        "unit": limit.unit.name.lower(),
        "unit_multiplier": limit.unit_multiplier,
        "algorithm": limit.algorithm.value,
        "precision": here.precision,
        "on_error": limit.on_error.value,
        "scope": here.scope_in_force.value,
    }
    if here.requests_per_unit != limit.requests_per_unit:
        described["enforced_here"] = here.requests_per_unit
    if limit.algorithm is Algorithm.GCRA:
        described["burst"] = limit.burst
    optional = {
        "overdraft": here.overdraft,
        "refund": here.refund,
        "name": limit.name,
        "class": limit.traffic_class and limit.traffic_class.value,
        "shadow_mode": limit.shadow,
        "quota_mode": limit.quota,
        "replaces": list(limit.replaces),
    }
    return described | {name: value for name, value in optional.items() if value}
