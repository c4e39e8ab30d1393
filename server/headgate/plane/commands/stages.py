"""Stages of a change, as its commands speak of them: flags, and lines while a rollout goes on."""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from headgate import plain_json
from headgate.console.output import EXIT_FAILED, EXIT_OK, printable, write
from headgate.percentages import ACCEPTS, millionths, percent
from headgate.plane.commands.asking import ask
from headgate.plane.rollouts import RolloutEnd
from headgate.v1 import rules_pb2 as pb

LOOK_S: Final = 0.5
"""Seconds between looks at rollouts."""
MOST_LOOKED_BACK: Final = 100
"""Entries among which the one that ended a rollout is looked for."""


def add_stage_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of commands that change rules."""
    parser.add_argument("--now", action="store_true", help="for everybody at once, also what is tighter for somebody")
    parser.add_argument(
        "--expect-denials",
        type=_share,
        metavar="N%",
        help="share of requests that the change may deny in addition; if it denies more, it is taken back "
        "(default: the plane's setting)",
    )
    parser.add_argument(
        "--follow",
        action=argparse.BooleanOptionalAction,
        help="stay until every rollout that the change began has ended, and say how it goes (default: on a terminal)",
    )


def _share(text: str) -> int:
    try:
        return millionths(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected {ACCEPTS}, found {text!r}") from None


def does_follow(args: argparse.Namespace) -> bool:
    """Return true if the command is to stay until rollouts have ended."""
    said = getattr(args, "follow", False)
    return sys.stdout.isatty() and not args.json if said is None else bool(said)


# Lines


def rollout_json(one: pb.Rollout) -> dict[str, Any]:
    """A rollout for programs."""
    counts = one.counts
    return {
        "domain": one.domain,
        "rollout": one.name,
        "share": percent(one.share),
        "stages": [percent(stage) for stage in one.stages],
        "stage_s": one.stage_ms / 1000,
        "expect_denials": percent(one.expect_denials),
        "who": one.who,
        "why": one.why,
        "changes": one.changes,
        "halted": one.halted,
        "waits_for": one.waits_for,
        "staged": {"decided": counts.staged_decided, "denied": counts.staged_denied},
        "in_force": {"decided": counts.base_decided, "denied": counts.base_denied},
    }


def rollout_line(one: pb.Rollout) -> str:
    """A rollout for people."""
    counts = one.counts
    said = f" ({one.why})" if one.why else ""
    figures = (
        f"denied {counts.staged_denied} of {counts.staged_decided}, "
        f"{counts.base_denied} of {counts.base_decided} by the rules in force"
    )
    halted = ", halted" if one.halted else ""
    waits = f", waits for {one.waits_for}" if one.waits_for else ""
    stages = ", ".join(percent(stage) for stage in (*one.stages, 1_000_000))
    return (
        f"{one.domain}: {one.changes} changes by {one.who}{said} at {percent(one.share)} of {stages}: "
        f"{figures}{halted}{waits}"
    )


# Following


def follow_rollouts(args: argparse.Namespace, begun: Sequence[pb.Rollout]) -> int:
    """Print a line for each step of these rollouts until all have ended; the exit status."""
    shown: dict[tuple[str, str], tuple[object, ...]] = {(one.domain, one.name): () for one in begun}
    ends: list[RolloutEnd] = []
    while shown:
        status = ask(args, "Status", pb.StatusRequest(), pb.StatusResponse)
        running = {(one.domain, one.name): one for one in status.rollouts}
        for name in [name for name in shown if name not in running]:
            del shown[name]
            ends.append(_ended(args, name[0]))
        for name, one in running.items():
            step = (one.share, one.halted, one.waits_for)
            if name in shown and shown[name] != step:
                shown[name] = step
                _tell(args, rollout_json(one), rollout_line(one))
        time.sleep(LOOK_S if shown else 0)
    return EXIT_OK if all(end is RolloutEnd.DONE for end in ends) else EXIT_FAILED


def _ended(args: argparse.Namespace, domain: str) -> RolloutEnd:
    """Look up how a domain's last rollout ended, and print it."""
    request = pb.HistoryRequest(domain=domain, most=MOST_LOOKED_BACK)
    history = ask(args, "History", request, pb.HistoryResponse)
    entry = next(_ends_of(domain, history.entries), pb.LogEntry())
    end = end_of(entry, domain)
    shown = {"domain": domain, "outcome": end.value, "index": entry.position.index, "who": entry.who, "why": entry.why}
    words = {RolloutEnd.DONE: "in force for everybody", RolloutEnd.ROLLED_BACK: "rolled back by the plane"}
    _tell(args, shown, f"{domain}: {words.get(end, f'ended by {entry.who}')}: {entry.why}")
    return end


def _ends_of(domain: str, entries: Iterable[pb.LogEntry]) -> Iterator[pb.LogEntry]:
    for entry in entries:
        if any(change.domain == domain and change.kind == pb.RECORD_KIND_STAGED for change in entry.changes):
            yield entry


def end_of(entry: pb.LogEntry, domain: str) -> RolloutEnd:
    """Say how an entry ended the rollout of a domain."""
    if not entry.carries_on:
        return RolloutEnd.CANCELLED
    kinds = {change.kind for change in entry.changes if change.domain == domain}
    return RolloutEnd.DONE if pb.RECORD_KIND_RULE in kinds else RolloutEnd.ROLLED_BACK


def _tell(args: argparse.Namespace, shown: dict[str, Any], line: str) -> None:
    write(plain_json.dumps(shown) if args.json else printable(line))
