"""`headgate rules replay`: a decision log run against other rules, which `headgate rules` has read."""

import argparse
import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from headgate.console.output import EXIT_OK, counted, printable, warn, write
from headgate.console.parsers import Commands
from headgate.decision_log.commands.explain import add_sources, view_of, view_of_paths
from headgate.decision_log.reader import LogView
from headgate.decision_log.schema import DecisionRecord
from headgate.errors import ConfigError
from headgate.percentages import MILLION, percent
from headgate.rules.ruleset import RuleSet


def add_parser(
    actions: Commands,
    add_directory: Callable[[argparse.ArgumentParser], None],
) -> argparse.ArgumentParser:
    """Add `replay` to the subcommands of `headgate rules`; `add_directory` adds the arguments that name the rules."""
    parser = actions.add_parser(
        "replay",
        help="run a decision log against other rules: who would have been denied",
        description="Decide every logged request again, under other rules. The log must hold descriptors "
        "(decision_log_values), and is exact where it holds every allowance (decision_log_allowances: 1).",
        epilog="exit status: 0 replayed, 2 the rules have problems, or nothing in the log can be replayed\n\n"
        "example:\n  headgate rules replay ./rules --log /var/lib/headgate",
    )
    add_directory(parser)
    add_sources(parser)
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def run(args: argparse.Namespace, rules: RuleSet) -> int:
    """Print who would have been denied under these rules."""
    result = _replayed(_decisions(view_of(args)), rules)
    if not result["requests"]:
        raise ConfigError("nothing to replay: no decisions in it")
    write(json.dumps(result, indent=2) if args.json else _as_text(result))
    return EXIT_OK


def denies_within(logs: Sequence[Path], rules: RuleSet, share: int) -> bool:
    """Return true if these rules deny at most a share of their domains' requests in addition, in millionths.

    Else print whom they would have denied. Raises ConfigError where the logs can't be replayed.
    """
    decisions = (one for one in _decisions(view_of_paths(logs)) if one.rule.domain in rules.domains)
    result = _replayed(decisions, rules)
    if not result["requests"]:
        warn("nothing to replay: the logs have no decision on these domains")
        return True
    more: int = MILLION * (result["denied_after"] - result["denied_before"]) // result["requests"]
    if more > share:
        write(_as_text(result))
        write(f"refused: {percent(more)} of requests would be denied in addition, and {percent(share)} is expected")
    return more <= share


def _decisions(view: LogView) -> Iterable[DecisionRecord]:
    return (entry for entry in view.everything() if isinstance(entry, DecisionRecord))


def _replayed(decisions: Iterable[DecisionRecord], rules: RuleSet) -> dict[str, Any]:
    """Replay decisions. Raises ConfigError where none of them says whom it is about."""
    from headgate.decision_log.replay import replay  # noqa: PLC0415 - it brings the whole server along

    result = replay(decisions, rules).to_json()
    if missing := result["records_without_values"] if not result["requests"] else 0:
        raise ConfigError(f"nothing to replay: {counted(missing, 'record')} without descriptors (decision_log_values)")
    return result


def _requests(requests: int, callers: int) -> str:
    return f"{counted(requests, 'request')} of {counted(callers, 'caller')}"


def _as_text(result: dict[str, Any]) -> str:
    lines = [
        _requests(result["requests"], result["callers"]),
        f"denied then: {_requests(result['denied_before'], result['callers_denied_before'])}",
        f"denied under these rules: {_requests(result['denied_after'], result['callers_denied_after'])}",
    ]
    for caller in result["top_denied"]:
        descriptor = printable(",".join(f"{key}={value}" for key, value in caller["descriptor"]))
        lines.append(f"  {caller['domain']} {descriptor}: {caller['denied_after']} (then {caller['denied_before']})")
    lines += [f"by rule {rule}: {count}" for rule, count in result["denied_by_rule"].items()]
    lines += [f"shadow rule {rule} would deny: {n}" for rule, n in result["shadow_would_deny_by_rule"].items()]
    if result["sampled_one_of"] > 1:
        lines.append(
            f"An estimate: of allowances one of {result['sampled_one_of']} was logged. Callers with fewer requests are "
            "mostly not seen; decision_log_allowances: 1 logs all."
        )
    if result["records_without_values"]:
        lines.append(
            f"{counted(result['records_without_values'], 'record')} could not be replayed, for want of descriptors."
        )
    return "\n".join(lines)
