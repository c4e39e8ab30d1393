"""The parts of the transports that need no socket."""

import asyncio
import fcntl
import math
import os
import socket
import stat
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog
from headgate.address import TcpAddress, UnixAddress, parse_address
from headgate.endpoint.socketfile import LOCK_SUFFIX, SocketFile
from headgate.endpoint.tls import TlsFiles
from headgate.endpoint.trust import Trust
from headgate.errors import BadRequest, ConfigError, NotReady
from headgate.pending import PendingAnswer
from headgate.transport import intake
from headgate.transport.allocator import Trimmer
from headgate.transport.answers import Failures
from headgate.transport.batches import BatchDecider, KeptBack
from headgate.transport.calls import Calls
from headgate.transport.drain import FLUSH_S, wait_until_quiet
from headgate.transport.guard.refusals import Refusal, Refusals
from headgate.transport.health import Health
from headgate.transport.intake import Intake
from headgate.transport.interface import Serving, TransportLimits, TransportStats
from headgate.transport.select import TransportKind, choose_transport
from headgate.transport.shared_loop import LoopLock
from headgate.transport.timeouts import Timeouts, parse_timeout_s
from structlog.testing import CapturingLogger

from tests.support.clock import ManualClock
from tests.support.waiting import PATIENCE_S


@pytest.mark.parametrize(
    ("text", "address", "written"),
    [
        ("127.0.0.1:8081", TcpAddress("127.0.0.1", 8081), "127.0.0.1:8081"),
        ("localhost:0", TcpAddress("localhost", 0), "localhost:0"),
        ("[::]:8081", TcpAddress("::", 8081), "[::]:8081"),
        (":8081", TcpAddress("::", 8081), "[::]:8081"),
        ("[::1]:65535", TcpAddress("::1", 65535), "[::1]:65535"),
        ("unix:/run/headgate.sock", UnixAddress("/run/headgate.sock"), "unix:/run/headgate.sock"),
        ("unix:///run/headgate.sock", UnixAddress("/run/headgate.sock"), "unix:/run/headgate.sock"),
    ],
)
def test_addresses(text: str, address: TcpAddress | UnixAddress, written: str) -> None:
    assert parse_address(text) == address
    assert str(address) == written


def test_relative_socket_paths_are_made_absolute() -> None:
    assert parse_address("unix:here") == UnixAddress(str(Path.cwd() / "here"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "8081",
        "[]:8081",
        "host",
        "host:",
        "host:http",
        "host:-1",
        "host:65536",
        "host:８０",
        "::1:8081",
        "[::1]",
        "unix:",
        "unix://host/path",
        "unix:/" + "x" * 103,
        "unix:/a\0b",
    ],
)
def test_what_is_no_address_is_refused_by_name(text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_address(text)
    assert repr(text) in str(caught.value)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (b"20m", 0.02),
        (b"0m", 0.0),
        (b"1S", 1.0),
        (b"2M", 120.0),
        (b"3H", 10_800.0),
        (b"500u", 0.0005),
        (b"99999999n", 0.099999999),
        (b"", math.inf),
        (b"m", math.inf),
        (b"20", math.inf),
        (b"20x", math.inf),
        (b"-1m", math.inf),
        (b"1.5S", math.inf),
        (b"123456789m", math.inf),
    ],
)
def test_timeouts(header: bytes, seconds: float) -> None:
    assert parse_timeout_s(header) == pytest.approx(seconds)


def test_known_timeouts_are_bounded() -> None:
    timeouts = Timeouts()
    for number in range(5000):
        assert timeouts[b"%dm" % number] == pytest.approx(number / 1000)
        assert len(timeouts) <= 1024


def test_trimming_waits_a_little_and_happens_once() -> None:
    trims: list[int] = []

    def trim(pad: int) -> int:
        trims.append(pad)
        return 1

    trimmer = Trimmer(trim)
    assert trimmer.due_at == math.inf
    assert not trimmer.noted
    trimmer.note(100.0)
    trimmer.note(100.4)
    assert trimmer.due_at == 100.5
    assert trimmer.noted
    assert trims == []
    trimmer.run()
    assert trims == [0]
    assert trimmer.due_at == math.inf
    assert not trimmer.noted


