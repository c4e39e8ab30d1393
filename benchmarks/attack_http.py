"""What attacks over HTTP cost an honest caller of gRPC, a probe, and whoever takes a token back.

    python benchmarks/attack_http.py [--seconds N] [--mebibytes N] [--only NAME …]

One server with a guard, a token file and a decision log of that many mebibytes; one honest caller of gRPC, a process
of its own that makes 50 calls a second with a deadline of a second; a probe that asks for /healthz twenty times a
second on new connections, with a deadline of a second; and an attacker, a process of the least priority, that sends as
much as it can. Each line has the honest caller's p50 and p99 in ms before, during and after the attack, what failed of
its calls and of the probes during it, and the server's memory after it. At the end a token is taken back while the log
is being asked for explanations on sixty connections: how long it still works. (`benchmarks/attack.py`: over gRPC.)
"""

import argparse
import contextlib
import http.client
import itertools
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from headgate_client import Headgate, RateLimitError

from benchmarks import decision_log, traffic
from benchmarks.processes import Server, start_headgate

PER_S = 50
DEADLINE_S = 1.0
TOKEN, TAKEN_BACK = "honest", "taken-back"
ATTACKER = "127.0.0.2"
EXPLAINERS = 60
POST = "POST /json HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer %s\r\n"


# Attacks


def connect(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), 5, source_address=(ATTACKER, 0))


def posts(body: bytes, connections: int, head: str = "") -> Callable[[str], None]:
    """Whole requests, one after the other on each connection, as fast as they are answered."""
    data = head.encode() or (POST % TAKEN_BACK).encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body

    def one(address: str) -> None:
        while True:
            with contextlib.suppress(OSError), connect(address) as connection:
                while True:
                    connection.sendall(data)
                    if not connection.recv(1 << 16):
                        break

    return lambda address: in_threads(one, address, connections)


def in_threads(one: Callable[[str], None], address: str, count: int) -> None:
    threads = [threading.Thread(target=one, args=(address,)) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def unread(address: str) -> None:
    """Fifty scrapes at once on each of a hundred connections, of which nothing is read."""
    while True:
        with ExitStack() as stack:
            for _ in range(100):
                with contextlib.suppress(OSError):
                    connection = stack.enter_context(connect(address))
                    connection.sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
            time.sleep(2)


def new_connections(words: bytes) -> Callable[[str], None]:
    """New connections, thousands a second, each of which says so much and waits."""

    def attack(address: str) -> None:
        host, _, port = address.rpartition(":")
        held: list[socket.socket] = []
        for number in itertools.count():
            connection = socket.socket()
            connection.setblocking(False)
            connection.bind((ATTACKER, 0))
            connection.connect_ex((host, int(port)))
            held.append(connection)
            if number % 50 == 49:
                say(held[-50:], words)
            if len(held) >= 500:
                for each in held[:50]:
                    each.close()
                del held[:50]

    return attack


def say(connections: list[socket.socket], words: bytes) -> None:
    with selectors.DefaultSelector() as selector:
        for connection in connections:
            selector.register(connection, selectors.EVENT_WRITE)
        for key, _ in selector.select(0.05):
            with contextlib.suppress(OSError):
                key.fileobj.send(words)  # type: ignore[union-attr]


def explanations(address: str) -> None:
    """Of a descriptor that is in every block, on many connections."""
    entries = quote(json.dumps([list(pair) for pair in decision_log.DESCRIPTORS[0]]))
    target = f"/explain?domain=edge&entries={entries}&at_ms={decision_log.BEGAN_MS}&window_ms=86400000"
    asked = f"GET {target} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TAKEN_BACK}\r\n\r\n".encode()

    def one(where: str) -> None:
        while True:
            with contextlib.suppress(OSError), connect(where) as connection:
                connection.sendall(asked)
                connection.settimeout(30)
                connection.recv(1 << 16)

    in_threads(one, address, EXPLAINERS)


def descriptors(count: int, entries: int) -> bytes:
    one = {"entries": [{"key": "user", "value": "v"}] * entries}
    return json.dumps({"domain": "edge", "descriptors": [one] * count}, separators=(",", ":")).encode()


HALF = (POST % TOKEN).encode() + b"Content-Length: 100\r\n\r\n{"
ATTACKS: dict[str, Callable[[str], None]] = {
    "/json of 59 KB": posts(descriptors(1_400, 1), 8),
    "/json of 8 KB": posts(descriptors(32, 7), 8),
    "/json of empty descriptors": posts(b'{"descriptors":[' + b"{}," * 2_600 + b"{}]}", 8),
    "/version on 64 connections": posts(b"", 64, "GET /version HTTP/1.1\r\nHost: x\r\n\r\n"),
    "metrics, not read": unread,
    "half bodies": new_connections(HALF),
    "silent connections": new_connections(b""),
    "explanations": explanations,
}


# Honest ones


def call_honestly(address: str, seconds: float) -> None:
    """The honest caller, as a process of its own: prints its waits in seconds, and how many failed."""
    waits, failed = [], 0
    with Headgate(address, "bench", timeout=DEADLINE_S, token=TOKEN, on_error="raise") as client:
        began_s = time.monotonic()
        for number in range(int(seconds * PER_S)):
            time.sleep(max(0.0, began_s + number / PER_S - time.monotonic()))
            sent_s = time.monotonic()
            try:
                client.check([{"user": "alice"}])
            except RateLimitError:
                failed += 1
            waits.append(time.monotonic() - sent_s)
    print(json.dumps([waits, failed]))


def honest(address: str, seconds: float) -> tuple[float, float, int]:
    """The p50 and p99 of the honest caller in ms, and its failures."""
    command = [sys.executable, __file__, "--caller", address, "--seconds", str(seconds)]
    waits, failed = json.loads(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)
    parts = statistics.quantiles(waits, n=100)
    return parts[49] * 1e3, parts[98] * 1e3, failed


class Prober:
    """Asks for /healthz on new connections until it is stopped."""

    def __init__(self, address: str) -> None:
        self.asked = self.failed = 0
        self._address = address
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(1 / 20):
            self.asked += 1
            try:
                connection = http.client.HTTPConnection(self._address, timeout=DEADLINE_S)
                connection.request("GET", "/healthz")
                self.failed += connection.getresponse().status != 200
                connection.close()
            except (OSError, http.client.HTTPException):
                self.failed += 1

    def stop(self) -> str:
        self._stop.set()
        self._thread.join()
        return f"{self.failed}/{self.asked}"


@contextlib.contextmanager
def attacked(name: str, server: Server) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, __file__, "--attack", name, "--on", server.http])
    try:
        time.sleep(1)
        yield
    finally:
        process.kill()
        process.wait()


