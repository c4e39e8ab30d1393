"""`headgate plane`: keep the rules of all nodes, as the root, or hand them on, as a relay."""

import argparse
from typing import Any, Final

from headgate.cli.serve import add_settings, flags_of, run_with_settings
from headgate.config import Settings
from headgate.console.parsers import Commands

_EPILOG = """
It listens on --listen, for nodes (--rules plane://host:port), for relays (--upstream) and for `headgate rules publish`
and its kin, who show a token of --token-file or a certificate; and on --http for health and metrics. Its log is in
--store: in a directory, or in PostgreSQL, which several roots share, each with a copy in --data-dir. See docs/plane.md.

The other flags are those of `headgate serve`, so that one config file does for both; what is about requests is not
used.

exit status: as of `headgate serve`

examples:
  headgate plane --listen 0.0.0.0:8083 --store /var/lib/headgate --token-file tokens
  headgate plane --listen 0.0.0.0:8083 --store postgresql://headgate@db/plane --data-dir /var/lib/headgate \\
    --token-file tokens
  headgate plane --listen 0.0.0.0:8083 --store /var/lib/headgate --token-file tokens --upstream root:8083 \\
    --plane-token-file token
"""
_OTHERWISE: Final = ("token_file", "upstream")
"""Settings whose flags mean something else here, or may be repeated."""


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
    group = parser.add_argument_group("plane")
    group.add_argument(
        "--listen", dest="admin_grpc", metavar="ADDR", help="host:port or unix:/path for nodes, relays and operators"
    )
    group.add_argument(
        "--store",
        metavar="DIR|URL",
        help="a directory (`data_dir`), or postgresql://user@host:port/database (`plane_store`)",
    )
    group.add_argument(
        "--token-file", dest="admin_token_file", metavar="FILE", help="who may follow and change: lines NAME=TOKEN"
    )
    group.add_argument(
        "--upstream", action="append", metavar="ADDR", help="be a relay of the plane there; repeatable, as roots may be"
    )
    add_settings(parser, _OTHERWISE)
    parser.set_defaults(command=plane)


def plane(args: argparse.Namespace) -> int:
    """Serve a plane until a signal ends it. Returns the exit status."""
    settings, given_as = _settings_of(flags_of(args))
    return run_with_settings(settings, _run, unused=("rules",), given_as=given_as)


def _settings_of(flags: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Name flags of a plane as the settings that they are; return with them the flag of the one that has another."""
    store, upstream, given_as = flags.pop("store", None), flags.pop("upstream", None), {}
    if store is not None:
        name = "data_dir" if "://" not in store and not store.startswith("file:") else "plane_store"
        flags[name], given_as[name] = store, "--store"
    if upstream is not None:
        flags["upstream"] = ",".join(upstream)
    return flags, given_as


def _run(settings: Settings) -> int:
    from headgate.runtime import plane_service  # noqa: PLC0415 - no other command needs it

    return plane_service.run_plane(settings)
