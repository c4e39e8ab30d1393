"""The command line: parse, call, print. Entry points: `main` of `headgate`, `ratelimit` of `headgate-ratelimit`."""

import os
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; the exit status."""
    _quiet_grpc()
    from headgate.cli.commands import run  # noqa: PLC0415

    return run(argv)


def ratelimit() -> int:
    """Serve in the place of envoyproxy/ratelimit; the exit status. It takes no arguments, as that takes none."""
    _quiet_grpc()
    from headgate.cli.serve import serve_as_ratelimit  # noqa: PLC0415

    return serve_as_ratelimit(os.environ)


def _quiet_grpc() -> None:
    # gRPC's core has a log of its own on stderr, unbounded and not ours to drain: one line per
    # failed handshake. It looks at this when it is imported, hence the late imports above.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
