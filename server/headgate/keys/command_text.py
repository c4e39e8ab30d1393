"""A limit key in sentences, for people: `headgate key` in a terminal."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from headgate.console.output import printable
from headgate.console.times import seconds
from headgate.endpoint.message_json import shown_time

MOST_RUNS: Final = 20
"""Runs of nodes that are shown with what they counted; JSON has all that the server tells."""


def lines_of(asked: str, reply: Any) -> list[str]:
    """Say what came of a question about the key that is called `asked`."""
    return [printable(line) for line in _SAID[reply.DESCRIPTOR.name](asked, reply)]


def _state(asked: str, state: Any) -> Iterator[str]:
    most = state.limit.burst or state.limit.requests_per_unit
    wait = f"; the next fits in {seconds(state.frees_in_ms)}" if state.frees_in_ms else ""
    yield f"{asked}: {state.used} of {most} used, {state.remaining} left{wait}."
    yield f"  rule      {state.rule}: {_limit(state.limit)}"
    if state.blocked:
        yield f"  blocked   {state.blocked}"
    if state.HasField("override"):
        yield f"  override  {_override_of(state.override)}; the rule says {_limit(state.rule_limit)}"
    runs = state.region.runs
    for run in runs[:MOST_RUNS]:
        yield f"  counted   {run.current} by {run.run}, {run.previous} in the window before"
    for region in state.region.regions:
        yield f"  counted   {region.current} by region {region.region}, {region.previous} in the window before"
    if len(runs) > MOST_RUNS or state.region.hidden:
        yield f"  and       {len(runs[MOST_RUNS:]) + state.region.hidden} more"
    if state.region_error:
        yield f"  origin    {state.region_error}"


def _reset(asked: str, reply: Any) -> Iterator[str]:
    where = ", and within about a second on every node of the region" if reply.number else ""
    yield f"{asked} is reset: its limit is whole again here{where}."


def _override(asked: str, override: Any) -> Iterator[str]:
    yield f"{asked} has a limit of {_override_of(override)}: on every node of the region within about a second."


def _removed(asked: str, reply: Any) -> Iterator[str]:
    yield f"{asked} {'has the limit of its rule again' if reply.removed else 'had no override'}."


def _list(_: str, reply: Any) -> Iterator[str]:
    for one in reply.overrides:
        entries = ",".join(f"{entry.key}={entry.value}" for entry in one.key.entries)
        applies = "" if one.applies else " (no rule has this key now)"
        yield f"{entries} of domain {one.key.domain}: {_override_of(one)}{applies}"
    if not reply.overrides:
        yield "no limit is overridden"


def _override_of(one: Any) -> str:
    limit = (
        f"{one.limit}" if one.WhichOneof("to") == "limit" else f"{one.factor_millionths / 1_000_000:g} times its own"
    )
    in_force = f", which is {_limit(one.limit_in_force)}," if one.HasField("limit_in_force") else ""
    return f"{limit}{in_force} until {shown_time(one.until_ms)}, by {one.who}: {one.why}"


def _limit(limit: Any) -> str:
    burst = f", a burst of {limit.burst}" if limit.burst else ""
    return f"{limit.requests_per_unit} in {seconds(limit.window_ms)} ({limit.algorithm}, scope {limit.scope}{burst})"


_SAID: Final[Mapping[str, Callable[[str, Any], Iterator[str]]]] = {
    "KeyState": _state,
    "ResetResponse": _reset,
    "Override": _override,
    "RemoveOverrideResponse": _removed,
    "ListOverridesResponse": _list,
}
