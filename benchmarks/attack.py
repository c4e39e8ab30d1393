"""What attacks cost an honest caller: the 99th percentile of its waits, quiet and under each attack, as a ratio.

    python benchmarks/attack.py [--seconds N] [--per-s N] [--attacks-per-s N] [--only NAME …]

One server that other machines could reach, so with a guard; one honest caller, a process of its own that makes
calls at a steady rate; and attackers from another address, with the least priority, so that what is measured is what
they cost the server and not what they take of the machine. They attack at a steady rate that the server could bear if
they were honest: whoever sends more than it can answer makes everybody wait, whatever he sends. It is quiet before and
after each attack, so that a noisy machine moves both figures: only the ratio holds. Wanted is at most 3.
"""

import argparse
import contextlib
import gzip
import itertools
import os
import random
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from benchmarks import load, traffic
from benchmarks.load import DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, frame
from benchmarks.processes import METHOD, start_headgate
from benchmarks.traffic import request

ONE = request(("user", "alice"))

WANTED = 3.0
ATTACKER = "127.0.0.2"
"""Another address than the honest caller's: bounds per address are for this."""
CONNECTIONS = 40
STREAMS = 90
TIMEOUT_S = 2.0
SETTLE_S = 0.5
"""Between the end of an attack and the next measurement, for what it left to be cleared away."""


