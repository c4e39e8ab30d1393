"""`headgate rules halt` and `shadow`: hold rollouts where they are, and stop rules from denying for a time."""

import argparse

from headgate import plain_json
from headgate.console import descriptors
from headgate.console.admin_call import addresses_of, on_all
from headgate.console.output import printable, write
from headgate.console.parsers import Commands
from headgate.console.reach import places_of
from headgate.console.times import stretch
from headgate.endpoint.message_json import as_json
from headgate.limiter.rule_name import Steps, steps_text
from headgate.plane.codec import encode_path
from headgate.plane.commands.asking import add_act_flags, add_command, ask
from headgate.plane.commands.changing import conclude
from headgate.v1 import rules_pb2 as pb

_HALT_EPILOG = """
A rollout that is halted stays at its share of callers; if it denies more than was expected, it is rolled back all the
same. `headgate rules rollback` ends one.

exit status: 0 done; 1 not in force everywhere within --wait; 2 error (the message is on stderr)

examples:
  headgate rules halt --token-file ops.token --why "the graphs look odd"
  headgate rules halt --domain edge --resume --token-file ops.token
"""
_SHADOW_EPILOG = """
What the rules decide is counted and logged, and nobody is denied by them. It ends by itself. Without a plane, ask the
admin side of any node (--addr): it is then so on all nodes of its region.

exit status: 0 done; 1 not in force everywhere within --wait; 2 error (the message is on stderr)

examples:
  headgate rules shadow --domain edge --for 10m --token-file ops.token --why "stop denying, incident 17"
  headgate rules shadow --domain edge user=acme --for 1h --token-file ops.token
  headgate rules shadow --domain edge --end --token-file ops.token
"""


def add_parsers(actions: Commands) -> None:
    """Add the commands."""
    halt = add_command(actions, "halt", "hold rollouts of a plane where they are", _halt, epilog=_HALT_EPILOG)
    add_act_flags(halt)
    halt.add_argument("--domain", default="", metavar="D", help="only the rollout of this domain")
    halt.add_argument("--resume", action="store_true", help="let them go on")
    text = "stop rules from denying, for a time"
    shadow = add_command(actions, "shadow", text, _shadow, epilog=_SHADOW_EPILOG)
    add_act_flags(shadow)
    shadow.add_argument("--domain", required=True, metavar="D", help="the domain")
    shadow.add_argument(
        "path", nargs="?", metavar="key=value[,key=value]", help="one rule and all below it; without it, all rules"
    )
    how = shadow.add_mutually_exclusive_group(required=True)
    how.add_argument("--for", dest="for_ms", type=stretch, metavar="TIME", help="how long: 30s, 10m, 1h")
    how.add_argument("--end", dest="for_ms", action="store_const", const=0, help="let them deny again")


def _halt(args: argparse.Namespace) -> int:
    request = pb.HaltRequest(domain=args.domain, resume=args.resume, why=args.why)
    return conclude(args, ask(args, "Halt", request, pb.ChangeResponse))


def _shadow(args: argparse.Namespace) -> int:
    path: Steps = () if args.path is None else tuple(descriptors.parse_descriptor(args.path))
    request = pb.ShadowRequest(domain=args.domain, path=encode_path(path), for_ms=args.for_ms, why=args.why)
    answers = on_all(addresses_of(args.addr), lambda address: ask(args, "Shadow", request, pb.ChangeResponse, address))
    if answers[0].position.version:
        return conclude(args, answers[0])
    # The admin side of nodes answered, which have no log.
    places, status = places_of([answer.reach for answer in answers])
    said = f"{steps_text(path) or 'all rules'} of {args.domain}: " + ("in" if args.for_ms else "no longer in")
    shown = [as_json(answer.reach) for answer in answers]
    write(plain_json.dumps(shown, indent=2) if args.json else printable(f"{said} shadow, on {places}"))
    return status
