"""`headgate rules put`, `delete` and `rollback`: change single rules, or go back."""

import argparse
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from headgate.console import descriptors
from headgate.console.parsers import Commands
from headgate.errors import ConfigError
from headgate.plane.commands.asking import add_command, ask
from headgate.plane.commands.changing import conclude, send
from headgate.plane.commands.publish import compiled
from headgate.plane.commands.stages import add_stage_flags
from headgate.plane.entry import RuleChange
from headgate.plane.rule_text import rules_of
from headgate.rules.directory import EXTENSIONS
from headgate.rules.limits import UNITS
from headgate.v1 import rules_pb2 as pb

MAX_FILE_BYTES: Final = 1024**3
_LIMIT = re.compile(r"(\d+)/(\w+)")

_EPILOG = r"""
A rule is named by its domain and the way to it, `key=value,key=value`; `key=` is the rule for any value. Without
--domain, FILE names many: a rules file (*.yaml, *.yml), or lines of JSON with the fields of a descriptor, as
{"domain": "edge", "path": [["user", "acme"]], "rule": {"rate_limit": …}}; without "rule" it is deleted. `-` is stdin,
of such lines. Rules that FILE does not name stay.

One call is one entry of the log, all or nothing; more than 10,000 changes are several, and those of one domain need
--now. What is tighter for somebody goes in stages, unless --now is said; a rollback is in force at once.

exit status: 0 changed, or nothing to change (with --follow: and in force for everybody); 1 refused, not in force
everywhere within --wait, or a rollout that was rolled back or ended; 2 error (the message is on stderr)

examples:
  headgate rules put --domain edge user=acme --limit 10/minute --now --why "squeeze acme, ticket 4711"
  headgate rules put --domain edge user=acme,path=/a --rule '{"rate_limit": {"unit": "day", "requests_per_unit": 5}}'
  headgate rules put tenants.jsonl --expect-denials 2% --follow --why "nightly run of billing"
  headgate rules delete --domain edge user=acme --why "over"
  headgate rules rollback --why "undo"
"""


def add_parsers(actions: Commands) -> None:
    """Add the commands."""
    put = add_command(actions, "put", "put single rules on a plane in their places", _put, epilog=_EPILOG, changes=True)
    _add_rule(put)
    what = put.add_mutually_exclusive_group()
    what.add_argument("--rule", metavar="JSON", help="the rule, with the fields of a descriptor")
    what.add_argument("--limit", metavar="N/UNIT", help="short for a rule with this limit, such as 100/minute")
    put.add_argument("--shadow", action="store_true", help="with --limit: counted and logged, nobody is denied")
    delete = add_command(actions, "delete", "delete single rules on a plane", _delete, epilog=_EPILOG, changes=True)
    _add_rule(delete)
    rollback = add_command(
        actions,
        "rollback",
        "make the rules on a plane what they were at an earlier version",
        _rollback,
        epilog=_EPILOG,
        changes=True,
    )
    rollback.add_argument(
        "version",
        nargs="?",
        default="",
        metavar="VERSION",
        help="default: before the last entry that somebody asked for; ends the rollout that it began",
    )


def _add_rule(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--domain", metavar="D", help="the domain of the rule")
    parser.add_argument(
        "rule_or_file", metavar="key=value[,key=value]|FILE", help=f"with --domain: {descriptors.HELP}; else a file"
    )
    add_stage_flags(parser)


def _put(args: argparse.Namespace) -> int:
    if args.domain is None:
        return _send(args, list(_changes_of(args.rule_or_file)))
    if args.rule is None and args.limit is None:
        raise ConfigError("say what the rule is: --rule JSON or --limit N/UNIT; a file needs no --domain")
    rule = args.rule if args.rule is not None else json.dumps(_limited(args))
    return _send(args, [_named(args, rule.encode())])


def _delete(args: argparse.Namespace) -> int:
    if args.domain is None:
        changes = [RuleChange(change.domain, change.path, None) for change in _changes_of(args.rule_or_file)]
    else:
        changes = [_named(args, None)]
    return _send(args, changes)


def _rollback(args: argparse.Namespace) -> int:
    request = pb.RollbackRequest(version=args.version, why=args.why, expect=args.expect)
    return conclude(args, ask(args, "Rollback", request, pb.ChangeResponse))


def _send(args: argparse.Namespace, changes: list[RuleChange]) -> int:
    if not changes:
        raise ConfigError(f"{args.rule_or_file}: holds no change")
    return conclude(args, send(args, changes, args.expect))


def _named(args: argparse.Namespace, rule: bytes | None) -> RuleChange:
    return RuleChange(args.domain, tuple(descriptors.parse_descriptor(args.rule_or_file)), rule)


def _limited(args: argparse.Namespace) -> dict[str, Any]:
    match = _LIMIT.fullmatch(args.limit)
    if match is None or match[2].lower() not in UNITS:
        raise ConfigError(f"--limit {args.limit!r}: expected N/UNIT, UNIT one of {', '.join(UNITS)}")
    rule: dict[str, Any] = {"rate_limit": {"unit": match[2].lower(), "requests_per_unit": int(match[1])}}
    return rule | ({"shadow_mode": True} if args.shadow else {})


def _changes_of(file: str) -> Iterator[RuleChange]:
    """Changes that a file names. Raises ConfigError."""
    if Path(file).suffix not in EXTENSIONS:
        yield from _lines(file)
        return
    rules, problems = compiled(Path(file), merge_domains=False)
    if problems:
        raise ConfigError("\n".join(map(str, problems)))
    # A domain's own fields change by themselves, with `publish`.
    yield from (rule for domain in rules.domains for rule in rules_of(rules, domain) if rule.path)


def _lines(file: str) -> Iterator[RuleChange]:
    """Changes of a file, a line each. Raises ConfigError with the line."""
    text = sys.stdin.read(MAX_FILE_BYTES) if file == "-" else _read(Path(file))
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            said = json.loads(line)
            path = tuple((str(key), str(value)) for key, value in said["path"])
            rule = said.get("rule")
            yield RuleChange(str(said["domain"]), path, None if rule is None else json.dumps(rule).encode())
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConfigError(
                f'{file}:{number}: expected {{"domain": …, "path": [[key, value], …], "rule": {{…}}}}: {error!r}'
            ) from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        missing = " (a rule is named with --domain D)" if "=" in path.name else ""
        raise ConfigError(f"{path}: {error}{missing}") from None
