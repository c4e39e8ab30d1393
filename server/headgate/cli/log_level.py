"""`headgate log-level`: change the log level of running servers, through their admin side."""

import argparse
from typing import Final

from headgate.console.admin_call import SERVERS_HELP, addresses_of, call, on_all
from headgate.console.output import EXIT_OK, write
from headgate.console.parsers import Commands
from headgate.console.target import add_target
from headgate.keys.command import DEFAULT_ADDR, duration_ms

_LEVELS: Final = ("debug", "info", "warning", "error")
_EPILOG = r"""
The server's `admin_grpc` listener is asked, with a token of its `admin_token_file` or a certificate. With --workers the
first worker alone follows; SIGUSR1 to the supervisor switches all of them to debug, and back.

exit status: 0 done, 2 error (the message is on stderr)

examples:
  headgate log-level debug --for 10m --token-file ops.token
  headgate log-level warning --addr dns:///headgate-nodes:8083 --token-file ops.token
"""


def add_parser(commands: Commands) -> None:
    """Add `headgate log-level` to the commands."""
    parser = commands.add_parser(
        "log-level",
        help="change the log level of running servers",
        description="Have running servers log from another level on, until a time or until they restart.",
        epilog=_EPILOG,
    )
    parser.add_argument("level", choices=_LEVELS, help="the least important level to log")
    parser.add_argument(
        "--for", dest="time", type=duration_ms, default=0, metavar="TIME", help="then the setting's again: 90s, 30m, 2h"
    )
    add_target(parser, DEFAULT_ADDR, SERVERS_HELP)
    parser.set_defaults(command=_log_level)


def _log_level(args: argparse.Namespace) -> int:
    from headgate.v1 import process_pb2 as pb  # noqa: PLC0415 - no other command needs it

    request = pb.SetLogLevelRequest(level=args.level, for_ms=args.time)

    def one(address: str) -> pb.SetLogLevelResponse:
        method = "/headgate.v1.Process/SetLogLevel"
        return call(args, address, method, request, pb.SetLogLevelResponse, args.timeout)

    for answer in on_all(addresses_of(args.addr), one):
        write(f"{answer.node} logs from {answer.level} on (before: {answer.before}).")
    return EXIT_OK
