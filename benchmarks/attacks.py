"""Attacks that `benchmarks/attack.py` measures, each for ever, on a server's gRPC and HTTP address.

Attackers come from other addresses than the honest caller: bounds per address are for this.
"""

import contextlib
import gzip
import itertools
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial

from headgate_client.wire.envoy.service.ratelimit.v3.rls_pb2 import RateLimitRequest
from headgate_client.wire.headgate.v1.limits_pb2 import ReserveRequest, ReserveResponse, SettleRequest

from benchmarks import load
from benchmarks.load import DATA, END_HEADERS, END_STREAM, HEADERS, PING, PREFACE, RST_STREAM, SETTINGS, frame
from benchmarks.processes import METHOD
from benchmarks.traffic import request

RESERVE, SETTLE = "/headgate.v1.Limits/Reserve", "/headgate.v1.Limits/Settle"
SETTLED_TOGETHER = 3_000
"""Reservations that are made, and then settled as fast as that is answered."""
ONE = request(("user", "alice"))
ATTACKER = "127.0.0.2"
SIX_ADDRESSES = [f"127.0.1.{number}" for number in range(1, 7)]
CONNECTIONS = 40
STREAMS = 90
TIMEOUT_S = 2.0
PADDED = 0x8
SMALL_FRAMES = 4_000
"""Small frames that are sent at once."""
NUMBER = b"000000000"
"""Stands for the number of a call in the values of a flood."""

Pause = Callable[[], None]
"""Keeps an attack to its rate: returns when the next call, connection or burst is due."""
Attack = Callable[[str, str, Pause], None]
"""On a gRPC and an HTTP address, for ever: its process is killed."""


class Attacker:
    """One connection that sends what it likes. Where it is cut, it says so with an OSError."""

    def __init__(self, address: str, source: str = ATTACKER) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), TIMEOUT_S, source_address=(source, 0))
        self._headers = load.request_headers(METHOD, address)
        self._stream = -1
        self._unsent = b""

    def speak(self, settings: bytes = b"") -> None:
        self.send(PREFACE + frame(SETTINGS, 0, 0, settings))

    def send(self, data: bytes) -> None:
        self._socket.settimeout(TIMEOUT_S)
        self._socket.sendall(data)
        self._read()

    def push(self, data: bytes) -> None:
        """Send as much as is taken now, and the rest before anything else."""
        self._unsent = self._unsent or data
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            self._unsent = self._unsent[self._socket.send(self._unsent) :]
        self._read()

    def _read(self) -> None:
        # What nobody reads would be an attack of another kind.
        self._socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while self._socket.recv(1 << 16):
                pass
            raise ConnectionError("cut off")

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


def _with_calls(body: Callable[[], bytes], *, end: bool, reset: bool = False) -> Attack:
    """New connections again and again, with as many calls on each as are allowed."""

    def attack(grpc: str, _http: str, pause: Pause) -> None:
        while True:
            with contextlib.suppress(OSError), attackers(grpc) as all_of_them:
                for _, attacker in itertools.product(range(STREAMS), all_of_them):
                    pause()
                    attacker.send(attacker.call(body(), end=end, reset=reset))

    return attack


def _silent(over_http: bool, count: int) -> Attack:
    """Connections that say nothing, more than there is room for."""

    def attack(grpc: str, http: str, pause: Pause) -> None:
        while True:
            with ExitStack() as stack:
                for _ in range(count):
                    pause()
                    with contextlib.suppress(OSError):
                        stack.callback(Attacker(http if over_http else grpc).close)

    return attack


def _small_frames(small: Callable[[int], bytes], connections: int = 20) -> Attack:
    """Connections that send as many small frames of one call as are taken; who is cut off comes again."""

    def attack(grpc: str, _http: str, pause: Pause) -> None:
        opened: dict[int, Attacker] = {}
        while True:
            for place in range(connections):
                pause()
                try:
                    if place not in opened:
                        opened[place] = _calling(grpc)
                    opened[place].push(small(1) * SMALL_FRAMES)
                except OSError:
                    if place in opened:
                        opened.pop(place).close()

    return attack


def _calling(grpc: str) -> Attacker:
    attacker = Attacker(grpc)
    attacker.speak()
    attacker.send(attacker.call(message(b"", length=60_000), end=False))
    return attacker


def _holding(settings: bytes, body: bytes, *, streams: int) -> Attack:
    """All connections that there are, from six addresses, each with `streams` calls that don't end."""

    def attack(grpc: str, _http: str, pause: Pause) -> None:
        opened: dict[int, Attacker] = {}
        while True:
            for place in range(1_000):
                pause()
                try:
                    if place in opened:
                        opened[place].push(b"")
                    else:
                        opened[place] = attacker = Attacker(grpc, SIX_ADDRESSES[place % len(SIX_ADDRESSES)])
                        attacker.speak(settings)
                        attacker.send(b"".join(attacker.call(body, end=bool(body)) for _ in range(streams)))
                except OSError:
                    if place in opened:
                        opened.pop(place).close()

    return attack


def connect_and_leave(grpc: str, _http: str, pause: Pause) -> None:
    while True:
        pause()
        with contextlib.suppress(OSError):
            Attacker(grpc).close()


