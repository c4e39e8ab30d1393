"""What goes in a turn, what when there is more, and when nobody answers."""

import asyncio
import itertools
import random

import pytest
import structlog
import structlog.testing
from headgate.exchange import sender as sender_module
from headgate.exchange.exchanger import Exchanger
from headgate.exchange.messages import Ack, Batch, LinkError, PeerLink, Refused
from headgate.exchange.peers import PeerStatus
from headgate.exchange.sender import FRESH_S, SEND_TIMEOUT_S, PeerSender
from headgate.exchange.site import ExchangeSite
from headgate.origin.exchange_protocol import Priority
from headgate.origin.memory import MemoryOrigin
from headgate.origin.names import exchange_key, exchange_name
from headgate.origin.operations.call import Call
from headgate.origin.protocol import CellReport, WindowReport
from headgate.quota.keeper import QuotaKeeper
from headgate.simulation.loop import LoopClock, run_virtually

from tests.unit.exchange.two_origins import ChosenKeys

UNIX_MS = 1_700_000_000_000
WINDOW_MS = 3_600_000
KEYS = 10


class Listening:
    """Acknowledges everything, or is away."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.told: list[tuple[bytes, int]] = []
        self.delay_s = 0.0
        self.batches = 0
        self.away = False
        self.refusing = False
        self.dead = False
        self.is_renewed = False
        self.tried_s: list[float] = []

    async def send(self, batch: Batch, timeout_s: float) -> Ack:
        self.batches += 1
        if self.dead and batch.quota is None:
            self.tried_s.append(asyncio.get_running_loop().time())
            await asyncio.sleep(timeout_s)
            raise LinkError("no answer")
        if self.away:
            raise LinkError("nobody there")
        if self.refusing:
            raise Refused("no")
        await asyncio.sleep(self.delay_s)
        self.keys += [entry.key for entry in batch.entries]
        self.told += [(entry.key, entry.current) for entry in batch.entries]
        return Ack(batch.number, 0)

    async def close(self) -> None: ...


async def published(clock: LoopClock, keys: int = KEYS) -> MemoryOrigin:
    """An origin with ten keys that others are to be told of."""
    origin = MemoryOrigin(clock, region=b"eu", exclusive=False)
    for number in range(keys):
        await count(origin, b"key-%d" % number, 5)
    return origin


def site(origin: MemoryOrigin, clock: LoopClock) -> ExchangeSite:
    return ExchangeSite("eu", origin, b"me", clock, random.Random(1), structlog.get_logger(), ChosenKeys())


async def count(origin: MemoryOrigin, key: bytes, total: int) -> None:
    cells = (CellReport(UNIX_MS // WINDOW_MS, total, 0, 0, total),)
    name = exchange_name(key, key, WINDOW_MS)
    report = WindowReport(key, b"run", total, 0, 0, 100, WINDOW_MS, 0, True, False, cells, publish_at=1, name=name)
    await origin.run(0, Call((report,), ()), 1.0)


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sender_module, "PAGE", 3)
    monkeypatch.setattr(sender_module, "MAX_PAGES", 2)


def test_a_turn_ends_after_so_many_pages_and_says_that_there_is_more() -> None:
    async def play() -> tuple[list[tuple[bool, int]], Listening]:
        clock, link, status = LoopClock(UNIX_MS), Listening(), PeerStatus("us", "")
        sender = PeerSender(site(await published(clock), clock), link, status)
        return [(await sender.exchange(Priority.NORMAL), status.backlog) for _ in range(3)], link

    turns, link = run_virtually(play())
    assert turns == [(True, 4), (True, 0), (False, 0)]
    assert sorted(link.keys) == sorted(b":key-%d" % number for number in range(KEYS))


async def exchange_for(seconds: float, link: PeerLink) -> None:
    clock = LoopClock(UNIX_MS)
    exchanger = Exchanger(site(await published(clock), clock), {"us": link}, {}, QuotaKeeper, 60.0)
    exchanger.start()
    await asyncio.sleep(seconds)
    await exchanger.stop()


def test_what_is_left_of_a_turn_does_not_wait_for_the_next_interval() -> None:
    link = Listening()
    run_virtually(exchange_for(1.0, link))
    assert len(link.keys) == KEYS


def test_what_changes_while_everything_is_told_does_not_wait_for_the_end_of_it() -> None:
    """A fill of 300 keys in pages of three, at ten pages a second; one key that changes all the time."""

    async def play() -> None:
        clock, link, status = LoopClock(UNIX_MS), Listening(), PeerStatus("us", "")
        link.delay_s = 0.1
        origin = await published(clock, 300)
        sender = PeerSender(site(origin, clock), link, status)
        hot = exchange_key(b"key-0", b"key-0")
        for second in range(1, 4):
            await count(origin, b"key-0", 5 + second)
            until_s = clock.monotonic() + FRESH_S[Priority.NORMAL] + 3 * link.delay_s
            while clock.monotonic() < until_s:
                await sender.exchange(Priority.NORMAL)
            assert (hot, 5 + second) in link.told, "soon"
            assert status.backlog > 100, "and long before the end"
        while await sender.exchange(Priority.NORMAL):
            pass
        assert {key for key, _ in link.told} == {exchange_key(b"key-%d" % n, b"key-%d" % n) for n in range(300)}
        assert status.backlog == 0

    run_virtually(play())


def test_a_peer_that_acknowledges_nothing_is_tried_again_and_never_called_connected() -> None:
    """Though there is nothing in the urgent priority, and so nothing there that could fail."""
    link = Listening()
    link.away = True
    with structlog.testing.capture_logs() as logs:
        run_virtually(exchange_for(30.0, link))
    assert {entry["event"] for entry in logs} == {"peer_failed", "quota_keeper"}
    assert link.batches > 10, "within an interval of 60 s"


def test_who_has_waited_for_an_answer_in_vain_tries_again_at_once() -> None:
    """A pause on top would be time in which a network that has healed is not used: regions agree within 5 s of it."""
    link = Listening()
    link.dead = True
    run_virtually(exchange_for(30.0, link))
    assert {round(after - before, 3) for before, after in itertools.pairwise(link.tried_s)} == {SEND_TIMEOUT_S}


@pytest.mark.parametrize("renewed", [False, True])
def test_who_was_refused_tries_again_at_once_with_another_token(renewed: bool) -> None:
    """Else after ten seconds: somebody has to change something first."""
    link = Listening()
    link.refusing = True

    async def play() -> None:
        exchanging = asyncio.create_task(exchange_for(8.0, link))
        await asyncio.sleep(4.0)
        assert link.keys == []
        link.refusing, link.is_renewed = False, renewed
        await asyncio.sleep(1.0)
        assert (len(set(link.keys)) == KEYS) is renewed
        await exchanging

    run_virtually(play())
