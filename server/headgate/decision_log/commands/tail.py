"""`headgate tail`: decisions as they are made, from data directories on this machine or from servers that run."""

import argparse
import json
import queue
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headgate.console import descriptors
from headgate.console.admin_call import SERVERS_HELP, addresses_of, call
from headgate.console.output import EXIT_OK, printable, warn, write
from headgate.console.parsers import Commands
from headgate.console.target import add_target
from headgate.console.times import add_local, in_zone, zone_of
from headgate.decision_log.follower import Follower
from headgate.decision_log.json_lines import entry_of_line, entry_to_json
from headgate.decision_log.names import hash_of_descriptor
from headgate.decision_log.rule_contents import PART
from headgate.decision_log.schema import Entry, Event, text_of_time
from headgate.errors import ConfigError

LOOK_EVERY_S: Final = 0.1
WAIT_MS: Final = 1_000
RETRY_S: Final = 1.0
"""Before a server that did not answer is asked again."""

_EPILOG = r"""
Of allowances only those that are logged are shown (decision_log_allowances); denials and degraded decisions all are.

examples:
  headgate tail --data-dir /var/lib/headgate --denied
  headgate tail --addr dns:///headgate-nodes:8083 --token-file ops.token --domain edge --rule 'user>path=/login'
  headgate tail --data-dir /var/lib/headgate --local --domain edge user=alice
"""


def add_parser(commands: Commands) -> None:
    """Add `headgate tail` to the commands."""
    parser = commands.add_parser(
        "tail",
        help="follow decisions as they are made",
        description="Print logged decisions and events as they come, until interrupted.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--data-dir", type=Path, action="append", default=[], metavar="DIR", help="a data directory; repeatable"
    )
    add_target(parser, "", SERVERS_HELP)
    parser.add_argument("--domain", help="only decisions of this domain")
    parser.add_argument("--rule", metavar="ID", help="only of this rule, by its id")
    parser.add_argument("--path", metavar="PATH", help="only by this path, e.g. deny_cache or degraded_open")
    descriptors.add_one(parser, "only about this descriptor; with --domain")
    parser.add_argument("--denied", action="store_true", help="only denials, and no events")
    add_local(parser)
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    parser.add_argument("--count", type=int, default=0, metavar="N", help="end after so many lines (default: never)")
    parser.set_defaults(command=tail)


def tail(args: argparse.Namespace) -> int:
    """Print decisions until interrupted, or until there were enough."""
    addresses = addresses_of(args.addr)
    if not addresses and not args.data_dir:
        raise ConfigError("nothing to follow: give --data-dir DIR or --addr ADDR")
    who = _who(args)
    shown = 0
    for entry in _entries(args, addresses):
        if not _passes(entry, args, who):
            continue
        line = json.dumps(entry_to_json(entry)) if args.json else in_zone(printable(_as_text(entry)), zone_of(args))
        write(line)
        shown += 1
        if shown == args.count:
            break
    return EXIT_OK


def _entries(args: argparse.Namespace, addresses: list[str]) -> Iterator[Entry]:
    """From all sources, as they come. Threads are daemons: they end with the command."""
    arrived: queue.Queue[Entry] = queue.Queue(10_000)
    for path in args.data_dir:
        if not path.is_dir():
            raise ConfigError(f"{path}: there is no such directory")
        threading.Thread(target=_follow, args=(Follower(path), arrived), daemon=True).start()
    for address in addresses:
        threading.Thread(target=_follow_server, args=(args, address, arrived), daemon=True).start()
    while True:
        yield arrived.get()


def _follow(follower: Follower, arrived: "queue.Queue[Entry]") -> None:
    while True:
        for entry in follower.read():
            arrived.put(entry)
        time.sleep(LOOK_EVERY_S)


def _follow_server(args: argparse.Namespace, address: str, arrived: "queue.Queue[Entry]") -> None:
    from headgate.v1 import decisions_pb2 as pb  # noqa: PLC0415 - only once something is asked

    cursor, method, trouble = 0, "/headgate.v1.Decisions/Tail", ""
    while True:
        request = pb.TailRequest(cursor=cursor, wait_ms=WAIT_MS)
        try:
            answer = call(args, address, method, request, pb.TailResponse, args.timeout + WAIT_MS / 1000)
        except ConfigError as error:
            if str(error) != trouble:
                warn(f"{error}; trying again until it answers")
            trouble = str(error)
            time.sleep(RETRY_S)
            continue
        cursor, trouble = answer.cursor, ""
        if answer.missed:
            warn(f"{address}: {answer.missed} lines came faster than they were read")
        for line in answer.lines:
            entry = entry_of_line(line)
            if entry is not None:
                arrived.put(entry)


def _who(args: argparse.Namespace) -> int | None:
    entries = descriptors.one_of(args)
    if entries is None:
        return None
    if not args.domain:
        raise ConfigError("a descriptor needs its --domain beside it")
    return hash_of_descriptor(args.domain, entries)


def _passes(entry: Entry, args: argparse.Namespace, who: int | None) -> bool:
    if isinstance(entry, Event):
        return entry.kind != PART and not (args.denied or args.domain or args.rule or args.path)
    return (
        (not args.denied or not entry.allowed)
        and args.domain in (None, entry.rule.domain)
        and args.rule in (None, entry.rule.id)
        and args.path in (None, entry.path)
        and who in (None, entry.descriptor_hash)
    )


def _as_text(entry: Entry) -> str:
    when, node = text_of_time(entry.time_ms), entry.source.node
    if isinstance(entry, Event):
        fields = " ".join([f"{name}={value}" for name, value in entry.fields.items()])
        return f"{when} {node} {entry.kind} {fields}".rstrip()
    done = "admitted" if entry.allowed else "DENIED"
    over = " (shadow: would be denied)" if entry.allowed and entry.over and entry.shadow else ""
    caller = ",".join(f"{key}={value}" for key, value in entry.entries) or f"caller {entry.descriptor_hash:016x}"
    wait = f", again in {entry.wait_ms / 1000:g} s" if entry.over else ""
    return (
        f"{when} {node} {done}{over} {entry.rule.domain} {entry.rule.id} {caller} by {entry.path}: "
        f"{entry.counted}/{entry.capacity}, cost {entry.cost}{wait}, id {entry.id}"
    )