def half_handshakes(grpc: str, _http: str, pause: Pause) -> None:
    """Send the beginning of TLS, and leave."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        ssl.create_default_context().wrap_bio(incoming, outgoing, server_hostname="localhost").do_handshake()
    hello = outgoing.read()
    while True:
        pause()
        with contextlib.suppress(OSError):
            attacker = Attacker(grpc)
            attacker.push(hello)
            attacker.close()


def pings(grpc: str, _http: str, pause: Pause) -> None:
    while True:
        with contextlib.suppress(OSError), attackers(grpc, 1) as (attacker,):
            while True:
                pause()
                attacker.send(frame(PING, 0, 0, b"pingping") * 10)


def flood(grpc: str, _http: str, _pause: Pause) -> None:
    """Calls with 32 new keys each, as many as may be under way on twenty connections, as fast as they are answered."""
    some = request(*[("user", f"flood-{NUMBER.decode()}-{index}") for index in range(32)])
    payloads = (some.replace(NUMBER, b"%09d" % number) for number in itertools.count())
    while True:
        with contextlib.suppress(OSError):
            load.run(grpc, METHOD, payloads, connections=20, streams=STREAMS, source=ATTACKER)


def _calling_again(method: str, payload: bytes) -> Attack:
    """The same call of another method, as many as may be under way on twenty connections, as fast as it is answered."""

    def attack(grpc: str, _http: str, _pause: Pause) -> None:
        while True:
            with contextlib.suppress(OSError):
                load.run(grpc, method, itertools.repeat(payload), connections=20, streams=STREAMS, source=ATTACKER)

    return attack


def settlements(grpc: str, _http: str, _pause: Pause) -> None:
    """Reserve, and settle as much less, as fast as it is answered."""
    flood = partial(load.run, grpc, connections=20, streams=STREAMS, source=ATTACKER)
    ids: list[str] = []

    def keep(_: int, answer: bytes | None) -> None:
        if answer is not None:
            ids.append(ReserveResponse.FromString(answer).id)

    while True:
        with contextlib.suppress(OSError):
            flood(RESERVE, itertools.repeat(_RESERVE, SETTLED_TOGETHER), on_answer=keep)
            flood(SETTLE, (SettleRequest(id=it, actual=0).SerializeToString() for it in ids))
        ids.clear()


def paced(per_s: float) -> Pause:
    """A function that lets nobody pass more often than that."""
    due = time.monotonic()

    def pause() -> None:
        nonlocal due
        due = max(due + 1 / per_s, time.monotonic() - 1)
        while (left_s := due - time.monotonic()) > 0:
            time.sleep(left_s)

    return pause


_BOMB = message(gzip.compress(b"\0" * 60_000_000, 9), compressed=True)
_ESTIMATE = ReserveRequest(request=RateLimitRequest.FromString(ONE), ttl_ms=1_000)
_ESTIMATE.request.hits_addend = 1
_RESERVE = _ESTIMATE.SerializeToString()
_NO_WINDOW = struct.pack(">HI", 4, 0)
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
    "frames of one byte, 1 conn.": _small_frames(lambda stream: frame(DATA, 0, stream, b"x"), 1),
    "frames of one byte": _small_frames(lambda stream: frame(DATA, 0, stream, b"x")),
    "frames of padding": _small_frames(lambda stream: frame(DATA, PADDED, stream, b"\x08" + b"\0" * 8)),
    "empty frames": _small_frames(lambda stream: frame(DATA, 0, stream, b"")),
    "unknown frames": _small_frames(lambda stream: frame(99, 0, stream, b"x")),
    "1,000 connections held": _holding(b"", b"", streams=0),
    "1,000 held, 99 calls each": _holding(b"", b"", streams=99),
    "1,000 held, no window": _holding(_NO_WINDOW, message(ONE), streams=99),
    "connect and leave": connect_and_leave,
    "half TLS handshakes": half_handshakes,
    "silent connections": _silent(False, 400),
    "silent HTTP connections": _silent(True, 400),
    "new keys": _with_calls(_unique(10), end=True),
    "new keys of 50 KB": _with_calls(_unique(50_000), end=True),
    "requests of 32 new keys": _with_calls(_wide, end=True),
    "flood of new keys": flood,
    "flood of new keys, Redis": flood,
    "first requests, 32 keys": _with_calls(_wide, end=True),
    "first requests, flood": flood,
    "flood of warm calls": _calling_again(METHOD, ONE),
    "flood of refused calls": _calling_again(METHOD, b""),
    "flood of reservations": _calling_again(RESERVE, _RESERVE),
    "flood of settlements": settlements,
    "flood of unknown methods": _calling_again("/nobody.Knows/It", b""),
}
OVER_TLS = {"half TLS handshakes"}
"""Attacks on a server with TLS, whose honest callers speak it too."""
ASKED_FIRST = {"first requests, 32 keys", "first requests, flood"}
"""Attacks beside an honest caller whose keys nobody has asked for."""
OVER_REDIS = {"flood of new keys, Redis", "flood of settlements"} | ASKED_FIRST
"""Attacks on a server with a Redis of its own, where all others keep their counts in memory."""