def measure(names: list[str], seconds: float, server: Server) -> None:
    grpc = f"127.0.0.1:{server.address.rpartition(':')[2]}"
    honest(grpc, seconds)  # warms everything up
    head = f"{'':<28}{'before p50/p99':>17}{'during':>17}{'after':>17}"
    print(f"{head}{'failed':>8}{'probes failed':>15}{'memory':>10}")
    before = honest(grpc, seconds)
    for name in names:
        with attacked(name, server):
            prober = Prober(server.http)
            during = honest(grpc, seconds)
            probes = prober.stop()
        time.sleep(1)
        after = honest(grpc, seconds)
        waits = "".join([f"{p50:>8.1f} / {p99:>6.1f}" for p50, p99, _ in (before, during, after)])
        print(f"{name:<28}{waits}{during[2]:>8}{probes:>15}{server.resident_bytes() / 2**20:>6.0f} MiB", flush=True)
        before = after


def take_back(tokens: Path, server: Server) -> None:
    """Take a token back while the log is asked for explanations with it."""
    tokens.write_text(f"{TOKEN}\n{TAKEN_BACK}\n")
    time.sleep(2)
    with attacked("explanations", server):
        time.sleep(2)
        tokens.write_text(f"{TOKEN}\n")
        began_s = time.monotonic()
        while True:
            connection = http.client.HTTPConnection(server.http, timeout=60)
            connection.request("GET", "/rules?limit=0", headers={"Authorization": f"Bearer {TAKEN_BACK}"})
            if connection.getresponse().status == 401:
                break
            connection.close()
            time.sleep(0.02)
        print(f"a token that was taken back meanwhile worked for {time.monotonic() - began_s:.2f} s more")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0, help="per figure (%(default)s)")
    parser.add_argument("--mebibytes", type=int, default=128, help="size of the decision log (%(default)s)")
    parser.add_argument("--only", nargs="*", choices=ATTACKS, default=list(ATTACKS), help="some of the attacks")
    parser.add_argument("--caller", metavar="ADDR", help=argparse.SUPPRESS)
    parser.add_argument("--attack", choices=ATTACKS, help=argparse.SUPPRESS)
    parser.add_argument("--on", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.caller:
        call_honestly(arguments.caller, arguments.seconds)
    elif arguments.attack:
        os.nice(19)
        ATTACKS[arguments.attack](arguments.on)
    else:
        with tempfile.TemporaryDirectory(prefix="headgate-attack-") as folder:
            directory = Path(folder)
            data, tokens = directory / "data", directory / "tokens"
            decision_log.fill(data, decision_log.SHAPES[0], arguments.mebibytes * 2**20)
            tokens.write_text(f"{TOKEN}\n{TAKEN_BACK}\n")
            kept = ("--decision-log-hours", "876000")
            flags = ("--grpc", "0.0.0.0:0", "--data-dir", str(data), "--token-file", str(tokens), *kept)
            server = start_headgate(directory, *flags, rules=traffic.RULES)
            try:
                measure(arguments.only, arguments.seconds, server)
                take_back(tokens, server)
            finally:
                server.stop()


if __name__ == "__main__":
    main()
