"""What attacks cost honest callers: waits and failures before, during and after each attack, and memory after it.

    python benchmarks/attack.py [--seconds N] [--rounds N] [--per-s N] [--attacks-per-s N] [--only NAME …]

One server that other machines could reach, so with a guard, or with TLS where the attack is on that. One honest
caller, a process of its own that makes calls at a steady rate on connections that were there before the attack;
newcomers, another process that connects anew for each call; and attackers (attacks.py) from other addresses, with the
least priority, so that what is measured is what they cost the server and not what they take of the machine. It is
quiet before and after each attack, several times in turns, so that a noisy machine moves both figures: medians are
given, and only their ratio holds. Wanted is at most 2.5, and nobody who fails. `CPU` is what the server took of a core
during the attack.

A call fails when it is refused, or not answered within a second. In rows of first requests the honest caller asks, with
each call, for a key that nobody has asked for, of a rule with `on_error: closed`, before a Redis with its deadline of
5 ms: a call that is denied has failed too. Times are the 50th and the 99th percentile, in ms.
`work` is the CPU time in ms that the server took, for whomever, while one more honest caller's call was under way:
what such a call waits for on a machine that has nothing else to do, however busy this one is.
"""

import argparse
import contextlib
import itertools
import os
import random
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitResponse

from benchmarks import load, traffic
from benchmarks.attacks import ASKED_FIRST, ATTACKS, ONE, OVER_REDIS, OVER_TLS, TIMEOUT_S, paced
from benchmarks.processes import METHOD, Server, start_headgate
from tests.conformance.transport.certificates import authority, issued_by
from tests.support.redis_servers import RedisServer

OK = RateLimitResponse.OK
WANTED = 2.5
DEADLINE_S = 1.0
NEWCOMERS_PER_S = 10
WEIGHED_PER_S = 40
CALLER_CONNECTIONS = 2
RULES = (
    traffic.RULES
    + """\
  - key: shielded
    rate_limit: {unit: hour, requests_per_unit: 1000, on_error: closed}
"""
)
SETTLE_S = 2.0
"""Between the end of an attack and the next measurement, for what it left to be cleared away."""
BEGIN_S = 0.5
"""Between the beginning of an attack and its measurement."""


@dataclass
class Figures:
    p50_s: float
    p99_s: float
    failed: int

    def __str__(self) -> str:
        return f"{self.p50_s * 1e3:>8.2f}{self.p99_s * 1e3:>9.2f}{self.failed:>6}"


def figures(waits_s: list[float], failed: int) -> Figures:
    late = sum(wait_s > DEADLINE_S for wait_s in waits_s)
    if len(waits_s) < 2:
        return Figures(float("nan"), float("nan"), failed + late)
    cuts = statistics.quantiles(waits_s, n=100)
    return Figures(cuts[49], cuts[98], failed + late)


class Callers:
    """Honest callers in a process of their own, asked for their figures on its stdin."""

    def __init__(self, stack: ExitStack, kind: str, server: Server, address: str, ca: str) -> None:
        command = [sys.executable, __file__, "--callers", kind, address, str(server.process.pid), "--ca", ca]
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert process.stdin is not None
        assert process.stdout is not None
        self._in, self._out = process.stdin, process.stdout
        stack.callback(process.wait)
        stack.callback(process.kill)
        self.figures()

    def begin(self, seconds: float, per_s: float) -> None:
        self._in.write(f"{seconds} {per_s}\n")
        self._in.flush()

    def figures(self) -> Figures:
        p50_s, p99_s, failed = self._out.readline().split()
        return Figures(float(p50_s), float(p99_s), int(failed))

    def measure(self, seconds: float, per_s: float) -> Figures:
        self.begin(seconds, per_s)
        return self.figures()


Caller = Callable[[float, float], Figures]
"""Calls for so many seconds, so many times in each, and says what it found."""


