"""Parts that the commands of a plane share: their flags, waiting for followers, printing."""

import argparse
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from headgate.console.admin_call import call
from headgate.console.parsers import Commands
from headgate.console.target import add_target
from headgate.plane.codec import SERVICE
from headgate.v1 import rules_pb2 as pb

DEFAULT_ADDR: Final = "127.0.0.1:8083"
TIMEOUT_S: Final = 30.0
"""Seconds for a call: the check of 10,000 rules takes some."""
LOOK_S: Final = 0.1
"""Seconds between looks at the followers."""

Command = Callable[[argparse.Namespace], int]


def add_command(
    actions: Commands, name: str, text: str, command: Command, *, epilog: str, changes: bool = False
) -> argparse.ArgumentParser:
    """Add a command that asks a plane."""
    parser = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", epilog=epilog)
    add_target(parser, DEFAULT_ADDR, names=("--plane", "--addr"))
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=command, timeout=TIMEOUT_S)
    if changes:
        add_act_flags(parser)
        parser.add_argument(
            "--expect", default="", metavar="VERSION", help="refuse unless this is the version at the head"
        )
    return parser


def add_act_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags of commands that append to the log."""
    parser.add_argument("--why", default="", metavar="TEXT", help="why, for the history")
    parser.add_argument(
        "--wait",
        type=float,
        default=10.0,
        metavar="S",
        help="seconds to wait until every follower has it in force; 0 does not wait (default: %(default)s)",
    )


def ask(args: argparse.Namespace, method: str, request: Any, answer: type[Any], address: str = "") -> Any:
    """Ask the plane, or another address. Raises ConfigError."""
    return call(args, address or args.addr, f"/{SERVICE}/{method}", request, answer, args.timeout)


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
