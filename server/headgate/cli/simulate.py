"""`headgate simulate`: the production nodes on virtual time, with faults, from a seed."""

import argparse
from pathlib import Path

from headgate.cli.output import EXIT_FAILED, EXIT_OK, write
from headgate.errors import ConfigError

_EPILOG = """
Engine, replay, breaker and origin logic are the ones that serve; clocks, network and Redis are
simulated. A seed is one history: the same seed gives the same output, byte for byte. One that
fails is made smaller, and what happened in it is written to a file.

exit status:
  0  nothing was violated
  1  something was
  2  bad flags

examples:
  headgate simulate --seed 17
  headgate simulate --seed 17 --trace 17.trace
  headgate simulate --seconds 60
  headgate simulate --from-seed 1000 --histories 500
"""


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "simulate",
        help="run the engine through bad days on virtual time",
        description="Run one history, or many, and check what must hold at every step.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seed", type=_natural, metavar="N", help="run this one history")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write what happened, line by line")
    parser.add_argument("--faults", metavar="N,N", help="with --seed: only these of its faults, by number, or none")
    parser.add_argument("--requests", type=_natural, metavar="N", help="with --seed: only its first N requests")
    parser.add_argument("--seconds", type=float, metavar="S", help="run one seed after the other for so long")
    parser.add_argument("--histories", type=_natural, metavar="N", help="run so many seeds")
    parser.add_argument("--from-seed", type=_natural, default=0, metavar="N", help="the first of many (default: 0)")
    parser.set_defaults(command=simulate)


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number, not {text!r}")
    return int(text)


def simulate(args: argparse.Namespace) -> int:
    many = args.seconds is not None or args.histories is not None
    if args.seed is not None and many:
        raise ConfigError("--seed runs one history: leave --seconds and --histories out")
    if args.seed is None and not many:
        raise ConfigError("which history? give --seed, --seconds or --histories")
    # Here, because no other command needs what it imports.
    from headgate.simulation import session  # noqa: PLC0415

    if many:
        ok = session.many(args.from_seed, args.histories, args.seconds, args.trace, write)
    else:
        ok = session.one(args.seed, _faults(args.faults), args.requests, args.trace, write)
    return EXIT_OK if ok else EXIT_FAILED


def _faults(text: str | None) -> list[int] | None:
    if text is None or text == "none":
        return None if text is None else []
    if not all(number.isdecimal() for number in text.split(",")):
        raise ConfigError(f"--faults: expected numbers with commas between them, or none, not {text!r}")
    return [int(number) for number in text.split(",")]
