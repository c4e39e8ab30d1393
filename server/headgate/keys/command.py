"""`headgate key`: look at one limit key, and change what it is decided by, through the admin side of a node."""

import argparse
import re
import sys
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from google.protobuf.message import Message

from headgate import plain_json
from headgate.console import descriptors
from headgate.console.admin_call import call
from headgate.console.output import EXIT_FAILED, EXIT_OK, write
from headgate.console.parsers import Commands, accepting, uint32
from headgate.console.target import add_target
from headgate.endpoint.message_json import as_json
from headgate.errors import ConfigError
from headgate.keys.command_text import lines_of

DEFAULT_ADDR: Final = "127.0.0.1:8083"
_SERVICE: Final = "headgate.v1.Keys"
_UNITS_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_DURATION = re.compile(r"(?:\d+[smhd])+")

_EPILOG = r"""
The server's `admin_grpc` listener is asked, with a token of its `admin_token_file` or a certificate. A key is named by
the descriptor that meets it. Every change is in the server's log: who, what, why.

In a terminal the answer is in sentences, else in JSON.

exit status: 0 done, 1 there is no such override, 2 error (the message is on stderr)

examples:
  headgate key get --token-file ops.token --domain edge user=alice
  headgate key reset --domain edge user=alice --why "was blocked by our own load test"
  headgate key override --domain edge user=alice --limit 5000 --until 2h --why "launch, ticket 4711"
  headgate key override --domain edge user=alice --factor 2 --until 2026-12-01T00:00:00Z --why "agreed with sales"
  headgate key override --domain edge user=alice --remove --why "launch is over"
  headgate key override --list
"""


def add_parser(commands: Commands) -> None:
    """Add `headgate key` to the commands."""
    parser = commands.add_parser(
        "key",
        help="look at a limit key, reset it, or override its limit",
        description="Look at a limit key, or change what it is decided by, on a running server.",
        epilog=_EPILOG,
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    get = _action(actions, "get", "show a key as this node, every node and every region counts it", _get)
    _add_key(get)
    reset = _action(actions, "reset", "forget all that was counted on a key, in the region at once", _reset)
    _add_key(reset)
    _add_why(reset)
    override = _action(
        actions, "override", "another limit for a key, until a time; or list and remove those", _override
    )
    _add_override(override)


def _action(
    actions: Commands, name: str, text: str, command: Callable[[argparse.Namespace], int]
) -> argparse.ArgumentParser:
    parser = actions.add_parser(name, help=text, description=text[0].upper() + text[1:] + ".", epilog=_EPILOG)
    add_target(parser, DEFAULT_ADDR)
    parser.add_argument("--json", action="store_true", help="print JSON in a terminal too")
    parser.set_defaults(command=command)
    return parser


def _add_key(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument("--domain", required=not optional, help="the domain whose rules apply")
    parser.add_argument(
        "descriptor", nargs="?" if optional else None, metavar="key=value[,key=value]", help=descriptors.HELP
    )


def _add_override(parser: argparse.ArgumentParser) -> None:
    _add_key(parser, optional=True)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--limit", type=uint32, metavar="N", help="requests per unit of the rule; 0 denies everything")
    what.add_argument("--factor", type=_factor, metavar="X", help="times the rule's limit, such as 2 or 0.5")
    what.add_argument("--remove", action="store_true", help="let the rule decide again")
    what.add_argument("--list", action="store_true", help="all overrides in force in this region, or in --domain")
    parser.add_argument(
        "--until", metavar="TIME", help="when it ends: 90s, 30m, 2h, 1d12h from now, or 2026-12-01T00:00:00Z"
    )
    _add_why(parser)


def _add_why(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--why", default="", metavar="TEXT", help="why, for the audit log")


def _factor(text: str) -> int:
    """In millionths."""
    with accepting("a number above 0, such as 2 or 0.5", text):
        millionths = round(float(text) * 1_000_000)
        if millionths < 1:
            raise ValueError
        return millionths


# Actions


def _get(args: argparse.Namespace) -> int:
    pb = _messages()
    return _ask(args, "Get", pb.GetRequest(key=_key(args)), pb.KeyState)


def _reset(args: argparse.Namespace) -> int:
    pb = _messages()
    return _ask(args, "Reset", pb.ResetRequest(key=_key(args), why=args.why), pb.ResetResponse)


def _override(args: argparse.Namespace) -> int:
    pb = _messages()
    if args.list:
        if args.descriptor:
            raise ConfigError("--list: takes no descriptor; `headgate key get` shows one key and its override")
        return _ask(args, "ListOverrides", pb.ListOverridesRequest(domain=args.domain or ""), pb.ListOverridesResponse)
    if not args.domain or not args.descriptor:
        raise ConfigError("which key: --domain D and a descriptor, key=value[,key=value]")
    if args.remove:
        request = pb.RemoveOverrideRequest(key=_key(args), why=args.why)
        return _ask(args, "RemoveOverride", request, pb.RemoveOverrideResponse, done="removed")
    if not args.until:
        raise ConfigError("--until: an override ends by itself; say when, such as --until 2h")
    change = pb.SetOverrideRequest(key=_key(args), why=args.why, **ends_of(args.until, "--until"))
    if args.limit is not None:
        change.limit = args.limit
    else:
        change.factor_millionths = args.factor
    return _ask(args, "SetOverride", change, pb.Override)


def _messages() -> Any:
    from headgate.v1 import keys_pb2  # noqa: PLC0415 - no other command needs it

    return keys_pb2


def _key(args: argparse.Namespace) -> Any:
    pb = _messages()
    pairs = descriptors.parse_descriptor(args.descriptor)
    return pb.Key(domain=args.domain, entries=[pb.Entry(key=key, value=value) for key, value in pairs])


def duration_ms(text: str) -> int:
    """90s, 30m, 2h or 1d12h, in milliseconds. Raises ValueError."""
    if not _DURATION.fullmatch(text):
        raise ValueError
    return sum(int(number) * _UNITS_MS[unit] for number, unit in re.findall(r"(\d+)([smhd])", text))


def ends_of(text: str, flag: str) -> dict[str, int]:
    """A duration from now, by the server's origin; or a time. Raises ConfigError."""
    if _DURATION.fullmatch(text):
        return {"for_ms": duration_ms(text)}
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError(
            f"{flag} {text!r}: expected 90s, 30m, 2h or 1d12h, or a time such as 2026-12-01T00:00:00Z"
        ) from None
    if when.tzinfo is None:
        raise ConfigError(f"{flag} {text!r}: say which time zone, such as {text}Z for UTC")
    return {"until_ms": int(when.timestamp() * 1000)}


# Asking


def _ask(args: argparse.Namespace, method: str, request: Message, answer: type[Message], done: str = "") -> int:
    reply = call(args, args.addr, f"/{_SERVICE}/{method}", request, answer, args.timeout)
    if args.json or not sys.stdout.isatty():
        write(plain_json.dumps(as_json(reply), indent=2))
    else:
        write("\n".join(lines_of(f"{args.descriptor} of domain {args.domain}", reply)))
    return EXIT_OK if not done or getattr(reply, done) else EXIT_FAILED