class Attacker:
    """One connection that sends what it likes. Where it is cut, it says so with an OSError."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S, source_address=(ATTACKER, 0))
        self._headers = load.request_headers(METHOD, address)
        self._stream = -1

    def speak(self) -> None:
        self.send(PREFACE + frame(SETTINGS, 0, 0, b""))

    def send(self, data: bytes) -> None:
        self._socket.sendall(data)
        self._socket.setblocking(False)
        # What nobody reads would be an attack of another kind.
        with contextlib.suppress(BlockingIOError):
            while self._socket.recv(1 << 16):
                pass
        self._socket.settimeout(TIMEOUT_S)

    def call(self, body: bytes, *, end: bool, reset: bool = False) -> bytes:
        """The frames of a call."""
        self._stream += 2
        parts = [frame(HEADERS, END_HEADERS, self._stream, self._headers)]
        starts = range(0, len(body), 16_384)
        parts += [frame(DATA, 0, self._stream, body[at : at + 16_384]) for at in starts]
        if end:
            parts.append(frame(DATA, END_STREAM, self._stream, b""))
        if reset:
            parts.append(frame(RST_STREAM, 0, self._stream, struct.pack(">I", 8)))
        return b"".join(parts)

    def close(self) -> None:
        self._socket.close()


def message(payload: bytes, *, length: int | None = None, compressed: bool = False) -> bytes:
    return struct.pack(">BI", compressed, len(payload) if length is None else length) + payload


@contextlib.contextmanager
def attackers(address: str, count: int = CONNECTIONS) -> Iterator[list[Attacker]]:
    with ExitStack() as stack:
        opened = [Attacker(address) for _ in range(count)]
        for attacker in opened:
            stack.callback(attacker.close)
            attacker.speak()
        yield opened


Attack = Callable[[str, str, Callable[[], None]], None]
"""On a gRPC and an HTTP address, for ever: its process is killed. The function keeps it to its rate."""


def _with_calls(body: Callable[[], bytes], *, end: bool, reset: bool = False) -> Attack:
    """New connections again and again, with as many calls on each as are allowed."""

    def attack(grpc: str, _http: str, pause: Callable[[], None]) -> None:
        while True:
            with contextlib.suppress(OSError), attackers(grpc) as all_of_them:
                for _, attacker in itertools.product(range(STREAMS), all_of_them):
                    pause()
                    attacker.send(attacker.call(body(), end=end, reset=reset))

    return attack


def _silent(over_http: bool, count: int) -> Attack:
    """Connections that say nothing, more than there is room for."""

    def attack(grpc: str, http: str, pause: Callable[[], None]) -> None:
        while True:
            with ExitStack() as stack:
                for _ in range(count):
                    pause()
                    with contextlib.suppress(OSError):
                        stack.callback(Attacker(http if over_http else grpc).close)

    return attack


def pings(grpc: str, _http: str, pause: Callable[[], None]) -> None:
    while True:
        with contextlib.suppress(OSError), attackers(grpc, 1) as (attacker,):
            while True:
                pause()
                attacker.send(frame(PING, 0, 0, b"pingping") * 10)


def paced(per_s: float) -> Callable[[], None]:
    """A function that lets nobody pass more often than that."""
    due = time.monotonic()

    def pause() -> None:
        nonlocal due
        due += 1 / per_s
        while (left_s := due - time.monotonic()) > 0:
            time.sleep(left_s)

    return pause


_BOMB = message(gzip.compress(b"\0" * 60_000_000, 9), compressed=True)
_numbers = itertools.count()


def _unique(length: int) -> Callable[[], bytes]:
    return lambda: message(request(("user", f"{next(_numbers)}-" + "x" * length)))


def _wide() -> bytes:
    return message(request(*[("user", f"wide-{next(_numbers)}") for _ in range(32)]))


ATTACKS: dict[str, Attack] = {
    "unfinished messages": _with_calls(lambda: message(b"x" * 39_000, length=40_000), end=False),
    "lengths of 4 GiB": _with_calls(lambda: message(b"x" * 100, length=2**32 - 1), end=False),
    "headers alone": _with_calls(lambda: b"", end=False),
    "gzip bombs": _with_calls(lambda: _BOMB, end=True),
    "rapid resets": _with_calls(lambda: message(ONE), end=True, reset=True),
    "floods of pings": pings,
    "silent connections": _silent(False, 400),
    "silent HTTP connections": _silent(True, 400),
    "new keys": _with_calls(_unique(10), end=True),
    "new keys of 50 KB": _with_calls(_unique(50_000), end=True),
    "requests of 32 new keys": _with_calls(_wide, end=True),
}


def call_honestly(address: str, seconds: float, per_s: float) -> None:
    """The honest caller, as a process of its own: prints its 99th percentile, in seconds, and its failures."""
    sent: dict[int, float] = {}
    waits: list[float] = []

    def payload_of(number: int) -> bytes:
        sent[number] = time.monotonic()
        return ONE

    def answered(number: int, _message: bytes | None) -> None:
        waits.append(time.monotonic() - sent.pop(number))

    outcome = load.run_paced(
        [address], METHOD, payload_of, per_s=per_s, seconds=seconds, chooser=random.Random(1), on_answer=answered
    )
    print(statistics.quantiles(waits, n=100)[98], outcome.failures + outcome.unanswered)


def p99_s(grpc: str, seconds: float, per_s: float) -> tuple[float, int]:
    command = [sys.executable, __file__, "--caller", grpc, "--seconds", str(seconds), "--per-s", str(per_s)]
    printed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    return float(printed[0]), int(printed[1])


def attack_in_a_process(name: str, grpc: str, http: str, per_s: float) -> "subprocess.Popen[bytes]":
    command = [sys.executable, __file__, "--attack", name, "--on", grpc, http, "--attacks-per-s", str(per_s)]
    return subprocess.Popen(command)


def attack(name: str, grpc: str, http: str, per_s: float) -> None:
    os.nice(19)
    ATTACKS[name](grpc, http, paced(per_s))


def measure(names: list[str], seconds: float, per_s: float, attacks_per_s: float) -> None:
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = start_headgate(directory, "--grpc", "0.0.0.0:0", rules=traffic.RULES)
        stack.callback(server.stop)
        grpc = f"127.0.0.1:{server.address.rpartition(':')[2]}"
        p99_s(grpc, seconds, per_s)  # warms everything up
        print(f"{'':<28}{'quiet':>11}{'attacked':>11}{'ratio':>8}{'failed':>8}{'memory':>10}")
        quiet, _ = p99_s(grpc, seconds, per_s)
        for name in names:
            attacking = attack_in_a_process(name, grpc, server.http, attacks_per_s)
            try:
                attacked, failed = p99_s(grpc, seconds, per_s)
            finally:
                attacking.kill()
                attacking.wait()
            time.sleep(SETTLE_S)
            before, (quiet, _) = quiet, p99_s(grpc, seconds, per_s)
            base = (before + quiet) / 2
            print(
                f"{name:<28}{base * 1e3:>8.2f} ms{attacked * 1e3:>8.2f} ms{attacked / base:>8.2f}{failed:>8}"
                f"{server.resident_bytes() / 2**20:>6.0f} MiB",
                flush=True,
            )
    print(f"wanted: a ratio of at most {WANTED:g}, and no failure")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="per figure (%(default)s)")
    parser.add_argument("--per-s", type=float, default=200.0, help="calls of the honest caller (%(default)s)")
    parser.add_argument("--attacks-per-s", type=float, default=500.0, help="calls of attackers (%(default)s)")
    parser.add_argument("--only", nargs="*", choices=ATTACKS, default=list(ATTACKS), help="some of the attacks")
    parser.add_argument("--caller", metavar="ADDR", help=argparse.SUPPRESS)
    parser.add_argument("--attack", choices=ATTACKS, help=argparse.SUPPRESS)
    parser.add_argument("--on", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.caller:
        call_honestly(arguments.caller, arguments.seconds, arguments.per_s)
    elif arguments.attack:
        grpc, http = arguments.on
        attack(arguments.attack, grpc, http, arguments.attacks_per_s)
    else:
        measure(arguments.only, arguments.seconds, arguments.per_s, arguments.attacks_per_s)


if __name__ == "__main__":
    main()
