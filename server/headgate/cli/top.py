"""`headgate top`: who uses most and who is denied most, live in a terminal."""

import argparse
import http.client
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import Any

from headgate.address import UnixAddress, parse_address
from headgate.console.output import EXIT_FAILED, EXIT_OK, EXIT_USAGE, fail, write
from headgate.console.parsers import Commands

TIMEOUT_S = 5.0
CLEAR = "\x1b[H\x1b[2J"


def add_parser(commands: Commands) -> None:
    """Add `headgate top` to the commands."""
    parser = commands.add_parser(
        "top",
        help="show who uses most and who is denied most",
        description="Ask a running server over HTTP every few seconds, and show its heaviest keys, rule by rule. "
        "Where there is an admin listener, that is the one to ask.",
        formatter_class=argparse.HelpFormatter,
    )
    parser.add_argument("--addr", default="127.0.0.1:8080", metavar="ADDR", help="HTTP address (default: %(default)s)")
    parser.add_argument("--token-file", metavar="FILE", help="a file whose first line is the bearer token to show")
    parser.add_argument("--limit", type=int, default=5, metavar="N", help="keys of each rule (default: %(default)s)")
    parser.add_argument(
        "--interval", type=float, default=2.0, metavar="SECONDS", help="how often to ask (default: %(default)s)"
    )
    parser.add_argument("--once", action="store_true", help="ask once; so it is where the output is no terminal")
    parser.add_argument("--json", action="store_true", help="ask once, and print what the server says")
    parser.set_defaults(command=top)


def top(args: argparse.Namespace) -> int:
    """Show the heaviest keys until interrupted, or once. Returns 0, or 2 if no server answers."""
    live = sys.stdout.isatty() and not args.once and not args.json
    while True:
        try:
            status, body = _ask(args)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return fail(f"{args.addr}: {error}", EXIT_USAGE)
        if status != 200:
            return fail(f"{args.addr}: HTTP {status}: {body.get('error', '')}", EXIT_FAILED)
        text = json.dumps(body, indent=2) if args.json else "\n".join(lines_of(body, args.addr))
        write((CLEAR if live else "") + text)
        if not live:
            return EXIT_OK
        time.sleep(args.interval)


def lines_of(body: dict[str, Any], address: str) -> list[str]:
    """Lines for people: each rule with its keys."""
    low = body["denied_may_be_low_by"]
    note = f", each at most {low} too low" if low else ""
    lines = [f"{address}   denied: in the last {body['denied_over_s'] / 2:.0f} to {body['denied_over_s']:.0f} s{note}"]
    for rule in body["rules"]:
        lines += ["", f"{rule['domain']}  {rule['rule']}"]
        for entry in rule["denied"]:
            lines.append(f"  denied   {entry['denied']:>10}  {_values(entry)}")
        for entry in rule["admitted"]:
            lines.append(f"  used     {entry['admitted']:>10}  {_values(entry)}  ({_left(entry)})")
    return lines if body["rules"] else [*lines, "", "nothing has been decided lately"]


def _left(entry: dict[str, Any]) -> str:
    over_by = entry.get("over_by")
    return f"{entry['remaining']} of {entry['limit']} left" + (f", {over_by} over the limit" if over_by else "")


def _values(entry: dict[str, Any]) -> str:
    # What callers send must not steer a terminal.
    return " ".join(f"{key}={value!r}" for key, value in entry["values"].items())


def _ask(args: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    headers = {}
    if args.token_file:
        headers["Authorization"] = f"Bearer {Path(args.token_file).read_text().splitlines()[0].strip()}"
    connection = _connection(args.addr)
    try:
        connection.request("GET", f"/top?limit={args.limit}", headers=headers)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def _connection(address: str) -> http.client.HTTPConnection:
    parsed = parse_address(address)
    if not isinstance(parsed, UnixAddress):
        return http.client.HTTPConnection(parsed.host, parsed.port, timeout=TIMEOUT_S)
    connection = http.client.HTTPConnection("localhost", timeout=TIMEOUT_S)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(TIMEOUT_S)
    connection.sock.connect(os.fspath(parsed.path))
    return connection
