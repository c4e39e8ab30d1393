"""`headgate explain`: why a request was decided as it was, from decision logs or from servers that run."""

import argparse
import json
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from headgate.console import descriptors
from headgate.console.admin_call import SERVERS_HELP, addresses_of, call, on_all
from headgate.console.output import EXIT_FAILED, EXIT_OK, printable, write
from headgate.console.parsers import Commands
from headgate.console.target import add_target
from headgate.decision_log.explain.explanation import DecisionOutcome, DecisionQuestion, explain, lines_of
from headgate.decision_log.names import hash_of_descriptor
from headgate.decision_log.reader import LogView
from headgate.decision_log.rule_contents import Content
from headgate.errors import ConfigError

_EPILOG = r"""
exit status: 0 explained, 1 nothing about it is in the logs, 2 error (the message is on stderr)

examples:
  headgate explain --data-dir /var/lib/headgate --domain edge --descriptor user=alice --at 03:47
  headgate explain --data-dir node1 --data-dir node2 --domain edge --descriptor user=alice,path=/login \
      --at 2026-11-17T03:47:00Z --window 1m --json
  kubectl logs -l app=headgate --since 2h | headgate explain --log - --domain edge --descriptor user=alice --at 03:47
  headgate explain --data-dir /var/lib/headgate --id 9f86d081884c7d65
  headgate explain --addr dns:///headgate-nodes:8083 --token-file ops.token --domain edge --descriptor user=alice
"""
_UNITS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


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
    parser.add_argument("--descriptor", metavar="key=value[,key=value]", help=descriptors.HELP)
    parser.add_argument("--at", metavar="TIME", help=TIME_HELP)
    parser.add_argument(
        "--window", type=milliseconds, default="5m", metavar="TIME", help="how far from --at to look (default: 5m)"
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


TIME_HELP = "2026-11-17T03:47:00Z, 03:47 (the last one, UTC), unix seconds, or -10m (default: now)"


def view_of(args: argparse.Namespace) -> LogView:
    """The logs that the arguments name."""
    paths = [*args.data_dir, *(Path(text) for text in args.log if text != "-")]
    for path in paths:
        if not path.exists():
            raise ConfigError(f"{path}: there is no such file or directory")
    lines = sys.stdin.read().splitlines() if "-" in args.log else []
    if not paths and "-" not in args.log:
        raise ConfigError("nothing to read: give --data-dir DIR, --log FILE or --addr ADDR")
    return LogView(paths, lines)


def run(args: argparse.Namespace) -> int:
    """Print the explanation. Returns 1 when nothing about the request was found."""
    question = _question(args)
    if args.who:
        write(f"{hash_of_descriptor(question.domain, question.entries):016x}")
        return EXIT_OK
    explanation = explain(_from_servers(args, question) if args.addr else view_of(args), question)
    lines = [json.dumps(explanation.to_json(), indent=2)] if args.json else map(printable, lines_of(explanation))
    write("\n".join(lines))
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
    answers = on_all(
        addresses_of(args.addr), lambda address: call(args, address, method, request, pb.FindResponse, args.timeout)
    )
    view = view_of(args) if args.data_dir or args.log else LogView([])
    lines = list(dict.fromkeys([*view.lines, *(line for answer in answers for line in answer.lines)]))
    contents: dict[str, Content] = {
        rules.digest: ([(file.name, file.data) for file in rules.files], rules.merge_domains)
        for answer in answers
        for rules in answer.rules
    }
    return LogView(view.paths, lines, contents)


def _question(args: argparse.Namespace) -> DecisionQuestion:
    now_ms = int(time.time() * 1000)
    if args.id is not None:
        try:
            return DecisionQuestion(at_ms=now_ms, window_ms=args.window, number=int(args.id, 16))
        except ValueError:
            raise ConfigError(f"--id {args.id!r}: expected 16 hex digits") from None
    if not args.domain or not args.descriptor:
        raise ConfigError("give --domain and --descriptor, or --id")
    entries = tuple(descriptors.parse_descriptor(args.descriptor))
    return DecisionQuestion(args.domain, entries, parse_time(args.at, now_ms), args.window)


def milliseconds(text: str) -> int:
    """A stretch of time such as `5m` or `30s`."""
    unit = next((unit for unit in ("ms", "s", "m", "h", "d") if text.endswith(unit)), "")
    number = float(text[: -len(unit)]) if unit else float(text) * 1000
    if not 0 <= number < 1e12:
        raise ValueError
    return int(number * _UNITS.get(unit, 1))


def parse_time(text: str | None, now_ms: int) -> int:
    """A point in time, in unix milliseconds. Raises ConfigError."""
    if text is None:
        return now_ms
    try:
        if text.startswith("-"):
            return now_ms - milliseconds(text[1:])
        if text.replace(".", "", 1).isdigit():
            seconds = float(text)
            return int(seconds if seconds > 1e11 else seconds * 1000)  # milliseconds are as welcome
        if "T" not in text and "-" not in text:
            return _time_of_day(text, now_ms)
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise ConfigError(f"--at {text!r}: expected {TIME_HELP}") from None


def _time_of_day(text: str, now_ms: int) -> int:
    """The last time it was so late."""
    now = datetime.fromtimestamp(now_ms / 1000, UTC)
    clock = datetime.strptime(text, "%H:%M:%S" if text.count(":") == 2 else "%H:%M").time()
    moment = datetime.combine(now.date(), clock, UTC)
    return int((moment if moment <= now else moment - timedelta(days=1)).timestamp() * 1000)
