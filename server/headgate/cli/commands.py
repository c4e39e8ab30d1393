"""Builds the parser of all commands, runs the one that was given, and turns its errors into an exit status.

Answers go to stdout, messages to stderr.
"""

import argparse
import sys
from collections.abc import Callable, Sequence

from headgate import __version__
from headgate.blocks import command as block_command
from headgate.build import BUILD
from headgate.cli import check, exchange, log_level, plane, rules, serve, simulate, top
from headgate.console.output import EXIT_USAGE, fail, write
from headgate.console.parsers import CommandParser
from headgate.cuts import command as region_command
from headgate.decision_log.commands import explain, tail
from headgate.errors import ConfigError
from headgate.keys import command as key_command

_DESCRIPTION = "Headgate: a rate-limit service for Envoy and everything else that speaks gRPC or HTTP."
_COMMANDS = (
    serve, exchange, plane, check, explain, tail, rules, key_command, block_command, region_command, top, log_level,
    simulate,
)  # fmt: skip
_NAME_AND_VERSION = f"headgate {__version__} ({BUILD})"
_EPILOG = """\
examples:
  headgate serve --rules examples/rules
  headgate check --addr 127.0.0.1:8081 --domain edge user=alice
  headgate rules check examples/rules

`headgate COMMAND --help` says more.
"""


def run(argv: Sequence[str] | None) -> int:
    """Run one command; the exit status."""
    args = _parser().parse_args(_joined(sys.argv[1:] if argv is None else argv))
    command: Callable[[argparse.Namespace], int] = args.command
    try:
        return command(args)
    except ConfigError as error:
        return fail(str(error), EXIT_USAGE)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # Whoever read our output has seen enough; the interpreter must not try to write the rest.
        sys.stdout = None
        return EXIT_USAGE


def _joined(argv: Sequence[str]) -> list[str]:
    """`--at -10m` as `--at=-10m`: argparse takes what begins with a dash for a flag."""
    joined: list[str] = []
    for argument in argv:
        if joined and joined[-1] == "--at" and argument[:1] == "-" and argument[1:2].isdigit():
            joined[-1] = f"--at={argument}"
        else:
            joined.append(argument)
    return joined


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(prog="headgate", description=_DESCRIPTION, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=_NAME_AND_VERSION, help="print the version and exit")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_parser(commands)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(command=_version)
    return parser


def _version(_: argparse.Namespace) -> int:
    write(_NAME_AND_VERSION)
    return 0
