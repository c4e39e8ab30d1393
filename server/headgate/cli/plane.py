"""`headgate plane`: keep the rules of all nodes, as the root, or hand them on, as a relay."""

import argparse

from headgate.cli.serve import add_settings, flags_of, run_with_settings
from headgate.config import Settings
from headgate.console.parsers import Commands

_EPILOG = """
The flags are those of `headgate serve`, so that one config file does for both; what is about requests is not used. It
listens on --admin-grpc, for nodes (--rules plane://host:port), for relays (--upstream) and for `headgate rules publish`
and its kin, with the tokens and certificates of operators; and on --http for health and metrics. Its log is in
--data-dir; several roots share one in PostgreSQL (--plane-store). See docs/plane.md.

exit status: as of `headgate serve`

examples:
  headgate plane --data-dir /var/lib/headgate --admin-grpc 0.0.0.0:8083 --admin-token-file tokens
  headgate plane --plane-store postgresql://headgate@db/plane --data-dir /var/lib/headgate --admin-grpc 0.0.0.0:8083 \\
    --admin-token-file tokens
  headgate plane --upstream root:8083 --plane-token-file token --data-dir /var/lib/headgate --admin-grpc 0.0.0.0:8083 \\
    --admin-token-file tokens
"""


def add_parser(commands: Commands) -> None:
    """Add `headgate plane` to the commands, with a flag for each setting."""
    parser = commands.add_parser(
        "plane",
        help="keep the rules of all nodes, and hand every change to them",
        description="Keep a log of rule changes that nodes follow: the root of it, or a relay.",
        epilog=_EPILOG,
        argument_default=argparse.SUPPRESS,
        allow_abbrev=False,
    )
    add_settings(parser)
    parser.set_defaults(command=plane)


def plane(args: argparse.Namespace) -> int:
    """Serve a plane until a signal ends it. Returns the exit status."""
    return run_with_settings(flags_of(args), _run, unused=("rules",))


def _run(settings: Settings) -> int:
    from headgate.runtime import plane_service  # noqa: PLC0415 - no other command needs it

    return plane_service.run_plane(settings)