def call_honestly(kind: str, address: str, pid: int, ca: str) -> None:
    tls = None
    if ca:
        tls = ssl.create_default_context(cafile=ca)
        tls.set_alpn_protocols(["h2"])
    kinds: dict[str, Callable[[str, ssl.SSLContext | None], Caller]] = {
        "established": _EstablishedCaller,
        "first": _FirstCaller,
        "newcomers": _Newcomers,
        "weighing": partial(_Weighing, pid),
    }
    call = kinds[kind](address, tls)
    _say(call(1.0, 20.0))  # it warms everything up
    for line in sys.stdin:
        seconds, per_s = line.split()
        _say(call(float(seconds), float(per_s)))


def _say(found: Figures) -> None:
    print(found.p50_s, found.p99_s, found.failed, flush=True)


class _EstablishedCaller:
    """Calls at a steady rate on connections that stay; where they are cut, it connects anew, and has failed."""

    def __init__(self, address: str, tls: ssl.SSLContext | None) -> None:
        self._address = address
        self._tls = tls
        self._opened = self._open()

    def _open(self) -> list[load.Connection]:
        return [load.Connection(self._address, METHOD, self._tls) for _ in range(CALLER_CONNECTIONS)]

    def __call__(self, seconds: float, per_s: float) -> Figures:
        waits: list[float] = []
        failed, ends_at = 0, time.monotonic() + seconds
        while (left_s := ends_at - time.monotonic()) > 0.1:
            try:
                outcome = self._run(per_s, left_s)
            except OSError:
                failed += 1
                try:
                    self._opened = self._open()
                except OSError:
                    time.sleep(0.1)
                continue
            waits += outcome.waits_s
            failed += outcome.failures + outcome.unanswered
        return figures(waits, failed)

    def _run(self, per_s: float, seconds: float) -> load.Outcome:
        return load.run_paced_on(self._opened, lambda _: ONE, per_s=per_s, seconds=seconds, chooser=random.Random(1))


class _FirstCaller(_EstablishedCaller):
    """Asks for another key with each call, and has failed where it is denied."""

    _numbers = itertools.count()

    def _run(self, per_s: float, seconds: float) -> load.Outcome:
        denied = 0

        def look(_number: int, message: bytes | None) -> None:
            nonlocal denied
            denied += message is not None and RateLimitResponse.FromString(message).overall_code != OK

        outcome = load.run_paced_on(
            self._opened,
            lambda _: traffic.request(("shielded", f"{os.getpid()}-{next(self._numbers)}")),
            per_s=per_s,
            seconds=seconds,
            chooser=random.Random(1),
            on_answer=look,
        )
        outcome.failures += denied
        return outcome


class _Newcomers:
    """Connects for each call."""

    def __init__(self, address: str, tls: ssl.SSLContext | None) -> None:
        self._address = address
        self._tls = tls

    def __call__(self, seconds: float, _per_s: float) -> Figures:
        waits: list[float] = []
        failed, pause, ends_at = 0, paced(NEWCOMERS_PER_S), time.monotonic() + seconds
        while time.monotonic() < ends_at:
            pause()
            began = time.monotonic()
            try:
                answered = self._call_once()
            except OSError:
                answered = False
            if answered:
                waits.append(time.monotonic() - began)
            else:
                failed += 1
        return figures(waits, failed)

    def _call_once(self) -> bool:
        answers: list[bytes | None] = []
        connection = load.Connection(self._address, METHOD, self._tls)
        try:
            connection.socket.settimeout(TIMEOUT_S)
            connection.call(0, ONE)
            connection.send()
            while not answers:
                connection.receive(lambda _number, message: answers.append(message))
        finally:
            connection.socket.close()
        return answers[0] is not None


