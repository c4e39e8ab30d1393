"""Parts that the commands of a plane share: their flags, sending changes, waiting for followers, printing."""

import argparse
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

from headgate import plain_json
from headgate.console.admin_call import call
from headgate.console.output import EXIT_FAILED, EXIT_OK, printable, warn, write
from headgate.console.parsers import Commands
from headgate.console.target import add_target
from headgate.limiter.rule_name import steps_text
from headgate.plane.codec import SERVICE, decode_path, encode_change
from headgate.plane.entry import MOST_CHANGES, RuleChange
from headgate.v1 import rules_pb2 as pb

DEFAULT_ADDR: Final = "127.0.0.1:8083"
TIMEOUT_S: Final = 30.0
"""Seconds for a call: the check of 10,000 rules takes some."""
MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
"""Bytes of rules in one call, well below the largest message."""
LOOK_S: Final = 0.1
"""Seconds between looks at the followers."""

Command = Callable[[argparse.Namespace], int]


def add_command(
    actions: Commands, name: str, text: str, command: Command, *, epilog: str, changes: bool = False
) -> argparse.ArgumentParser:
    """Add a command that asks a plane."""
    parser = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", epilog=epilog)
    add_target(parser, DEFAULT_ADDR)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=command, timeout=TIMEOUT_S)
    if changes:
        parser.add_argument("--why", default="", metavar="TEXT", help="why, for the history")
        parser.add_argument(
            "--expect", default="", metavar="VERSION", help="refuse unless this is the version at the head"
        )
        parser.add_argument(
            "--wait",
            type=float,
            default=10.0,
            metavar="S",
            help="seconds to wait until every follower has it in force; 0 does not wait (default: %(default)s)",
        )
    return parser


def ask(args: argparse.Namespace, method: str, request: Any, answer: type[Any]) -> Any:
    """Ask the plane. Raises ConfigError."""
    return call(args, args.addr, f"/{SERVICE}/{method}", request, answer, args.timeout)


# Changing


def batches(changes: Sequence[RuleChange]) -> Iterator[list[pb.RuleChange]]:
    """Split changes into calls; what is deleted goes last, so that no caller is without a rule meanwhile."""
    ordered = sorted(changes, key=lambda change: change.rule is None)
    batch: list[pb.RuleChange] = []
    size = 0
    for change in ordered:
        message = encode_change(change)
        size += message.ByteSize()
        if batch and (len(batch) == MOST_CHANGES or size > MAX_BATCH_BYTES):
            yield batch
            batch, size = [], message.ByteSize()
        batch.append(message)
    if batch:
        yield batch


def send(args: argparse.Namespace, changes: Sequence[RuleChange], expect: str) -> pb.ChangeResponse:
    """Send changes, in several calls where they are too many for one; the answer to the last, or the first refusal."""
    answer, sent = pb.ChangeResponse(), 0
    for batch in batches(changes):
        request = pb.ChangeRequest(changes=batch, why=args.why, expect=expect)
        answer = ask(args, "Change", request, pb.ChangeResponse)
        expect = answer.position.version
        if answer.problems:
            break
        sent += answer.changed
        if len(changes) > len(batch):
            warn(f"{sent} of {len(changes)} changes made")
    answer.changed = sent
    return answer


def conclude(args: argparse.Namespace, answer: pb.ChangeResponse) -> int:
    """Print what came of a change, and wait until it is in force; the exit status."""
    if answer.problems:
        return _refused(args, answer)
    followers, behind, waited_s = wait_for_followers(args, answer.position) if answer.changed else (0, [], 0.0)
    shown = {
        "index": answer.position.index,
        "version": answer.position.version,
        "changed": answer.changed,
        "followers": followers,
        "behind": [state.name for state in behind],
        "waited_s": round(waited_s, 3),
    }
    if args.json:
        write(plain_json.dumps(shown, indent=2))
    elif not answer.changed:
        write(f"nothing to change: entry {answer.position.index}, version {answer.position.version}")
    else:
        write(f"entry {answer.position.index}, version {answer.position.version}: {answer.changed} changes")
        write(_force(followers, behind, waited_s))
    return EXIT_FAILED if behind else EXIT_OK


def _force(followers: int, behind: Sequence[pb.Follower], waited_s: float) -> str:
    if not waited_s:
        return "not waited for"
    if not behind:
        return f"in force on all {followers} followers after {waited_s:.1f} s" if followers else "nobody follows yet"
    named = ", ".join(_why_behind(state) for state in behind[:20])
    return f"not in force after {waited_s:.1f} s on {len(behind)}: {named}"


def _why_behind(state: pb.Follower) -> str:
    refused = "; ".join(f"refuses {item.domain}: {item.reason}" for item in state.refused)
    return printable(f"{state.name} (entry {state.has.index}{', ' + refused if refused else ''})")


def _refused(args: argparse.Namespace, answer: pb.ChangeResponse) -> int:
    problems = [
        {"domain": one.domain, "rule": steps_text(decode_path(one.path)), "reason": one.reason}
        for one in answer.problems
    ]
    if args.json:
        write(plain_json.dumps({"changed": answer.changed, "problems": problems}, indent=2))
    else:
        for one in problems:
            write(printable(f"{one['domain']}: {one['rule']}: {one['reason']}"))
        write(f"refused; {answer.changed or 'no'} changes were made")
    return EXIT_FAILED


# Waiting


def wait_for_followers(args: argparse.Namespace, position: pb.Position) -> tuple[int, list[pb.Follower], float]:
    """Wait until all followers have an entry in force; how many they are, those that have not, and how long it took."""
    began = time.monotonic()
    if args.wait <= 0:
        return 0, [], 0.0
    while True:
        status = ask(args, "Status", pb.StatusRequest(), pb.StatusResponse)
        behind = [state for state in status.followers if not has_in_force(state, position)]
        waited_s = time.monotonic() - began
        if not behind or waited_s >= args.wait:
            return len(status.followers), behind, waited_s
        time.sleep(LOOK_S)


def has_in_force(state: pb.Follower, position: pb.Position) -> bool:
    """Return true if a follower has an entry in force, or a later one."""
    has = state.has
    reached = (has.plane, has.index) >= (position.plane, position.index) or has.version == position.version
    return reached and not state.refused


# Printing


def shown_time(time_ms: int) -> str:
    """A time for people, in UTC."""
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")
