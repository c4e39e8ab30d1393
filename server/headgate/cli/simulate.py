"""`headgate simulate`: the production nodes on virtual time, with faults, from a seed."""

import argparse
import secrets
from pathlib import Path
from typing import Final

from headgate.console.output import EXIT_FAILED, EXIT_OK, write
from headgate.console.parsers import Commands
from headgate.errors import ConfigError

RANDOM_SEEDS: Final = 1_000_000_000

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
  headgate simulate --seconds 60                    from a seed taken at random
  headgate simulate --from-seed 1000 --histories 500
  headgate simulate --regions --histories 100
"""


def add_parser(commands: Commands) -> None:
    """Add `headgate simulate` to the commands."""
    parser = commands.add_parser(
        "simulate",
        help="run the engine through bad days on virtual time",
        description="Run one history, or many, and check what must hold at every step.",
        epilog=_EPILOG,
    )
    parser.add_argument("--seed", type=_natural, metavar="N", help="run this one history")
    parser.add_argument("--trace", type=Path, metavar="FILE", help="write what happened, line by line")
    parser.add_argument("--faults", metavar="N,N", help="with --seed: only these of its faults, by number, or none")
    parser.add_argument("--requests", type=_natural, metavar="N", help="with --seed: only its first N requests")
    parser.add_argument("--seconds", type=_seconds, metavar="S", help="run one seed after the other for so long")
    parser.add_argument("--histories", type=_positive, metavar="N", help="run so many seeds")
    parser.add_argument(
        "--from-seed", type=_natural, metavar="N", help="the first of many (default: 0; with --seconds at random)"
    )
    parser.add_argument("--regions", action="store_true", help="several regions, with what breaks between them")
    parser.set_defaults(command=simulate)


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a whole number, not {text!r}")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"expected a whole number above 0, not {text!r}")
    return int(text)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"expected seconds above 0, not {text!r}")
    return seconds


def simulate(args: argparse.Namespace) -> int:
    """Play the histories that were asked for and report what they broke. Returns 1 if one broke a promise."""
    many = args.seconds is not None or args.histories is not None
    if many:
        _leave_out(args, "--seed", "--faults", "--requests", because="--seconds and --histories run whole histories")
    elif args.seed is None:
        raise ConfigError("which history? give --seed, --seconds or --histories")
    else:
        _leave_out(args, "--from-seed", because="--seed runs one history")
    # Here, because no other command needs what it imports.
    from headgate.simulation import generate, session  # noqa: PLC0415
    from headgate.simulation.regions import generate as regions  # noqa: PLC0415

    make: session.Generate = regions.generate if args.regions else generate.generate

    if many:
        ok = session.many(make, _first_seed(args), args.histories, args.seconds, args.trace, write)
    else:
        ok = session.one(make(args.seed), _faults(args.faults), args.requests, args.trace, write)
    return EXIT_OK if ok else EXIT_FAILED


def _leave_out(args: argparse.Namespace, *flags: str, because: str) -> None:
    for flag in flags:
        if getattr(args, flag.removeprefix("--").replace("-", "_")) is not None:
            raise ConfigError(f"leave {flag} out: {because}")


def _first_seed(args: argparse.Namespace) -> int:
    if args.from_seed is not None:
        return int(args.from_seed)
    # Which days a run for some time sees is up to chance; so many histories are the same ones every time.
    return secrets.randbelow(RANDOM_SEEDS) if args.seconds is not None else 0


def _faults(text: str | None) -> list[int] | None:
    if text is None or text == "none":
        return None if text is None else []
    if not all(number.isdecimal() for number in text.split(",")):
        raise ConfigError(f"--faults: expected numbers with commas between them, or none, not {text!r}")
    return [int(number) for number in text.split(",")]
