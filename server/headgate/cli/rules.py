"""`headgate rules`: look at rules without serving them, and change those of a plane."""

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path

from headgate.console import descriptors
from headgate.console.output import EXIT_FAILED, EXIT_OK, EXIT_USAGE, counted, fail, write
from headgate.console.parsers import Commands
from headgate.decision_log.commands import replay
from headgate.limiter.limit import Algorithm, OnError
from headgate.plane.commands import edit, hold, look, publish
from headgate.plane.marks import DEFAULT_PLAN
from headgate.rules.advice import advise
from headgate.rules.defaults import Defaults
from headgate.rules.diff import differences
from headgate.rules.directory import check_overlay, load_directory
from headgate.rules.explain import explain, replacements
from headgate.rules.problems import RulesError
from headgate.rules.ruleset import RuleSet

Command = Callable[[argparse.Namespace], int]


def add_parser(commands: Commands) -> None:
    """Add `headgate rules` and its subcommands to the commands."""
    parser = commands.add_parser("rules", help="check, explain, compare or replay rules; change those of a plane")
    actions = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _add_check(actions)
    _add_explain(actions)
    _add_diff(actions)
    replay.add_parser(actions, _add_directory).set_defaults(command=_or_problems(replay_log, EXIT_USAGE))
    publish.add_parser(actions).set_defaults(command=_or_problems(publish_rules, EXIT_FAILED))
    edit.add_parsers(actions)
    hold.add_parsers(actions)
    look.add_parsers(actions)


def _add_check(actions: Commands) -> None:
    parser = actions.add_parser(
        "check",
        help="find every problem in a directory of rules",
        description="Check every rule file in DIR. Prints one line per problem: `file:line: reason`. What is allowed "
        "and hardly meant is a warning. With an overlay, its entries must make sense with the rules, and each must "
        "name one; without DIR the overlay is checked by itself.",
        epilog="exit status: 0 no problem, or warnings only; 1 problems, or warnings with --strict\n\nexamples:\n"
        "  headgate rules check examples/rules\n  headgate rules check --strict examples/rules/edge.yaml\n"
        "  headgate rules check --rules-overlay examples/overlay",
    )
    _add_directory(parser, optional=True)
    parser.add_argument("--strict", action="store_true", help="fail on warnings too, as for CI")
    parser.set_defaults(command=_or_problems(check, EXIT_FAILED))


def _add_explain(actions: Commands) -> None:
    parser = actions.add_parser(
        "explain",
        help="say which rule a request would hit, and why",
        description="Walk one descriptor through the rules in DIR and say what happens at each step.",
        epilog="exit status: 0 explained, 1 the rules have problems\n\n"
        "example:\n  headgate rules explain examples/rules --domain edge user=alice",
    )
    _add_directory(parser)
    parser.add_argument("--domain", required=True, help="the domain of the request")
    parser.add_argument("descriptors", nargs="+", metavar="key=value[,key=value]", help=descriptors.HELP)
    parser.set_defaults(command=_or_problems(explain_request, EXIT_FAILED))


def _add_diff(actions: Commands) -> None:
    parser = actions.add_parser(
        "diff",
        help="say what changes for whom between two directories of rules",
        description="Compare two sets of rules by what callers meet: tighter, looser, a new limit, none any more.",
        epilog="exit status: 0 no difference, 1 differences, 2 one of them has problems\n\n"
        "example:\n  headgate rules diff /etc/headgate/rules ./rules",
    )
    parser.add_argument("old", type=Path, metavar="OLD", help="the rules in force: a directory or one file")
    parser.add_argument("new", type=Path, metavar="NEW", help="the candidate")
    _add_layers(parser)
    parser.add_argument(
        "--old-rules-overlay", type=Path, metavar="DIR", help="the overlay over OLD, if it is not that over NEW"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=_or_problems(diff, EXIT_USAGE))


