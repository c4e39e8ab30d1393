"""The command line: parse, call, print. `main` is the entry point of `headgate`."""

import os
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    # gRPC's core has a log of its own on stderr, unbounded and not ours to drain: one line per
    # failed handshake. It looks at this when it is imported, hence the import below.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    from headgate.cli.commands import run  # noqa: PLC0415

    return run(argv)
