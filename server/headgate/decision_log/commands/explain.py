"""`headgate explain`: why a request was decided as it was, from decision logs or from servers that run."""

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from headgate.console import descriptors
from headgate.console.admin_call import SERVERS_HELP, addresses_of, call, on_all
from headgate.console.output import EXIT_FAILED, EXIT_OK, printable, write
from headgate.console.parsers import Commands
from headgate.console.target import add_target
from headgate.console.times import TIME_HELP, add_local, in_zone, parse_time, stretch, zone_of
from headgate.decision_log.coverage import Coverage
from headgate.decision_log.explain.explanation import DecisionOutcome, explain, lines_of
from headgate.decision_log.explain.question import DecisionQuestion
from headgate.decision_log.names import hash_of_descriptor
from headgate.decision_log.reader import LogView
from headgate.decision_log.rule_contents import Content
from headgate.decision_log.segments import log_directory, segment_sizes
from headgate.errors import ConfigError

_EPILOG = r"""
exit status: 0 explained, 1 nothing about it is in the logs, 2 error (the message is on stderr)

examples:
  headgate explain --data-dir /var/lib/headgate --domain edge user=alice --at 03:47
  headgate explain --data-dir node1 --data-dir node2 --domain edge user=alice,path=/login \
      --at 2026-11-17T03:47:00Z --window 1m --json
  kubectl logs -l app=headgate --since 2h | headgate explain --log - --domain edge user=alice --at 03:47
  headgate explain --data-dir /var/lib/headgate --id 9f86d081884c7d65
  headgate explain --addr dns:///headgate-nodes:8083 --token-file ops.token --domain edge user=alice
"""


def add_parser(commands: Commands) -> None:
    """Add `headgate explain` to the commands."""
    parser = commands.add_parser(
        "explain",
        help="say why a request was denied, from the decision log",
        description="Say why a request was decided as it was: which rule applied, in which version, what was counted "
        "and by whom, what was going on, and when it would have been admitted.",
        epilog=_EPILOG,
    )
    add_sources(parser)
    add_target(parser, "", SERVERS_HELP)
    parser.add_argument("--domain", default="", help="the domain of the request")
    descriptors.add_one(parser)
    parser.add_argument("--at", metavar="TIME", help=TIME_HELP)
    add_local(parser)
    parser.add_argument(
        "--window", type=stretch, default="5m", metavar="TIME", help="how far from --at to look (default: 5m)"
    )
    parser.add_argument("--id", metavar="ID", help="explain this decision: 16 hex digits, as answers have them")
    parser.add_argument(
        "--who", action="store_true", help="print what lines call this descriptor (`who`), to find them by, and end"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(command=run)


def add_sources(parser: argparse.ArgumentParser) -> None:
    """Add the flags that name the logs to read."""
    parser.add_argument(
        "--data-dir", type=Path, action="append", default=[], metavar="DIR", help="a node's data directory; repeatable"
    )
    parser.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="FILE",
        help="JSON lines from stdout or a log store, or a data directory; `-` is stdin; repeatable",
    )


def view_of(args: argparse.Namespace) -> LogView:
    """The logs that the arguments name."""
    paths = [*args.data_dir, *(Path(text) for text in args.log if text != "-")]
    lines = sys.stdin.read().splitlines() if "-" in args.log else []
    if not paths and "-" not in args.log:
        raise ConfigError("nothing to read: give --data-dir DIR, --log FILE or --addr ADDR")
    return view_of_paths(paths, lines)


def view_of_paths(paths: Sequence[Path], lines: Sequence[str] = ()) -> LogView:
    """The logs in these files and data directories, and in some lines. Raises ConfigError for one that is not there."""
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path}: there is no such file or directory")
        if path.is_dir() and not segment_sizes(log_directory(path)):
            raise ConfigError(
                f"{path}: there is no decision log in it; the data directory of a server has one, in decisions/"
            )
    return LogView(paths, lines)


def run(args: argparse.Namespace) -> int:
    """Print the explanation. Returns 1 when nothing about the request was found."""
    question = _question(args)
    if args.who:
        write(f"{hash_of_descriptor(question.domain, question.entries):016x}")
        return EXIT_OK
    explanation = explain(_from_servers(args, question) if args.addr else view_of(args), question)
    if args.json:
        write(json.dumps(explanation.to_json(), indent=2))
    else:
        write("\n".join([in_zone(printable(line), zone_of(args)) for line in lines_of(explanation)]))
    return EXIT_FAILED if explanation.outcome is DecisionOutcome.NOT_LOGGED else EXIT_OK


def _from_servers(args: argparse.Namespace, question: DecisionQuestion) -> LogView:
    """A view of what all servers have of it, beside what the other flags name."""
    from headgate.v1 import decisions_pb2 as pb  # noqa: PLC0415 - only once something is asked

    request = pb.FindRequest(number=question.number or 0)
    if question.number is None:
        request.who = hash_of_descriptor(question.domain, question.entries)
        request.since_ms = question.at_ms - question.window_ms
        request.until_ms = question.at_ms + question.window_ms
    method = "/headgate.v1.Decisions/Find"

    def ask(address: str) -> tuple[str, pb.FindResponse]:
        return address, call(args, address, method, request, pb.FindResponse, args.timeout)

    told = on_all(addresses_of(args.addr), ask)
    answers = [answer for _, answer in told]
    view = view_of(args) if args.data_dir or args.log else LogView([])
    lines = list(dict.fromkeys([*view.lines, *(line for answer in answers for line in answer.lines)]))
    contents: dict[str, Content] = {
        rules.digest: ([(file.name, file.data) for file in rules.files], rules.merge_domains)
        for answer in answers
        for rules in answer.rules
    }
    # A server of a version before says nothing of it.
    covers = [Coverage(address, answer.first_ms, answer.last_ms) for address, answer in told if answer.last_ms]
    return LogView(view.paths, lines, contents, covers)


def _question(args: argparse.Namespace) -> DecisionQuestion:
    now_ms = int(time.time() * 1000)
    if args.id is not None:
        try:
            return DecisionQuestion(at_ms=now_ms, window_ms=args.window, number=int(args.id, 16))
        except ValueError:
            raise ConfigError(f"--id {args.id!r}: expected 16 hex digits") from None
    entries = descriptors.one_of(args)
    if not args.domain or entries is None:
        raise ConfigError("give --domain and a descriptor (key=value), or --id")
    return DecisionQuestion(args.domain, entries, parse_time(args.at, now_ms, zone_of(args)), args.window)
