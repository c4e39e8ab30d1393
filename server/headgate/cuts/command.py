"""`headgate region`: cut another region off from this one, and take it back, through the admin side of a node."""

import argparse
import json
from collections.abc import Callable
from typing import Any, Final

from google.protobuf.message import Message

from headgate.console.admin_call import call
from headgate.console.output import EXIT_FAILED, EXIT_OK, write
from headgate.console.parsers import Commands
from headgate.console.target import add_target
from headgate.endpoint.message_json import as_json
from headgate.keys.command import DEFAULT_ADDR

TIMEOUT_S: Final = 60.0
"""Seconds to wait unless told: a million keys are looked at."""
_SERVICE: Final = "headgate.v1.Regions"

_EPILOG = r"""
The `admin_grpc` listener of any one server of a region is asked, with a token of its `admin_token_file` or a
certificate, and the whole region follows. Each other region has to be asked by itself: nobody decides for two regions.
Every change is in the server's log: who, what, why.

exit status: 0 done, 1 it was not cut off, 2 error (the message is on stderr)

examples:
  headgate region cut us --token-file ops.token --why "its token got out"
  headgate region list --token-file ops.token
  headgate region restore us --token-file ops.token --why "has a new token"
"""


def add_parser(commands: Commands) -> None:
    """Add `headgate region` to the commands."""
    parser = commands.add_parser(
        "region",
        help="cut another region off, with all that it stated, or take it back",
        description="Cut another region off from the one that a running server is part of, or take it back.",
        epilog=_EPILOG,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    cut = _action(actions, "cut", "hear nothing of a region any more, and take its counts out of all keys", _cut)
    restore = _action(actions, "restore", "hear of a region again, from the beginning", _restore)
    for action in (cut, restore):
        action.add_argument("region", metavar="REGION", help="the other region's name")
        action.add_argument("--why", default="", metavar="TEXT", help="why, for the audit log")
    _action(actions, "list", "all regions that are cut off from this one", _list)


def _action(
    actions: Commands, name: str, text: str, command: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", epilog=_EPILOG)
    add_target(parser, DEFAULT_ADDR)
    parser.set_defaults(command=command, timeout=TIMEOUT_S)
    return parser


def _cut(args: argparse.Namespace) -> int:
    pb = _messages()
    return _ask(args, "Cut", pb.CutRequest(region=args.region, why=args.why), pb.CutResponse)


def _restore(args: argparse.Namespace) -> int:
    pb = _messages()
    request = pb.RestoreRequest(region=args.region, why=args.why)
    return _ask(args, "Restore", request, pb.RestoreResponse, done="restored")


def _list(args: argparse.Namespace) -> int:
    pb = _messages()
    return _ask(args, "ListCuts", pb.ListCutsRequest(), pb.ListCutsResponse)


def _messages() -> Any:
    from headgate.v1 import regions_pb2  # noqa: PLC0415 - no other command needs it

    return regions_pb2


def _ask(args: argparse.Namespace, method: str, request: Message, answer: type[Message], done: str = "") -> int:
    reply = call(args, args.addr, f"/{_SERVICE}/{method}", request, answer, args.timeout)
    write(json.dumps(as_json(reply), indent=2, ensure_ascii=False))
    return EXIT_OK if not done or getattr(reply, done) else EXIT_FAILED
