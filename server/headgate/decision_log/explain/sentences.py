"""An explanation in plain sentences: what happened, by which rule, why, and when it would have been otherwise."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from headgate.console.times import seconds
from headgate.decision_log.explain.causes import BY_POLICY, NEVER, Cause, CauseKind
from headgate.decision_log.explain.surroundings import Ongoing, Surrounding
from headgate.decision_log.schema import DecisionRecord, Flag, text_of_time

_WHY: Final[Mapping[CauseKind, str]] = {
    CauseKind.LIMIT_LOWERED: "The limit was lowered from {limit_before} to {limit} at {at} (rules {version}, before "
    "{version_before}): under the old limit it would have been admitted.",
    CauseKind.RULE_ADDED: "The rule is new: it came into force at {at} with rules {version}; before, with "
    "{version_before}, no rule applied.",
    CauseKind.ANOTHER_RULE: "Since {at} (rules {version}) another rule applies: before, with {version_before}, it was "
    "{rule_before} with a limit of {limit_before}.",
    CauseKind.WINDOW_CHANGED: "The rule's window or algorithm was changed at {at} (rules {version}): it counts anew "
    "since then, and differently.",
    CauseKind.OVERRIDE: "The rule says {stated}, and this node enforced {enforced}: an operator has overridden the "
    "limit of this key{by}.",
    CauseKind.BLOCKED: "An operator had blocked {entry} at {at}, until {until} ({who}: {why}).",
    CauseKind.REGIONAL_PART: "The rule says {stated} for all regions together; this region enforced its part, "
    "{enforced} (scope {scope}, {active_regions} regions active).",
    CauseKind.SHARD_AWAY: "Shard {shard} was not being asked, because its breaker was open{since}: the rule's failure "
    "policy, on_error: {on_error}, decided.",
    CauseKind.SHARD_SLOW: "Shard {shard} did not answer within the deadline: the rule's failure policy, on_error: "
    "{on_error}, decided.",
    CauseKind.NO_COUNTER: "The node had no room for another counter: every one it had was waiting for a shard. The "
    "rule's failure policy, on_error: {on_error}, decided.",
    CauseKind.LIVE_NODES: "There were {live_nodes} nodes that could not ask each other, so this node counted its own "
    "hits as those of several: the counts it knew of would have had room.",
    CauseKind.FOREIGN_USAGE: "Other regions had used {counted}: without that it would have been admitted.",
    CauseKind.OTHER_NODES: "Other nodes of the region had admitted {counted}: without that it would have been "
    "admitted.",
    CauseKind.PREVIOUS_WINDOW: "The window before still counted with {counted}: without that it would have been "
    "admitted.",
    CauseKind.OWN_USAGE: "This node had itself admitted {counted} in the current window.",
    CauseKind.BURST_USED_UP: "The bucket was used up: {used} of {burst} tokens were in use.",
    CauseKind.ALWAYS_DENIED: "The limit is 0: it denies always.",
    CauseKind.COST_ABOVE_LIMIT: "The request's cost, {cost}, is more than the limit ever allows, {most}: it can never "
    "be admitted.",
    CauseKind.REQUEST_LIMIT: "The limit of {limit} came with the request itself, not from a rule.",
    CauseKind.ANOTHER_DESCRIPTOR: "This descriptor had room. The request was denied by another descriptor of it, which "
    "met rule {rules}.",
    CauseKind.SHADOW_RULE: "The rule is in shadow mode: it only counts what it would have denied.",
    CauseKind.SHADOW_MODE: "The whole server is in shadow mode: it denies nothing.",
    CauseKind.QUOTA_MODE: "The rule has quota_mode: it denies only together with the request's other such rules, and "
    "one of those had room.",
    CauseKind.NODE_RESTARTED: "The node had restarted at {at} and counts in memory alone: what was admitted before is "
    "not known to it.",
    CauseKind.KEY_RESET: "An operator had reset the key at {at} ({who}: {why}): what was admitted before no longer "
    "counted.",
    CauseKind.REGIONS_APART: "Regions did not hear each other since {since_at}: what the other ones admitted since "
    "then is not in this region's counts, which had {foreign} of them.",
    CauseKind.NOT_ITS_TURN: "The key was at its limit: its shard had nothing left when this node last asked, and a "
    "node asks about such a key only every now and then. By what the node knew, {counted} of {most}, something had "
    "just become free.",
    CauseKind.WITHIN_LIMIT: "It was within its limit.",
}

_SHORT: Final[Mapping[CauseKind, str]] = {
    CauseKind.FOREIGN_USAGE: "{counted} used in other regions",
    CauseKind.OTHER_NODES: "{counted} used on other nodes",
    CauseKind.PREVIOUS_WINDOW: "{counted} of the window before",
    CauseKind.OWN_USAGE: "{counted} used here",
    CauseKind.BURST_USED_UP: "the bucket is used up",
    CauseKind.ALWAYS_DENIED: "the limit is 0",
    CauseKind.COST_ABOVE_LIMIT: "the cost, {cost}, is above the limit",
    CauseKind.REQUEST_LIMIT: "the request's own limit",
    CauseKind.SHARD_AWAY: "shard {shard} is not asked, on_error: {on_error}",
    CauseKind.SHARD_SLOW: "shard {shard} was too late, on_error: {on_error}",
    CauseKind.NO_COUNTER: "no room for a counter, on_error: {on_error}",
    CauseKind.LIVE_NODES: "{live_nodes} nodes on their own",
    CauseKind.NOT_ITS_TURN: "at its limit, the shard is asked again soon",
}
"""Causes that follow from a record alone, in a few words."""

_MEANWHILE: Final[Mapping[Surrounding, str]] = {
    Surrounding.BREAKER_OPEN: "The breaker of shard {shard} was open since {at}{why}.",
    Surrounding.REGION_UNREACHED: "Region {region} could not be reached since {at}{why}.",
    Surrounding.REGIONS_NOT_HEARD: "Only {active} of {of} regions were heard since {at}.",
    Surrounding.RULES_REFUSED: "A change of the rules had been refused at {at}: rules {version} went on serving.",
    Surrounding.RULES_NOT_DELIVERED: "The source of the rules could not be read since {at}: rules {version} served on.",
    Surrounding.LAST_GOOD_RULES: "The rules could not be loaded at {at}: the last good ones, {version}, were served.",
    Surrounding.RULES_CHANGED: "New rules, {version}, had come into force at {at}; before, it was {version_before}.",
    Surrounding.NODE_STARTED: "Node {node} had started at {at}.",
    Surrounding.LIVE_NODES_CHANGED: "The region had {live_nodes} live nodes since {at}{before}.",
    Surrounding.SHARD_LOST_MEMORY: "Shard {shard} had lost its memory at {at}{why}; the nodes told it again what they "
    "knew.",
    Surrounding.SHARD_CLOCK_SET: "The clock of shard {shard} was set by {by_ms} ms at {at}.",
}

_SAID_BY: Final[Mapping[Surrounding, frozenset[CauseKind]]] = {
    Surrounding.RULES_CHANGED: frozenset(
        (CauseKind.LIMIT_LOWERED, CauseKind.RULE_ADDED, CauseKind.ANOTHER_RULE, CauseKind.WINDOW_CHANGED)
    ),
    Surrounding.NODE_STARTED: frozenset((CauseKind.NODE_RESTARTED,)),
}
"""Causes that say the same already."""


def sentences_of(
    record: DecisionRecord, causes: Sequence[Cause], meanwhile: Sequence[Ongoing], counts: Mapping[str, int]
) -> list[str]:
    """Say what happened, which rule, why, what counted, when it would have been admitted, what else was going on."""
    lines = [_what(record), _rule(record)]
    lines += [_why(cause) for cause in causes]
    if record.over or record.own or record.others or record.foreign:
        lines.append(_counted(record))
    lines += _when(record, {cause.kind for cause in causes})
    lines += [_going_on(one) for one in meanwhile if not _is_said(one, causes)]
    return [*lines, *doubts(counts)]


def _what(record: DecisionRecord) -> str:
    done = "admitted" if record.allowed else "denied"
    if record.allowed and record.over and record.shadow:
        done = "admitted, and would have been denied"
    if record.flags & Flag.REFUND:
        done += f", and gave {record.cost} back"
    where = f" by node {record.source.node} of region {record.source.region}" if record.source.node else ""
    trace = f", trace {record.trace}" if record.trace else ""
    return (
        f"The request was {done} at {text_of_time(record.time_ms)}{where}, by path {record.path} "
        f"(decision {record.id}, rules {record.version}{trace})."
    )


def _rule(record: DecisionRecord) -> str:
    terms = record.terms
    burst = f", burst {terms.burst}" if terms.algorithm == "gcra" else ""
    return (
        f"Rule {record.rule.id} of domain {record.rule.domain} applied ({record.rule.text}): "
        f"{terms.limit} per {terms.unit}{burst}, {terms.algorithm}, scope {terms.scope}."
    )


def _counted(record: DecisionRecord) -> str:
    if record.terms.algorithm == "gcra":
        in_use = f"Of the bucket's {record.terms.burst} tokens {record.own} were in use"
        return f"{in_use}; the request's cost was {record.cost}."
    previous = f", {record.previous_weight} of the previous window's {record.previous}" if record.previous else ""
    return (
        f"Counted were {record.counted} of {record.terms.limit}: {record.own} by this node, {record.others} by "
        f"others in the region, {record.foreign} by other regions{previous}; the request's cost was {record.cost}."
    )


def _why(cause: Cause) -> str:
    facts: dict[str, Any] = dict(cause.facts)
    if "at_ms" in facts:
        facts["at"] = text_of_time(facts["at_ms"])
    if "until_ms" in facts:
        facts["until"] = text_of_time(facts["until_ms"])
    since_ms = facts.get("since_ms")
    reason = f" ({facts['reason']})" if facts.get("reason") else ""
    facts["since_at"] = text_of_time(since_ms) if since_ms else ""
    facts["since"] = f" since {text_of_time(since_ms)}{reason}" if since_ms else ""
    facts["by"] = " ({who} at {at}: {why})".format(**facts) if facts.get("who") else ""
    if isinstance(facts.get("rules"), list):
        facts["rules"] = " and ".join(facts["rules"]) or "(not in these logs)"
    return _WHY[cause.kind].format(**facts)


def reason_of(causes: Sequence[Cause]) -> str:
    """Return the reason in a few words, as far as a record alone tells."""
    return "; ".join([_SHORT[cause.kind].format(**cause.facts) for cause in causes if cause.kind in _SHORT])


def _when(record: DecisionRecord, kinds: Collection[CauseKind]) -> list[str]:
    """Say when it would have been admitted, as far as that is known."""
    if not record.over or any(kind in NEVER for kind in kinds):
        return []
    if any(kind in BY_POLICY for kind in kinds):
        # What counts say does not matter while they can't be asked for.
        told = f"The caller was told to come again after {seconds(record.wait_ms)}"
        return [told + ": when the shard would answer again nobody could know."] if not record.allowed else []
    when = text_of_time(record.time_ms + record.wait_ms)
    return [f"It would have been admitted at {when}, {seconds(record.wait_ms)} later, if nothing else came."]


def _is_said(one: Ongoing, causes: Sequence[Cause]) -> bool:
    """Tell whether a cause names it."""
    if one.kind is Surrounding.BREAKER_OPEN:
        named = [cause.facts.get("shard") for cause in causes if cause.kind is CauseKind.SHARD_AWAY]
        return one.facts["shard"] in named
    return not _SAID_BY.get(one.kind, frozenset()).isdisjoint(cause.kind for cause in causes)


def _going_on(one: Ongoing) -> str:
    reason, before = one.facts.get("reason"), one.facts.get("live_nodes_before")
    words = {
        **one.facts,
        "at": text_of_time(one.since_ms),
        "why": f" ({reason})" if reason else "",
        "before": f"; before, it had {before}" if before is not None else "",
    }
    return _MEANWHILE[one.kind].format(**words)


def doubts(counts: Mapping[str, int]) -> list[str]:
    """Say what is missing in the logs."""
    lines = []
    if counts.get("dropped"):
        lines.append(f"The log has a hole: {counts['dropped']} decisions of that time are missing in it.")
    if counts.get("unread_blocks"):
        lines.append(
            f"The log has more about it than was read: {counts['unread_blocks']} blocks of decisions further from that "
            f"time were left out."
        )
    if counts.get("skipped_bytes"):
        lines.append(
            f"{counts['skipped_bytes']} bytes of the log could not be read: a process was killed while it "
            f"wrote, or a disk was full."
        )
    return lines