def test_between_trims_is_a_pause_where_one_is_wanted() -> None:
    trimmer = Trimmer(lambda _: 0, pause_s=60.0)
    trimmer.note(100.0)
    trimmer.run()
    trimmer.note(101.0)
    assert trimmer.due_at == 160.5
    trimmer.run()
    trimmer.note(300.0)
    assert trimmer.due_at == 300.5


class FakeFront:
    """Gives the receiving thread what a test has prepared; notes how long it would have waited, and who was refused."""

    def __init__(self, *batches: list[Any]) -> None:
        self.batches = [*batches]
        self.timeouts_ms: list[int] = []
        self.failed: list[int] = []

    def recv_batch(self, _: int, timeout_ms: int) -> list[Any] | None:
        self.timeouts_ms.append(timeout_ms)
        return self.batches.pop(0) if self.batches else None

    def respond(self, call_id: int, answer: bytes) -> None: ...

    def fail(self, call_id: int, _error: Exception) -> None:
        self.failed.append(call_id)

    def mark_pending(self, call_id: int, size: int, received_at: float, answer: PendingAnswer) -> None: ...


class Echo:
    """A handler that gives requests back."""

    def answer(self, payload: bytes, caller: str = "") -> bytes:
        return payload


def intake_of(front: FakeFront, refusals: Refusals | None = None) -> Intake:
    limits, stats = TransportLimits(max_message_bytes=10), TransportStats()
    endpoint = Serving("", Echo(), limits, structlog.get_logger())
    calls = Calls(endpoint, stats)
    kept_back = KeptBack(refusals, limits, stats)
    decider = BatchDecider([calls.decide], front.respond, front, LoopLock(), stats, kept_back, {}, limits, lambda: None)
    return Intake(
        cast(Any, front), decider, endpoint, stats, deliver=lambda _: None, fail=front.fail, kept_back=kept_back
    )


