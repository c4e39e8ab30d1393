"""`headgate exchange`: speak to other regions from a process of its own."""

import argparse

from headgate.cli.serve import add_settings, flags_of, run_with_settings
from headgate.config import Settings
from headgate.console.parsers import Commands

_EPILOG = """
The flags are those of `headgate serve`, so that one config file does for both; what is about requests is not
used. Nodes beside it are told --exchange-inside false, and the same --peer flags. The rules are theirs too: they say
which keys all regions count together, and other regions are heard on no others.

Any number may run for one region: they share the work, and none holds anything that the origin does not.

examples:
  headgate exchange --region eu --origin redis://redis:6379 --rules rules --peer us=us.example.com:8082 \\
    --exchange-token-file /run/secrets/exchange
"""


def add_parser(commands: Commands) -> None:
    """Add `headgate exchange` to the commands, with a flag for each setting."""
    parser = commands.add_parser(
        "exchange",
        help="exchange counts with other regions, beside the nodes of this one",
        description="Tell other regions what this one counts, and merge what they say into its origin.",
        epilog=_EPILOG,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    add_settings(parser)
    parser.set_defaults(command=exchange)


def exchange(args: argparse.Namespace) -> int:
    """Exchange until a signal ends it. Returns the exit status."""
    return run_with_settings(flags_of(args), _run)


def _run(settings: Settings) -> int:
    from headgate.runtime import exchange_service  # noqa: PLC0415 - no other command needs it

    return exchange_service.run_exchange(settings)
