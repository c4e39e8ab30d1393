"""`headgate serve`: every setting is a flag, made from the one table."""

import argparse
import os
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from headgate.config import (
    CONFIG_ENV,
    CONFIG_FLAG,
    REQUIRED,
    SETTINGS,
    Setting,
    Settings,
    SettingsError,
    load_settings,
    translate,
)
from headgate.config.compat import COMPAT_ENV, RATELIMIT, RATELIMIT_DEFAULTS
from headgate.config.kinds import Boolean, holds_password
from headgate.console.output import EXIT_FAILED, EXIT_USAGE, fail, warn
from headgate.console.parsers import Commands
from headgate.errors import ConfigError

_EPILOG = """
A flag wins over its environment variable, that over the config file, that over the default.
All settings, with what they accept: docs/configuration.md.

SIGTERM or SIGINT: health turns to not serving, requests are answered for --drain-s more,
then the process ends. A second signal ends it at once.

exit status:
  0         stopped when asked to
  1         could not start: rules with problems, an address in use
  2         bad flags, environment or config file
  130, 143  a second SIGINT or SIGTERM

examples:
  headgate serve --rules examples/rules
  headgate serve --config headgate.yaml --grpc unix:/run/headgate.sock
  HEADGATE_RULES=/etc/headgate/rules HEADGATE_LOG_FORMAT=console headgate serve
"""


def add_parser(commands: Commands) -> None:
    """Add `headgate serve` to the commands, with a flag for each setting."""
    parser = commands.add_parser(
        "serve",
        help="run the service",
        description="Serve ShouldRateLimit over gRPC, and JSON, health, metrics and rules over HTTP.",
        epilog=_EPILOG,
        argument_default=argparse.SUPPRESS,
        # An abbreviation that works today would become ambiguous with the next setting.
        allow_abbrev=False,
    )
    add_settings(parser)
    parser.set_defaults(command=serve)


def add_settings(parser: argparse.ArgumentParser, besides: Collection[str] = ()) -> None:
    """A flag for every setting besides some, and one for the file that may hold them."""
    parser.add_argument(CONFIG_FLAG, metavar="FILE", help=f"YAML file with settings [{CONFIG_ENV}]")
    for section in dict.fromkeys(setting.section for setting in SETTINGS):
        group = parser.add_argument_group(section.lower())
        for setting in SETTINGS:
            if setting.section == section and setting.name not in besides:
                _add_flag(group, setting)


def _add_flag(group: "argparse._ArgumentGroup", setting: Setting) -> None:
    help_ = textwrap.fill(f"{setting.help} {_default(setting)} [{setting.env}]", 10_000).replace("%", "%%")
    if isinstance(setting.kind, Boolean):
        group.add_argument(setting.flag, nargs="?", const="true", metavar=setting.kind.metavar, help=help_)
    elif setting.repeatable:
        group.add_argument(setting.flag, action="append", metavar=setting.kind.metavar, help=help_)
    else:
        group.add_argument(setting.flag, metavar=setting.kind.metavar, help=help_)


def _default(setting: Setting) -> str:
    return "(required)" if setting.default is REQUIRED else f"(default: {setting.default_text})"


def serve(args: argparse.Namespace, environ: Mapping[str, str] | None = None) -> int:
    """Serve until a signal ends it. Returns the exit status."""
    return run_with_settings(flags_of(args), _run, environ)


def serve_as_ratelimit(environ: Mapping[str, str]) -> int:
    """Serve by the environment of envoyproxy/ratelimit alone, until a signal ends it. Returns the exit status."""
    warn("serving as envoyproxy/ratelimit: its variables are read, arguments are ignored; see docs/migrate.md")
    return run_with_settings({}, _run, {**RATELIMIT_DEFAULTS, **environ, COMPAT_ENV: RATELIMIT})


def flags_of(args: argparse.Namespace) -> dict[str, Any]:
    """Settings that were given as flags."""
    return {name: value for name, value in vars(args).items() if name != "command"}


def run_with_settings(
    flags: dict[str, Any],
    run: Callable[[Settings], int],
    environ: Mapping[str, str] | None = None,
    unused: Sequence[str] = (),
    given_as: Mapping[str, str] | None = None,
) -> int:
    """Run a process by its settings, of which it never reads those that are `unused`; the exit status. `given_as` has
    the flags of settings that came by another one than their own."""
    # The one place that reads the process's environment.
    environ = os.environ if environ is None else environ
    try:
        settings = load_settings(flags, environ, unused, given_as)
    except SettingsError as error:
        return fail(str(error), EXIT_USAGE)
    for warning in translate(environ).warnings:
        warn(warning)
    if holds_password(flags.get("origin", "")):
        warn("--origin: others see its password in the process list: use file:/path, password_file= or HEADGATE_ORIGIN")
    try:
        return run(settings)
    except ConfigError as error:
        return fail(str(error), EXIT_FAILED)


def _run(settings: Settings) -> int:
    # Imports here, because what serves takes half a second to import, and no other command needs it.
    if settings.workers > 1:
        from headgate.supervisor import run as supervisor  # noqa: PLC0415

        return supervisor.run(settings)
    from headgate.runtime import service  # noqa: PLC0415

    return service.run(settings)