def received(
    front: FakeFront, times: list[float], monkeypatch: pytest.MonkeyPatch, refusals: Refusals | None = None
) -> list[int]:
    """Receive all batches at these times; after how many of them the heap was trimmed."""
    clock = iter(times)
    trims: list[int] = []

    def trim(_: int) -> int:
        trims.append(len(front.timeouts_ms))
        return 1

    monkeypatch.setattr(intake, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    monkeypatch.setattr(intake, "Trimmer", lambda: Trimmer(trim))
    receiver = intake_of(front, refusals)
    receiver.start()
    receiver.join()
    return trims


def sent(call_id: int, payload: bytes) -> Any:
    return (1, call_id, 0, payload, "peer")


def test_an_idle_receiver_sleeps_long_unless_memory_is_to_be_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call too large at 101 s: looked after half a second later, and then nothing wakes the thread again."""
    front = FakeFront([], [sent(7, b"x" * 11)], [], [])
    assert received(front, [100.0, 101.0, 101.5, 200.0], monkeypatch) == [3]
    assert front.failed == [7]
    assert front.timeouts_ms == [60_000, 60_000, 500, 60_000, 60_000]


def test_a_call_that_is_too_large_when_a_trim_is_due_has_one_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is still held when the other's is made."""
    front = FakeFront([sent(7, b"x" * 11)], [sent(8, b"x" * 11)], [])
    assert received(front, [101.0, 101.6, 102.1], monkeypatch) == [2, 3]
    assert front.timeouts_ms == [60_000, 500, 500, 60_000]


def test_what_the_guard_kept_back_leaves_no_memory_to_give_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Trimming takes milliseconds, and strangers could ask for it twice a second."""
    refusals = Refusals()
    front = FakeFront([sent(7, refusals.encode(Refusal.TOO_LARGE, 10**9))], [], [])
    assert received(front, [101.0, 101.5, 102.0], monkeypatch, refusals) == []
    assert front.failed == [7]


def test_nothing_is_held_of_calls_that_were_dealt_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next call may be a minute away."""
    payloads = [bytes([number]) * 5 for number in range(3)]
    front = FakeFront([sent(number, payload) for number, payload in enumerate(payloads)])
    references: list[list[int]] = []

    def receive(max_events: int, timeout_ms: int) -> list[Any] | None:
        references.append([sys.getrefcount(payload) for payload in payloads])
        return FakeFront.recv_batch(front, max_events, timeout_ms)

    monkeypatch.setattr(front, "recv_batch", receive)
    received(front, [100.0], monkeypatch)
    held, after = references
    assert [now - before for before, now in zip(held, after, strict=True)] == [-1, -1, -1]


def _logger() -> tuple[CapturingLogger, structlog.typing.FilteringBoundLogger]:
    log = CapturingLogger()
    return log, structlog.wrap_logger(log, processors=[lambda _logger, _name, event: ((), event)])


def test_failures_tell_the_caller_and_the_operator() -> None:
    log, logger = _logger()
    stats = TransportStats()
    failures = Failures(stats, logger, ManualClock())
    assert failures.answer(BadRequest("empty domain")) == (3, "empty domain")
    assert failures.answer(NotReady("later")) == (14, "later")
    assert (stats.failed_internal, log.calls) == (0, [])
    error = KeyError("secret")
    assert failures.answer(error) == (13, "internal error")
    assert stats.failed_internal == 1
    assert [entry.kwargs["exc_info"] for entry in log.calls] == [error]


def test_a_logger_that_fails_does_not_fail_the_answer() -> None:
    def broken(*_arguments: object) -> structlog.typing.ProcessorReturnValue:
        raise OSError("disk full")

    logger = structlog.wrap_logger(CapturingLogger(), processors=[broken])
    assert Failures(TransportStats(), logger).answer(KeyError()) == (13, "internal error")


def test_watchers_hear_changes_until_they_leave() -> None:
    health: Health[str] = Health()
    heard: list[tuple[str, bytes]] = []
    for name in ("a", "b"):
        health.watch(name, b"", lambda status, name=name: heard.append((name, status)), "")  # type: ignore[misc]
    health.unwatch("a")
    health.unwatch("nobody")
    health.set(True)
    health.set(True)
    assert heard == [("a", b"\x08\x02"), ("b", b"\x08\x02"), ("b", b"\x08\x01")]
    assert health.watchers == ["b"]


def test_a_watcher_who_leaves_while_it_is_told_disturbs_nobody() -> None:
    health: Health[str] = Health()
    heard: list[bytes] = []

    def leave_on_change(status: bytes) -> None:
        if status == b"\x08\x01":
            health.unwatch("first")

    health.watch("first", b"", leave_on_change, "")
    health.watch("second", b"", heard.append, "")
    health.set(True)
    assert heard == [b"\x08\x02", b"\x08\x01"]
    assert health.watchers == ["second"]


def test_one_owner_of_a_socket_path_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "s"
    owner = SocketFile(str(path))
    with pytest.raises(ConfigError, match="in use"):
        SocketFile(str(path))
    owner.release()
    SocketFile(str(path)).release()
    assert list(tmp_path.iterdir()) == []


def test_a_socket_is_its_owner_s_alone_until_it_has_its_mode(tmp_path: Path) -> None:
    before = os.umask(0)
    file = SocketFile(f"{tmp_path}/s", 0o666)
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            with file.binding():
                bound.bind(f"{tmp_path}/s")
                assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o600
            assert stat.S_IMODE((tmp_path / "s").stat().st_mode) == 0o666
        assert os.umask(0) == 0
        with pytest.raises(FileNotFoundError), file.binding():
            raise FileNotFoundError
        assert os.umask(0) == 0
    finally:
        file.release()
        os.umask(before)


def test_a_lock_whose_file_was_removed_meanwhile_is_taken_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its owner leaves between our open and our lock: what we locked is no longer there for others to see."""
    path, lock = tmp_path / "s", tmp_path / f"s{LOCK_SUFFIX}"
    real_flock, leaving = fcntl.flock, [lock]

    def flock(fd: int, operation: int) -> None:
        if leaving:
            leaving.pop().unlink()
        real_flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    owner = SocketFile(str(path))
    with pytest.raises(ConfigError, match="in use"):
        SocketFile(str(path))
    owner.release()
    assert list(tmp_path.iterdir()) == []


async def test_quiet_is_nothing_pending_and_nothing_new_for_a_moment() -> None:
    stats = TransportStats(accepted_calls=1)
    loop = asyncio.get_running_loop()
    began = loop.time()
    loop.call_later(0.1, lambda: setattr(stats, "finished_calls", 1))
    await wait_until_quiet(stats, 2 * PATIENCE_S)
    assert 0.1 + FLUSH_S <= loop.time() - began < PATIENCE_S


async def test_waiting_for_quiet_is_bounded() -> None:
    loop = asyncio.get_running_loop()
    began = loop.time()
    await wait_until_quiet(TransportStats(accepted_calls=1), 0.1)
    assert loop.time() - began >= 0.1


def _made(kind: TransportKind, address: str, *networks: str, tls: TlsFiles | None = None) -> str:
    factory = choose_transport(kind, address, tls, Trust(networks))
    return factory(Serving(address, Echo(), TransportLimits(), _logger()[1])).name


def test_auto_falls_back_where_there_is_no_native_transport_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _made("auto", "127.0.0.1:0") == "native"
    monkeypatch.setattr("headgate.transport.select.find_spec", lambda _name: None)
    log, logger = _logger()
    transport = choose_transport("auto", "127.0.0.1:0")(Serving("127.0.0.1:0", Echo(), TransportLimits(), logger))
    assert transport.name == "grpcio"
    assert [entry.kwargs["event"] for entry in log.calls] == ["transport_fallback"]
    with pytest.raises(ConfigError, match="pygrpc-native"):
        choose_transport("native", "127.0.0.1:0")


@pytest.mark.parametrize("kind", ["auto", "native"])
def test_the_bare_front_is_only_where_nobody_else_can_reach_it(kind: TransportKind) -> None:
    for address in ("127.0.0.1:0", "127.9.9.9:1", "[::1]:1", "localhost:1", "unix:/s"):
        assert _made(kind, address) == "native", address
    for address in ("0.0.0.0:1", "[::]:1", "10.0.0.1:1", "[fd00::1]:1", "some.host:1", "[::ffff:10.0.0.1]:1"):
        assert _made(kind, address) == "guarded", address


def test_an_address_in_a_trusted_network_is_reached_by_others_too() -> None:
    assert _made("auto", "10.0.0.1:1", "10.0.0.0/8") == "guarded"
    assert _made("auto", "0.0.0.0:1", "10.0.0.0/8", "0.0.0.0/1", "128.0.0.0/1") == "guarded"


def test_who_trusts_everybody_needs_no_guard() -> None:
    assert _made("auto", "0.0.0.0:1", "0.0.0.0/0") == "native"
    assert _made("auto", "10.0.0.1:1", "0.0.0.0/0") == "native"
    assert _made("auto", "[::]:1", "0.0.0.0/0") == "guarded"
    assert _made("auto", "[::]:1", "::/0") == "guarded"
    assert _made("auto", "[::]:1", "::/0", "0.0.0.0/0") == "native"


@pytest.mark.parametrize("address", ["127.0.0.1:0", "unix:/s", "0.0.0.0:0"])
def test_tls_always_has_a_guard_and_grpcio_never(address: str) -> None:
    files = TlsFiles("cert", "key")
    assert _made("auto", address, "0.0.0.0/0", tls=files) == "guarded"
    assert _made("native", address, "0.0.0.0/0", tls=files) == "guarded"
    assert _made("grpcio", address, tls=files) == "grpcio"


def test_callers_are_trusted_by_network_whatever_the_spelling() -> None:
    trust = Trust(["10.0.0.0/8", "fd00::/8", "192.0.2.7"])
    for host in ("10.1.2.3", "::ffff:10.1.2.3", "fd00::1", "fd00::1%eth0", "192.0.2.7"):
        assert trust.trusts_caller(host), host
    for host in ("11.1.2.3", "::ffff:11.1.2.3", "fe80::1", "192.0.2.8", "127.0.0.1", "::1", "", "nonsense"):
        assert not trust.trusts_caller(host), host


def test_what_is_remembered_of_callers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.endpoint.trust._MAX_KNOWN", 10)
    trust = Trust(["10.0.0.0/8"])
    for number in range(100):
        assert trust.trusts_caller(f"10.0.0.{number}")
    assert trust._known.cache_info().currsize <= 10
