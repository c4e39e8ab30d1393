"""`headgate check`: one request to a running server, and its answer: a sentence in a terminal, JSON for programs."""

import argparse
import json
import logging
import sys
from typing import Any

from headgate_client import Decision, Descriptor, DescriptorStatus, Headgate, RateLimitError, Tls
from headgate_client.unmet import Unmet

from headgate.cli.check_text import lines_of
from headgate.console import descriptors
from headgate.console.output import EXIT_FAILED, EXIT_OK, EXIT_USAGE, fail, warn, write
from headgate.console.parsers import Commands, uint32
from headgate.console.target import add_target, token_line, wants_tls, why_closed

_EPILOG = r"""
exit status: 0 OK, 1 over limit, 2 error (the message is on stderr)

examples:
  headgate check --domain edge user=alice
  headgate check --addr unix:/run/headgate.sock --domain edge --hits 5 user=alice,path=/login remote_address=10.0.0.1
  headgate check --domain edge 'query=a=1\,b=2'
"""


def add_parser(commands: Commands) -> None:
    """Add `headgate check` to the commands."""
    parser = commands.add_parser(
        "check",
        help="ask a running server for one decision",
        description="Send one ShouldRateLimit request, one descriptor per argument, and print the answer: as a "
        "sentence in a terminal, else as JSON.",
        epilog=_EPILOG,
    )
    add_target(parser, "127.0.0.1:8081")
    parser.add_argument("--domain", required=True, help="the domain whose rules apply")
    parser.add_argument(
        "--hits",
        type=uint32,
        default=1,
        metavar="N",
        help="the request's cost; 0 looks without charging (default: %(default)s)",
    )
    parser.add_argument("descriptors", nargs="+", metavar="key=value[,key=value]", help=descriptors.HELP)
    parser.add_argument("--json", action="store_true", help="print JSON in a terminal too")
    parser.set_defaults(command=check)


def check(args: argparse.Namespace) -> int:
    """Ask the server once and print its answer. Returns 0 for OK, 1 for over limit, 2 without a decision."""
    # Whatever the client would log, the command says itself.
    logging.getLogger("headgate_client").addHandler(logging.NullHandler())
    request = [Descriptor(descriptors.parse_descriptor(text)) for text in args.descriptors]
    try:
        with _client(args) as client:
            decision = client.check(request, cost=args.hits)
    except RateLimitError as error:
        hint = why_closed(args, error.status, error.message)
        return fail(f"{args.addr}: {error.status}: {error.message}{hint}", EXIT_USAGE)
    except (OSError, ValueError) as error:
        return fail(str(error), EXIT_USAGE)
    if args.json or not sys.stdout.isatty():
        write(json.dumps(_as_json(decision), indent=2))
        _warn_of_no_rule(args, decision)
    else:
        write("\n".join(lines_of(decision, args.domain, args.descriptors)))
    return EXIT_OK if decision.allowed else EXIT_FAILED


def _client(args: argparse.Namespace) -> Headgate:
    return Headgate(
        args.addr,
        args.domain,
        timeout=args.timeout,
        connect_timeout=args.timeout,
        on_error="raise",
        tls=_tls(args),
        token=token_line(args.token_file),
    )


def _warn_of_no_rule(args: argparse.Namespace, decision: Decision) -> None:
    """An answer without any limit is a yes, and most often a mistake in the question."""
    if any(status.unmet is Unmet.NO_DOMAIN for status in decision.statuses):
        warn(f"this server has no rules for domain {args.domain!r}: nothing limits the request")
        return
    without = [text for text, status in zip(args.descriptors, decision.statuses, strict=False) if _has_no_rule(status)]
    if without:
        warn(
            f"no rule of domain {args.domain!r} applies to {' '.join(without)}; "
            f"`headgate rules explain DIR --domain {args.domain} {' '.join(without)}` says why"
        )


def _has_no_rule(status: DescriptorStatus) -> bool:
    """A server of another make, or of a version before, does not tell that from a rule that is replaced."""
    return status.unmet is Unmet.NO_RULE or (status.unmet is None and status.limit is None and status.remaining == 0)


def _tls(args: argparse.Namespace) -> Tls | None:
    if not wants_tls(args):
        return None
    return Tls(ca=args.tls_ca, cert=args.tls_cert, key=args.tls_key, server_name=args.tls_server_name)


def _as_json(decision: Decision) -> dict[str, Any]:
    return {
        "overall_code": decision.code.value,
        "statuses": [_status(status) for status in decision.statuses],
        "headers": dict(decision.headers),
    }


def _status(status: DescriptorStatus) -> dict[str, Any]:
    limit = status.limit
    return {
        "code": status.code.value,
        "limit": limit and {"requests_per_unit": limit.requests_per_unit, "unit": limit.unit, "name": limit.name},
        "remaining": status.remaining,
        "reset_ms": status.reset_ms,
        "unmet": None if status.unmet is None else status.unmet.name.lower(),
    }