class _Weighing:
    """Calls, one after the other on a connection that stays, and looks what the server took of the CPU meanwhile."""

    def __init__(self, pid: int, address: str, tls: ssl.SSLContext | None) -> None:
        self._clock = (~pid << 3) | 2  # as clock_getcpuclockid(3) has it
        self._connect = partial(load.Connection, address, METHOD, tls)
        self._connection = self._connect()

    def __call__(self, seconds: float, _per_s: float) -> Figures:
        work_s: list[float] = []
        failed, pause, ends_at = 0, paced(WEIGHED_PER_S), time.monotonic() + seconds
        while time.monotonic() < ends_at:
            pause()
            began_s = time.clock_gettime(self._clock)
            try:
                self._call_once()
                work_s.append(time.clock_gettime(self._clock) - began_s)
            except OSError:
                failed += 1
                with contextlib.suppress(OSError):
                    self._connection = self._connect()
        return figures(work_s, failed)

    def _call_once(self) -> None:
        answers: list[bytes | None] = []
        self._connection.socket.settimeout(TIMEOUT_S)
        self._connection.call(0, ONE)
        self._connection.send()
        while not answers:
            self._connection.receive(lambda _number, message: answers.append(message))


def attack_in_a_process(name: str, grpc: str, http: str, per_s: float) -> "subprocess.Popen[bytes]":
    command = [sys.executable, __file__, "--attack", name, "--on", grpc, http, "--attacks-per-s", str(per_s)]
    return subprocess.Popen(command)


def attack(name: str, grpc: str, http: str, per_s: float) -> None:
    os.nice(19)
    ATTACKS[name](grpc, http, paced(per_s))


class Subject:
    """A server, its honest callers, and what they found when it was last quiet."""

    def __init__(
        self, stack: ExitStack, server: Server, ca: str, arguments: argparse.Namespace, caller: str = "established"
    ) -> None:
        self._server = server
        self._grpc = f"127.0.0.1:{server.address.rpartition(':')[2]}"
        self._seconds, self._per_s = arguments.seconds, arguments.per_s
        self._attacks_per_s = arguments.attacks_per_s
        self._established = Callers(stack, caller, server, self._grpc, ca)
        self._newcomers = Callers(stack, "newcomers", server, self._grpc, ca)
        self._weighing = Callers(stack, "weighing", server, self._grpc, ca)
        self._quiet, self._quiet_work = self._ask()

    def _ask(self) -> tuple[Figures, Figures]:
        """Return what the honest caller finds, and the work meanwhile."""
        self._established.begin(self._seconds, self._per_s)
        work = self._weighing.measure(self._seconds, WEIGHED_PER_S)
        return self._established.figures(), work

    def measure(self, name: str) -> "Row":
        before, before_work = self._quiet, self._quiet_work
        attacking = attack_in_a_process(name, self._grpc, self._server.http, self._attacks_per_s)
        try:
            time.sleep(BEGIN_S)
            cpu_s, began_s = self._server.own_cpu_s(), time.monotonic()
            self._newcomers.begin(self._seconds, NEWCOMERS_PER_S)
            during, work = self._ask()
            newcomers = self._newcomers.figures()
            share = (self._server.own_cpu_s() - cpu_s) / (time.monotonic() - began_s)
        finally:
            attacking.kill()
            attacking.wait()
        time.sleep(SETTLE_S)
        self._quiet, self._quiet_work = self._ask()
        memory_mib = self._server.resident_bytes() / 2**20
        return Row(before, during, self._quiet, newcomers, before_work, work, share, memory_mib)


@dataclass
class Row:
    """One attack: what callers found before, during and after it, newcomers during it, and the server's part."""

    before: Figures
    during: Figures
    after: Figures
    newcomers: Figures
    quiet_work: Figures
    work: Figures
    cpu: float
    """Cores."""
    memory_mib: float

    @property
    def ratio(self) -> float:
        return self.during.p99_s * 2 / (self.before.p99_s + self.after.p99_s)

    def __str__(self) -> str:
        waits = f"{self.before}{self.during}{self.after}{self.newcomers}"
        work = "".join([f"{it.p50_s * 1e3:>7.1f}{it.p99_s * 1e3:>6.1f}" for it in (self.quiet_work, self.work)])
        return f"{waits}{self.ratio:>7.2f}{work}{self.cpu:>6.0%}{self.memory_mib:>6.0f} MiB"


