"""`headgate block`: shut a caller out of a domain, through the admin side of one or several nodes."""

import argparse
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from google.protobuf.message import Message

from headgate import plain_json
from headgate.console import descriptors
from headgate.console.admin_call import SERVERS_HELP, addresses_of, call, on_all
from headgate.console.output import EXIT_FAILED, EXIT_OK, printable, write
from headgate.console.parsers import Commands
from headgate.console.reach import places_of
from headgate.console.target import add_target
from headgate.endpoint.message_json import as_json, shown_time
from headgate.errors import ConfigError
from headgate.keys.command import DEFAULT_ADDR, ends_of

TIMEOUT_S: Final = 5.0
"""Seconds to wait unless told: an origin that does not answer is given up after about two."""
_SERVICE: Final = "headgate.v1.Blocks"

_EPILOG = r"""
A caller is named by one entry of its descriptors. Every request of the domain that has it, and meets a rule by it, is
denied, whatever the rule says: shadow mode, `unlimited` and other rules of the request included. Any node of a region
is asked, and the whole region follows within a second. While the region's Redis is away the node that is asked blocks
by itself and says so: then name all nodes.

The server's `admin_grpc` listener is asked, with a token of its `admin_token_file` or a certificate. Every change is in
the server's log: who, what, why.

exit status: 0 done, 1 not everywhere (or nothing to remove), 2 error (the message is on stderr)

examples:
  headgate block --token-file ops.token --domain edge user=eve --for 1h --why "scrapes the catalogue"
  headgate block --domain edge user=eve --for 1h --why "…" --addr dns:///headgate-nodes:8083
  headgate block --domain edge user=eve --remove --why "was a test of ours"
  headgate block --list
"""

Answer = TypeVar("Answer", bound=Message)


def add_parser(commands: Commands) -> None:
    """Add `headgate block` to the commands."""
    parser = commands.add_parser(
        "block",
        help="shut a caller out of a domain for a time",
        description="Deny all that a caller asks for in a domain, for a time; or list and remove such blocks.",
        epilog=_EPILOG,
    )
    parser.add_argument("entry", nargs="?", metavar="key=value", help="the entry that names the caller")
    parser.add_argument("--domain", default="", help="the domain whose requests are meant")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument(
        "--for",
        "--until",
        dest="ends",
        metavar="TIME",
        help="when it ends: 90s, 30m, 2h, 1d12h from now, or 2026-12-01T00:00:00Z",
    )
    what.add_argument("--remove", action="store_true", help="let the rules decide again")
    what.add_argument("--list", action="store_true", help="all blocks in force, or those of --domain")
    parser.add_argument("--why", default="", metavar="TEXT", help="why, for the audit log")
    parser.add_argument("--json", action="store_true", help="print every server's answer as JSON")
    add_target(parser, DEFAULT_ADDR, SERVERS_HELP)
    parser.set_defaults(command=_block, timeout=TIMEOUT_S)


def _block(args: argparse.Namespace) -> int:
    pb = _messages()
    if args.list:
        if args.entry:
            raise ConfigError("--list: takes no entry; it lists all blocks, or with --domain those of one domain")
        return _print_list(args, _ask(args, "List", pb.ListBlocksRequest(domain=args.domain), pb.ListBlocksResponse))
    entry = _entry(args)
    if args.remove:
        request = pb.RemoveBlockRequest(domain=args.domain, entry=entry, why=args.why)
        answers = _ask(args, "Remove", request, pb.RemoveBlockResponse)
        if not any(answer.removed for answer in answers):
            return _print(args, answers, f"{_caller(args)} was not blocked.", EXIT_FAILED)
        answers = [answer for answer in answers if answer.removed]
        return _report(args, answers, f"{_caller(args)} is no longer blocked")
    blocking = pb.SetBlockRequest(domain=args.domain, entry=entry, why=args.why, **ends_of(args.ends, "--for"))
    answers = _ask(args, "Set", blocking, pb.SetBlockResponse)
    until = shown_time(max(answer.block.until_ms for answer in answers))
    return _report(args, answers, f"{_caller(args)} is blocked until {until}")


def _entry(args: argparse.Namespace) -> Any:
    if not args.domain or not args.entry:
        raise ConfigError("whom: --domain D and an entry, key=value")
    pairs = descriptors.parse_descriptor(args.entry)
    if len(pairs) != 1:
        raise ConfigError(f"{args.entry!r}: one entry names a caller, such as user=eve, and this has {len(pairs)}")
    ((key, value),) = pairs
    from headgate.v1.keys_pb2 import Entry  # noqa: PLC0415 - as below

    return Entry(key=key, value=value)


def _ask(args: argparse.Namespace, method: str, request: Message, answer: type[Answer]) -> list[Answer]:
    def one(address: str) -> Answer:
        return call(args, address, f"/{_SERVICE}/{method}", request, answer, args.timeout)

    return on_all(addresses_of(args.addr), one)


# Printing


def _caller(args: argparse.Namespace) -> str:
    return printable(f"{args.entry} of domain {args.domain}")


def _report(args: argparse.Namespace, answers: Sequence[Any], what: str) -> int:
    places, status = places_of([answer.reach for answer in answers])
    return _print(args, answers, f"{what}: on {places}.", status)


def _print(args: argparse.Namespace, answers: Sequence[Message], sentence: str, status: int) -> int:
    write(plain_json.dumps([as_json(answer) for answer in answers], indent=2) if args.json else sentence)
    return status


def _print_list(args: argparse.Namespace, answers: Sequence[Any]) -> int:
    rows = {(block.domain, block.entry.key, block.entry.value): block for answer in answers for block in answer.blocks}
    lines = [
        printable(
            f"{block.entry.key}={block.entry.value} of domain {block.domain} until {shown_time(block.until_ms)}, by "
            f"{block.who}: {block.why}"
        )
        for _, block in sorted(rows.items())
    ]
    return _print(args, answers, "\n".join(lines) or "nobody is blocked", EXIT_OK)


def _messages() -> Any:
    from headgate.v1 import blocks_pb2  # noqa: PLC0415 - no other command needs it

    return blocks_pb2
