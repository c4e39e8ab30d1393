"""`headgate rules publish`: make the domains of a directory on the plane what the directory says."""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from headgate import plain_json
from headgate.clock import SystemClock
from headgate.console.admin_call import call_stream
from headgate.console.output import EXIT_FAILED, EXIT_OK, write
from headgate.console.parsers import Commands
from headgate.errors import ConfigError
from headgate.limiter.rule_name import Steps, steps_text
from headgate.plane.codec import SERVICE, decode_part
from headgate.plane.commands.asking import add_command
from headgate.plane.commands.changing import conclude, send
from headgate.plane.commands.stages import add_stage_flags
from headgate.plane.entry import RuleChange
from headgate.plane.rule_text import rules_of
from headgate.rules.compiling import NOTHING, compile_changed
from headgate.rules.directory import read_path
from headgate.rules.pace import Pace
from headgate.rules.problems import Problem
from headgate.rules.ruleset import NO_RULES, RuleSet, rule_set
from headgate.v1 import rules_pb2 as pb

TRIES: Final = 5
"""Attempts when others change rules between looking and publishing."""

_EPILOG = """
The domains that DIR names become what it says; other domains stay as they are. A domain with a problem is not
published, and the others are. What is tighter for somebody goes in stages, unless --now is said. More than 10,000
changes are several entries of the log, and those of one domain need --now.

exit status: 0 published, or nothing to change (with --follow: and in force for everybody); 1 problems, more denials in
--replay than expected, not in force everywhere within --wait, or a rollout that was rolled back or ended (with
--dry-run: there is something to publish); 2 error (the message is on stderr)

examples:
  headgate rules publish rules --token-file ops.token --now --why "the first rules"
  headgate rules publish rules --token-file ops.token --replay /var/lib/headgate --expect-denials 2% --follow --json
  headgate rules publish rules --token-file ops.token --why "ticket 4711"
  headgate rules publish rules --token-file ops.token --dry-run --json
"""


def add_parser(actions: Commands) -> argparse.ArgumentParser:
    """Add the command."""
    text = "make the domains of a directory on a plane what the directory says"
    parser = add_command(actions, "publish", text, publish, epilog=_EPILOG, changes=True)
    parser.add_argument(
        "directory", type=Path, metavar="DIR", help="directory with *.yaml and *.yml files, or one file"
    )
    add_stage_flags(parser)
    parser.add_argument("--merge-domains", action="store_true", help="let several files define one domain")
    parser.add_argument(
        "--replay",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a node's data directory, or a file of JSON lines: refuse if the rules would have denied more of the "
        "requests that are logged there than --expect-denials says (default: 1%%); repeatable",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be changed, and change nothing")
    return parser


def publish(args: argparse.Namespace, is_expected: Callable[[RuleSet], bool] = lambda _: True) -> int:
    """Publish a directory, if what it denies is expected. Returns the exit status."""
    rules, problems = compiled(args.directory, merge_domains=args.merge_domains)
    for problem in problems:
        write(str(problem))
    if not rules.domains:
        return EXIT_FAILED
    if args.replay and not is_expected(rules):
        return EXIT_FAILED
    status = _dry_run(args, rules) if args.dry_run else _publish(args, rules)
    return EXIT_FAILED if problems else status


def compiled(directory: Path, *, merge_domains: bool) -> tuple[RuleSet, list[Problem]]:
    """Compile the domains without problems; and the problems of the others. Raises RulesError for unreadable files."""
    pace = Pace(SystemClock())
    done = compile_changed(read_path(directory), NOTHING, NO_RULES, pace, merge_domains=merge_domains)
    good = {name: outcome.domain for name, outcome in done.domains.items() if outcome.domain is not None}
    return rule_set(good), sorted(done.problems())


def _publish(args: argparse.Namespace, rules: RuleSet) -> int:
    for attempt in range(TRIES):
        changes, head = differences(args, rules)
        try:
            return conclude(args, send(args, changes, args.expect or head.version) if changes else _nothing(head))
        except ConfigError as error:
            if args.expect or "was expected" not in str(error) or attempt == TRIES - 1:
                raise
    raise AssertionError("unreachable")


def _nothing(head: pb.Position) -> pb.ChangeResponse:
    return pb.ChangeResponse(position=head)


def _dry_run(args: argparse.Namespace, rules: RuleSet) -> int:
    changes, head = differences(args, rules)
    shown = [
        {
            "domain": change.domain,
            "rule": steps_text(change.path),
            "is": None if change.rule is None else json.loads(change.rule),
        }
        for change in changes
    ]
    if args.json:
        write(plain_json.dumps({"head": head.version, "changes": shown}, indent=2))
    else:
        for one in shown:
            write(f"{one['domain']}: {one['rule'] or '(its own fields)'}: {_said(one['is'])}")
        write(f"{len(shown)} changes to version {head.version}")
    return EXIT_FAILED if shown else EXIT_OK


def _said(rule: object) -> str:
    return "deleted" if rule is None else plain_json.dumps(rule)


def differences(args: argparse.Namespace, rules: RuleSet) -> tuple[list[RuleChange], pb.Position]:
    """Changes that make the plane's domains those of a set, and the head that they were looked up at."""
    head, there = pb.Position(), dict[tuple[str, Steps], RuleChange]()
    for message in _read(args, sorted(rules.domains)):
        head = message.position
        there |= {(rule.domain, rule.path): rule for rule in decode_part(message).rules}
    wanted = {(rule.domain, rule.path): rule for domain in rules.domains for rule in rules_of(rules, domain)}
    changes = [rule for key, rule in wanted.items() if there.get(key) != rule]
    changes += [RuleChange(*key, None) for key in there if key not in wanted]
    return changes, head


def _read(args: argparse.Namespace, domains: list[str]) -> Iterator[pb.RulesPart]:
    request = pb.ReadRequest(domains=domains)
    return call_stream(args, args.addr, f"/{SERVICE}/Read", request, pb.RulesPart, args.timeout)