def median_of(rows: list[Row]) -> Row:
    """Medians of all rounds, and all that failed in any of them."""

    def figures_of(kind: str) -> Figures:
        each = [getattr(row, kind) for row in rows]
        p50_s, p99_s = (statistics.median(getattr(it, name) for it in each) for name in ("p50_s", "p99_s"))
        return Figures(p50_s, p99_s, sum(it.failed for it in each))

    cpu = statistics.median(row.cpu for row in rows)
    before, during, after, newcomers = map(figures_of, ("before", "during", "after", "newcomers"))
    return Row(before, during, after, newcomers, figures_of("quiet_work"), figures_of("work"), cpu, rows[-1].memory_mib)


def start(stack: ExitStack, arguments: argparse.Namespace, *, tls: bool, redis: bool, first: bool) -> Subject:
    directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    flags, ca_file = ["--grpc", "0.0.0.0:0"], ""
    if tls:
        ca = authority("ca")
        cert, key = issued_by(ca, "localhost").write(directory, "server")
        flags += ["--tls-cert", cert, "--tls-key", key]
        ca_file = ca.write(directory, "ca")[0]
    if redis:
        flags += ["--origin", stack.enter_context(RedisServer()).url]
    rules = directory / "rules"
    rules.mkdir()
    server = start_headgate(rules, *flags, rules=RULES)
    stack.callback(server.stop)
    return Subject(stack, server, ca_file, arguments, "first" if first else "established")


def measure(arguments: argparse.Namespace) -> None:
    heads = "".join(f"{head:>23}" for head in ("before", "during", "after", "newcomers"))
    print(f"{'':<28}{heads}{'ratio':>7}{'work before':>13}{'during':>13}{'CPU':>6}{'memory':>10}")
    print(" " * 28 + f"{'p50':>8}{'p99':>9}{'fail':>6}" * 4 + " " * 7 + f"{'p50':>7}{'p99':>6}" * 2)
    with ExitStack() as stack:
        subjects: dict[tuple[bool, bool, bool], Subject] = {}
        for name in arguments.only:
            kind = tls, redis, first = name in OVER_TLS, name in OVER_REDIS, name in ASKED_FIRST
            if kind not in subjects:
                subjects[kind] = start(stack, arguments, tls=tls, redis=redis, first=first)
            rows = [subjects[kind].measure(name) for _ in range(arguments.rounds)]
            print(f"{name:<28}{median_of(rows)}", flush=True)
    print(f"wanted: a ratio of at most {WANTED:g}, and no failure")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=5.0, help="per figure (%(default)s)")
    parser.add_argument("--rounds", type=int, default=3, help="quiet and attacked in turns (%(default)s)")
    parser.add_argument("--per-s", type=float, default=200.0, help="calls of the honest caller (%(default)s)")
    parser.add_argument("--attacks-per-s", type=float, default=500.0, help="calls of attackers (%(default)s)")
    parser.add_argument("--only", nargs="*", choices=ATTACKS, default=list(ATTACKS), help="some of the attacks")
    parser.add_argument("--callers", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--ca", default="", help=argparse.SUPPRESS)
    parser.add_argument("--attack", choices=ATTACKS, help=argparse.SUPPRESS)
    parser.add_argument("--on", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.callers:
        kind, address, pid = arguments.callers
        call_honestly(kind, address, int(pid), arguments.ca)
    elif arguments.attack:
        grpc, http = arguments.on
        attack(arguments.attack, grpc, http, arguments.attacks_per_s)
    else:
        measure(arguments)


if __name__ == "__main__":
    main()
