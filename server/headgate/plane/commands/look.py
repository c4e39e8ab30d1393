"""`headgate rules status` and `history`: the head of a plane's log, who follows it, and what was changed."""

import argparse
import json
from typing import Any, Final

from headgate import plain_json
from headgate.console.output import EXIT_FAILED, EXIT_OK, printable, write
from headgate.console.parsers import Commands
from headgate.limiter.rule_name import steps_text
from headgate.plane.codec import decode_path
from headgate.plane.commands.asking import add_command, ask, has_in_force, shown_time
from headgate.plane.commands.stages import rollout_json, rollout_line
from headgate.v1 import rules_pb2 as pb

DEFAULT_ENTRIES: Final = 20
_KINDS: Final = {pb.RECORD_KIND_RULE: "rule", pb.RECORD_KIND_STAGED: "staged", pb.RECORD_KIND_SHADOW: "shadow"}
_WHOLE: Final = {
    pb.RECORD_KIND_RULE: "(its own fields)",
    pb.RECORD_KIND_STAGED: "(its rollout)",
    pb.RECORD_KIND_SHADOW: "(all rules)",
}
"""Names of records that have no path."""

_STATUS_EPILOG = """
exit status: 0 every follower has the last entry in force; 1 some have not; 2 error (the message is on stderr)

example:
  headgate rules status --token-file ops.token
"""
_HISTORY_EPILOG = """
exit status: 0; 2 error (the message is on stderr)

examples:
  headgate rules history --token-file ops.token
  headgate rules history --token-file ops.token --domain edge --changes --json
"""


def add_parsers(actions: Commands) -> None:
    """Add the commands."""
    add_command(actions, "status", "show a plane's version, and who has it in force", _status, epilog=_STATUS_EPILOG)
    history = add_command(
        actions, "history", "show who changed which rules of a plane, and why", _history, epilog=_HISTORY_EPILOG
    )
    history.add_argument("--domain", default="", metavar="D", help="only entries that change this domain")
    history.add_argument(
        "--most", type=int, default=DEFAULT_ENTRIES, metavar="N", help="entries (default: %(default)s)"
    )
    history.add_argument("--before", type=int, default=0, metavar="INDEX", help="only entries before this one")
    history.add_argument("--changes", action="store_true", help="with each rule that was changed")


def _status(args: argparse.Namespace) -> int:
    status = ask(args, "Status", pb.StatusRequest(), pb.StatusResponse)
    behind = [state for state in status.followers if not has_in_force(state, status.head)]
    if args.json:
        write(plain_json.dumps(_status_json(status), indent=2))
    else:
        for line in _status_lines(status):
            write(printable(line))
    return EXIT_FAILED if behind else EXIT_OK


def _status_json(status: pb.StatusResponse) -> dict[str, Any]:
    return {
        "plane": status.head.plane,
        "head": status.head.index,
        "version": status.head.version,
        "made": shown_time(status.head_made_ms),
        "rules": status.rules,
        "domains": {one.domain: one.version for one in status.named},
        "role": "relay" if status.upstream else "root",
        "age_s": (status.now_ms - status.fresh_ms) / 1000,
        "nodes": [_node_json(state, status) for state in status.followers],
        "rollouts": list(map(rollout_json, status.rollouts)),
        "shadows": list(map(_shadow_json, status.shadows)),
    }


def _shadow_json(one: pb.Shadow) -> dict[str, Any]:
    return {
        "domain": one.domain,
        "rule": steps_text(decode_path(one.path)),
        "until": shown_time(one.until_ms),
        "who": one.who,
        "why": one.why,
    }


def _shadow_line(one: pb.Shadow) -> str:
    said = f" ({one.why})" if one.why else ""
    rules = steps_text(decode_path(one.path)) or "all rules"
    return f"{one.domain}: {rules} in shadow until {shown_time(one.until_ms)}, by {one.who}{said}"


def _node_json(state: pb.Follower, status: pb.StatusResponse) -> dict[str, Any]:
    return {
        "node": state.name,
        "region": state.region,
        "software": state.software,
        "role": "relay" if state.relay else "node",
        "index": state.has.index,
        "version": state.has.version,
        "since": shown_time(state.since_ms),
        "age_s": state.age_ms / 1000,
        "in_force": has_in_force(state, status.head),
        "refused": {item.domain: item.reason for item in state.refused},
    }


def _status_lines(status: pb.StatusResponse) -> list[str]:
    head = status.head
    lines = [
        f"entry {head.index}, version {head.version}, made {shown_time(status.head_made_ms)}",
        f"{status.rules} rules in {status.domains} domains; log {head.plane}",
    ]
    if status.upstream:
        age_s = (status.now_ms - status.fresh_ms) / 1000
        lines.append(f"relay of {status.upstream}, {age_s:.1f} s old")
    in_force = sum(has_in_force(state, head) for state in status.followers)
    lines.append(f"in force on {in_force} of {len(status.followers)} followers")
    for state in status.followers:
        if not has_in_force(state, head):
            old = f"{state.age_ms / 1000:.1f} s old"
            lines.append(f"  {state.name} ({state.region}, {state.software}): entry {state.has.index}, {old}")
            lines += [f"    refuses {item.domain}: {item.reason}" for item in state.refused]
    return [*lines, *map(rollout_line, status.rollouts), *map(_shadow_line, status.shadows)]


def _history(args: argparse.Namespace) -> int:
    request = pb.HistoryRequest(before=args.before, most=args.most, domain=args.domain, with_changes=args.changes)
    history = ask(args, "History", request, pb.HistoryResponse)
    if args.json:
        write(plain_json.dumps([_entry_json(entry, with_changes=args.changes) for entry in history.entries], indent=2))
        return EXIT_OK
    for entry in history.entries:
        at = entry.position
        domains = ", ".join(dict.fromkeys(change.domain for change in entry.changes))
        said = f" ({entry.why})" if entry.why else ""
        whose = f"{entry.who} for {entry.carries_on}" if entry.carries_on else entry.who
        write(printable(f"{at.index}  {shown_time(entry.made_ms)}  {at.version}  {whose}: {domains}{said}"))
        for change in entry.changes if args.changes else ():
            write(printable(f"    {change.domain}: {_change_text(change)}"))
    return EXIT_OK


def _change_text(change: pb.RuleChange) -> str:
    path = steps_text(decode_path(change.path)) or _WHOLE[change.kind]
    kind = f" ({_KINDS[change.kind]})" if change.kind else ""
    return f"{path}{kind}: {change.rule.decode() if change.HasField('rule') else 'deleted'}"


def _entry_json(entry: pb.LogEntry, *, with_changes: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "index": entry.position.index,
        "version": entry.position.version,
        "predecessor": entry.predecessor,
        "made": shown_time(entry.made_ms),
        "who": entry.who,
        "why": entry.why,
        "carries_on": entry.carries_on,
        "domains": list(dict.fromkeys(change.domain for change in entry.changes)),
    }
    if with_changes:
        shown["changes"] = [
            {
                "domain": change.domain,
                "kind": _KINDS[change.kind],
                "path": [[step.key, step.value] for step in change.path],
                "rule": json.loads(change.rule) if change.HasField("rule") else None,
            }
            for change in entry.changes
        ]
    return shown