def _add_directory(parser: argparse.ArgumentParser, *, optional: bool = False) -> None:
    parser.add_argument(
        "directory",
        type=Path,
        metavar="DIR",
        nargs="?" if optional else None,
        help="directory with *.yaml and *.yml files, or one file",
    )
    _add_layers(parser)


def _add_layers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--merge-domains", action="store_true", help="let several files define one domain")
    parser.add_argument(
        "--rules-overlay", type=Path, metavar="DIR", help="overlay that lies over the rules: a directory or one file"
    )
    for name, kind in (("algorithm", Algorithm), ("on_error", OnError)):
        flag = f"--default-{name.replace('_', '-')}"
        words = [item.value for item in kind]
        parser.add_argument(flag, choices=words, help=f"as the server's setting default_{name}", default=words[0])


def _load(args: argparse.Namespace, directory: Path, overlay: Path | None) -> RuleSet:
    defaults = Defaults(Algorithm(args.default_algorithm), OnError(args.default_on_error))
    return load_directory(directory, merge_domains=args.merge_domains, overlay=overlay, defaults=defaults)


def check(args: argparse.Namespace) -> int:
    """Print every problem of a rules directory, and of an overlay over it. Returns 1 if there is one."""
    if args.directory is None:
        if args.rules_overlay is None:
            return fail("nothing to check: name a directory of rules, or --rules-overlay", EXIT_USAGE)
        write(f"ok: {check_overlay(args.rules_overlay)} entries; name a directory of rules to see what they lie over")
        return EXIT_OK
    rules = _load(args, args.directory, args.rules_overlay)
    overlay = rules.overlay
    if overlay.clashes or overlay.unmatched:
        raise RulesError(sorted([*overlay.clashes, *overlay.unmatched]))
    warnings = advise(rules)
    for warning in warnings:
        write(str(warning))
    if warnings and args.strict:
        return fail(f"{counted(len(warnings), 'warning')} (--strict)", EXIT_FAILED)
    write(f"ok: {counted(rules.count, 'limit')} in {counted(len(rules.domains), 'domain')}")
    return EXIT_OK


def explain_request(args: argparse.Namespace) -> int:
    """Print which rule each descriptor of a request would hit, and why."""
    requested = [descriptors.parse_descriptor(text) for text in args.descriptors]
    rules = _load(args, args.directory, args.rules_overlay)
    explained = [explain(rules, args.domain, entries) for entries in requested]
    for one in explained:
        write(str(one))
    for line in replacements([one.match for one in explained if one.match is not None]):
        write(line)
    return EXIT_OK


def diff(args: argparse.Namespace) -> int:
    """Print the rules that differ and the callers that they concern. Returns 1 if any differ."""
    old = _load(args, args.old, args.old_rules_overlay or args.rules_overlay)
    new = _load(args, args.new, args.rules_overlay)
    found = list(differences(old, new))
    if args.json:
        write(json.dumps([difference.to_json() for difference in found], indent=2))
    else:
        for difference in found:
            write(str(difference))
        write(counted(len(found), "difference"))
    return EXIT_FAILED if found else EXIT_OK


def replay_log(args: argparse.Namespace) -> int:
    """Print who would have been denied under other rules."""
    return replay.run(args, _load(args, args.directory, args.rules_overlay))


def publish_rules(args: argparse.Namespace) -> int:
    """Publish rules on a plane, if a replay of logged decisions finds no more denials than are expected."""
    share = DEFAULT_PLAN.expect_denials if args.expect_denials is None else args.expect_denials
    return publish.publish(args, lambda rules: replay.denies_within(args.replay, rules, share))


def _or_problems(command: Command, status: int) -> Command:
    """Run the command; where rules can't be loaded, print every problem of theirs and return `status`."""

    def run(args: argparse.Namespace) -> int:
        try:
            return command(args)
        except RulesError as error:
            for problem in error.problems:
                write(str(problem))
            sys.stderr.write(f"headgate: {counted(len(error.problems), 'problem')}\n")
            return status

    return run
