"""What TLS costs: handshakes and records are counted in steps, too. Sockets and TLS are real, turns are the test's."""

import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from headgate.transport.guard.budget import Backlog, Budget, BudgetShare
from headgate.transport.guard.frames import PREFACE
from headgate.transport.guard.inspector import Inspector
from headgate.transport.guard.open_calls import PLACES_AT_ONCE, OpenCalls, Places
from headgate.transport.guard.share import FIRST_STEPS, TURN_STEPS, Account
from headgate.transport.guard.surroundings import GuardTimeouts, Scratch, Surroundings
from headgate.transport.guard.tls_relay import HANDSHAKE_STEPS, RECORDS_AT_ONCE, RECORDS_PER_STEP, TlsRelay

from tests.conformance.transport.certificates import authority, issued_by
from tests.conformance.transport.harness import eventually
from tests.unit.transport.guard_wire import MAX_MESSAGE, NOW, REFUSALS, Loop, call, message

TIMEOUTS = GuardTimeouts(handshake_s=10.0, message_s=10.0, idle_s=100.0, age_s=1_000.0)
CA = authority("ca")


class TlsCaller:
    """A relay between a front and a caller that speaks TLS, both the test's."""

    def __init__(self, directory: Path) -> None:
        server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server.load_cert_chain(*issued_by(CA, "server").write(directory, "server"))
        self.caller, ours = socket.socketpair()
        self._connected, self.front = socket.socketpair()
        for each in (self.caller, ours, self._connected, self.front):
            each.setblocking(False)
        self.loop = Loop()
        self.account = Account(self.loop.turns)
        around = Surroundings(
            turns=self.loop.turns,
            backlog=Backlog(1_000_000),
            relieve=lambda: None,
            scratch=Scratch(),
            timeouts=TIMEOUTS,
            connect=lambda: (self._connected, "unix:1"),
            now=NOW,
        )
        budget = BudgetShare(Budget(100_000, 100_000))
        inspector = Inspector(MAX_MESSAGE, 1_000, REFUSALS, budget, OpenCalls(Places(10_000)), self.account, NOW)
        self.ended: list[str] = []
        self.relay = TlsRelay(ours, inspector, around, lambda _, reason: self.ended.append(reason), server)
        self.relay.open()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = ssl.create_default_context(cadata=CA.cert_pem.decode())
        self._tls = client.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self.passed = b""

    def taken(self) -> int:
        """Steps that were taken in this turn."""
        return TURN_STEPS - self.loop.turns.left

    async def hello(self) -> None:
        """Send the first part of the handshake."""
        with pytest.raises(ssl.SSLWantReadError):
            self._tls.do_handshake()
        self.caller.send(self._outgoing.read())

    async def shake_hands(self) -> None:
        await self.hello()
        await eventually(self._has_shaken_hands)
        self.caller.send(self._outgoing.read() + self.records(PREFACE))
        await self.until_front_has(PREFACE)

    def _has_shaken_hands(self) -> bool:
        try:
            self._incoming.write(self.caller.recv(65_536))
            self._tls.do_handshake()
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        return True

    def records(self, *contents: bytes) -> bytes:
        """Each of these as a record of its own."""
        for content in contents:
            self._tls.write(content)
        return self._outgoing.read()

    async def until_front_has(self, expected: bytes) -> None:
        def has() -> bool:
            with suppress(BlockingIOError):
                self.passed += self.front.recv(1_000_000)
            return self.passed == expected

        await eventually(has)

    def close(self) -> None:
        self.relay.close("test")
        for each in (self.caller, self._connected, self.front):
            each.close()


@pytest.fixture
async def tls(tmp_path: Path) -> AsyncIterator[TlsCaller]:
    made = TlsCaller(tmp_path)
    yield made
    made.close()


def calls(count: int) -> list[bytes]:
    """In their usual form."""
    return [call(1 + 2 * number, message(b"x")) for number in range(count)]


def steps_of(calls: int) -> int:
    """Steps of so many calls that begin together, without TLS: one for each that asks for more places."""
    return -(-calls // PLACES_AT_ONCE)


async def test_what_is_answered_of_a_handshake_is_counted_among_the_steps_of_a_turn(tls: TlsCaller) -> None:
    """Twice, with TLS 1.3. Its caller pays for reads that bring it no further, and for nothing else."""
    await tls.shake_hands()
    assert tls.account.steps == FIRST_STEPS - 1
    assert tls.taken() == 2 * HANDSHAKE_STEPS + 1


async def test_a_handshake_waits_for_the_next_turn_where_this_one_has_no_steps_left(tls: TlsCaller) -> None:
    tls.loop.turns.take(TURN_STEPS)
    await tls.hello()
    await eventually(lambda: len(tls.loop.turns._line) == 1)
    assert tls.taken() == TURN_STEPS
    tls.loop.turn()
    assert tls.taken() == HANDSHAKE_STEPS + 2, "one for going on, and one for a read that brought it no further"


@pytest.mark.parametrize(
    ("records", "steps"),
    [(RECORDS_PER_STEP - 1, 0), (RECORDS_PER_STEP, 1), (3 * RECORDS_PER_STEP, 3)],
)
async def test_many_records_in_one_read_are_paid_for(tls: TlsCaller, records: int, steps: int) -> None:
    await tls.shake_hands()
    tls.loop.turn()
    before = tls.account.steps
    tls.caller.send(tls.records(*calls(records)))
    await tls.until_front_has(PREFACE + b"".join(calls(records)))
    assert before - tls.account.steps == steps + steps_of(records)


async def test_so_many_records_are_taken_apart_in_a_turn_and_nothing_is_lost(tls: TlsCaller) -> None:
    await tls.shake_hands()
    tls.loop.turn()
    before, more, at_once = tls.account.steps, calls(50), RECORDS_AT_ONCE // 2
    tls.caller.send(tls.records(*(part for one in more for part in (one[:9], one[9:]))))
    await tls.until_front_has(PREFACE + b"".join(more[:at_once]))
    assert before - tls.account.steps == RECORDS_AT_ONCE // RECORDS_PER_STEP + steps_of(at_once)
    tls.loop.turn()
    await tls.until_front_has(PREFACE + b"".join(more))
    assert before - tls.account.steps == 2 * len(more) // RECORDS_PER_STEP + steps_of(len(more))


async def test_a_read_that_completes_no_record_is_paid_for(tls: TlsCaller) -> None:
    await tls.shake_hands()
    before, (one,) = tls.account.steps, calls(1)
    record = tls.records(one)
    for number, part in enumerate((record[:1], record[1:20]), 1):
        tls.caller.send(part)
        await eventually(lambda number=number: before - tls.account.steps == number)  # type: ignore[misc]
    tls.caller.send(record[20:])
    await tls.until_front_has(PREFACE + one)
    assert before - tls.account.steps == 2 + steps_of(1)
