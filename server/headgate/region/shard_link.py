"""The driver of a shard session: it owns the event, the timer, the pacing and the breaker, and makes the calls.

There is no timer in the way of a request: what comes while a call is under way goes with the next one. Everything
that is decided about counters and requests is in session.py.
"""

import asyncio
import contextlib
import math
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from headgate.clock import Clock
from headgate.origin.interface import Origin, OriginError
from headgate.region.breaker import Breaker, BreakerSettings, BreakerState
from headgate.region.lateness import Lateness
from headgate.region.session import MAX_REPORTS, ShardSession
from headgate.region.session_owner import Chances, SessionOwner
from headgate.region.waiting import Decided

CALL_TIMEOUT_S: Final = 0.5
"""After which a call is given up. Requests have long gone by their own deadline; what this bounds is
how long a stalled connection keeps the shard's totals from being reported another way."""
STALLED_S: Final = 0.05
"""A call that takes longer seems stalled, if requests have missed their deadlines for it: ten times the usual deadline.
Shorter blames a shard for a busy machine; longer lets more requests wait in vain before the breaker opens."""
MOST_STALLED_S: Final = 0.2
"""However long requests may wait: a call that takes longer is no accident of a busy machine."""
PROBE_CALLS: Final = 3
"""Calls of one probe: one to connect, one to be timed, and one for an accident. A slow shard is late in all."""
FAULT_PAUSE_S: Final = 0.1
"""After a fault of our own: long enough that it can't fill the log, short enough that nobody misses a flush."""
REPLAY_PER_S: Final = 20_000
"""Reports that nobody waits for: what piled up during an outage comes back spread out, at about a
quarter of a shard's time. Requests go in between."""
UNREADABLE_EVERY_S: Final = 10.0
"""The time between two log lines about a shard's unreadable records; every one is counted."""
KEY_BYTES_LOGGED: Final = 64
"""Bytes of a limit key in a log line: enough to find it, little enough for a log."""


class LinkTerms(NamedTuple):
    """The part of its making that all links of a node have in common."""

    clock: Clock
    chances: Chances
    logger: FilteringBoundLogger
    deadline_s: float
    """Seconds that a request waits for a shard."""
    breaker: BreakerSettings


class ShardLink:
    """A node's link to one shard. Implements the session's `SessionEvents`."""

    def __init__(
        self, index: int, owner: SessionOwner, origin: Origin, terms: LinkTerms, *, in_use: bool = True
    ) -> None:
        self.index = index
        self.in_use = in_use
        """False while no list names the shard: the node is not in touch with it."""
        clock = terms.clock
        self.session = ShardSession(index, owner, self, clock, terms.chances)
        self.stats = self.session.stats
        self.breaker = Breaker(
            terms.breaker, monotonic=clock.monotonic, random=terms.chances.usable, on_change=self._breaker_changed
        )
        self.last_error = ""
        self._owner = owner
        self._origin = origin
        self._monotonic = clock.monotonic
        self._logger = terms.logger
        self._deadline_s = terms.deadline_s
        self._stalled_s = max(STALLED_S, min(2 * terms.deadline_s, MOST_STALLED_S))
        self._wake = asyncio.Event()
        self._waking = False
        """True while the loop is about to be woken."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = math.inf
        """The time at which the timer rings; never, while there is none."""
        self._loop: asyncio.AbstractEventLoop
        self._lateness = Lateness(terms.breaker.missed_share)
        self._sent_s = math.inf
        """The time at which the call under way was sent; never, while there is none."""
        self._missed = False
        """True if a request has missed its deadline while that call was under way."""
        self._say_unreadable_s = -math.inf
        self._said_older = False
        """True once the log says that there are nodes of an older version, until it says that there are none."""
        self._open_since_s: float | None = None
        """The time since which the breaker has not been closed; None while it is."""
        self._probes = 0

    @property
    def behind_s(self) -> float:
        """Seconds for which the shard has not acknowledged what it is told; 0 while it does."""
        return self.session.behind_s(self._monotonic())

    # Calls

    async def run(self) -> None:
        """Exchange, until cancelled."""
        self._loop = asyncio.get_running_loop()
        while True:
            try:
                await self._work()
                if self.breaker.closed:
                    await self._pace(await self.exchange())
                else:
                    await self._probe()
            except Exception as error:
                # A fault of our own must not end the exchange for good.
                self._logger.error("exchange_failed", shard=self.index, exc_info=error)
                if not self.breaker.closed:
                    # Nor a probe: one that has no result would be the last, and the shard never asked again.
                    self.breaker.record(False, f"{type(error).__name__}: {error}")
                await asyncio.sleep(FAULT_PAUSE_S)

    async def exchange(self, *, decisive: bool = True) -> int:
        """Make one call with what is there; return how many reports it carried.

        One that is not decisive may be late without the shard being blamed for it.
        """
        call = self.session.next_call(self._monotonic(), empty=True)
        assert call is not None  # noqa: S101 - an empty one will do
        self._sent_s, self._missed = self._monotonic(), False
        self.stats.calls += 1
        try:
            result = await self._origin.run(self.index, call, CALL_TIMEOUT_S)
        except OriginError as error:
            self._failed(str(error))
        except Exception as error:
            # Nobody foresaw it: a reply of another kind, say. No reason never to ask again.
            self._logger.error("exchange_failed", shard=self.index, exc_info=error)
            self._failed(f"{type(error).__name__}: {error}")
        except BaseException:
            self._sent_s = math.inf
            hand_on(self.session.failed(self._monotonic()))
            raise
        else:
            self._succeeded(result, decisive=decisive)
        return self.session.reports_sent

    async def leave(self, timeout_s: float) -> None:
        """Report everything, and give all allowances back."""
        session = self.session
        session.leaving = True
        deadline_s = self._monotonic() + timeout_s
        session.tell_all()
        while session.busy() and session.available and self._monotonic() < deadline_s:
            await self.exchange()

    async def _probe(self) -> None:
        """Make calls in a row after the cooldown, until one is answered in time or fails.

        The first of them may have to connect, and on a busy machine any may be late by accident:
        judged by one alone, a shard that is well would be left for another cooldown, the longest.
        """
        await asyncio.sleep(self.breaker.wait_s())
        if not self.breaker.begin_probe():
            return
        for left in reversed(range(PROBE_CALLS)):
            await self.exchange(decisive=not left)
            if self.breaker.state is not BreakerState.HALF_OPEN:
                return

    def _succeeded(self, result: Any, *, decisive: bool) -> None:
        now_s = self._monotonic()
        took_s, self._sent_s = now_s - self._sent_s, math.inf
        self.stats.answered(took_s)
        self._judge(took_s, decisive=decisive)
        hand_on(self.session.received(result, now_s))

    def _judge(self, took_s: float, *, decisive: bool) -> None:
        """Tell the breaker of an answered call: heartbeats don't count, they may pass where calls do not.

        A late answer is an answer, unless the call seemed stalled and requests missed their deadlines
        meanwhile. And a probe stands for the requests that would wait if it succeeded, so it must be in time.
        """
        if self.breaker.closed:
            in_time = took_s <= self._stalled_s or not self._missed
        else:
            in_time = took_s <= self._deadline_s
            if not in_time and not decisive:
                return
        too_long = f"a call took {took_s * 1000:.1f} ms"
        self.last_error = "" if in_time else too_long
        self.breaker.record(in_time, too_long)
        if self.breaker.closed and self._missed and took_s > self._deadline_s:
            self._late()

    def _late(self) -> None:
        """Count whom the answer is too late for: one says little, but late for most is as bad for them as away."""
        too_many = self._lateness.missed(self.session.late_questions(), self.stats.wants, self._monotonic())
        if too_many:
            self.last_error = too_many
            self.breaker.trip(too_many)

    def _failed(self, error: str) -> None:
        self._sent_s = math.inf
        self.stats.failures += 1
        self.last_error = error
        decided = self.session.failed(self._monotonic())
        self.breaker.record(False, error)
        hand_on(decided)

    # Waiting for work

    def work_waits(self) -> None:
        """Wake the driver; while a call is under way that is not needed: what waits is looked at when it is over."""
        if not self._waking and self._sent_s == math.inf:
            self._waking = True
            self._on_loop(self._wake_up)

    def flush_due(self, due_s: float) -> None:
        """Set the timer, if it would ring too late."""
        if due_s < self._timer_at_s:
            self._timer_at_s = due_s
            self._on_loop(self._set_timer)

    async def _work(self) -> None:
        """Return when there is something to say; at once while the shard is being tried again."""
        while self.session.available and (due_s := self.session.due_s()) > self._monotonic():
            if due_s < math.inf:
                self.flush_due(due_s)
            self._wake.clear()
            await self._wake.wait()

    async def _pace(self, reports: int) -> None:
        """Leave the shard some time after a full call that nobody waited for."""
        if reports < MAX_REPORTS:
            return
        resume_s = self._monotonic() + reports / REPLAY_PER_S
        while not self.session.queued_questions and (left_s := resume_s - self._monotonic()) > 0:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._wake.wait()

    def _on_loop(self, callback: Callable[[], None]) -> None:
        """Call it at once, or, on the thread that receives calls and holds the loop's lock, soon on the loop."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._loop.call_soon_threadsafe(callback)
        else:
            callback()

    def _wake_up(self) -> None:
        self._waking = False
        self._wake.set()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0.0, self._timer_at_s - self._monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._timer_at_s = math.inf
        self._wake.set()

    # The breaker

    def missed_deadline(self) -> None:
        """Note that a request's deadline passed before its question was answered."""
        self._missed = True
        if self._monotonic() - self._sent_s > self._stalled_s:
            self.breaker.record(False, "a request's deadline passed, and the shard seems stalled")

    def heard_older(self, older: int) -> None:
        """Keep allowances within `P` while there are nodes of a version that would not leave room for more."""
        self.session.keep_within(older > 0)
        if self._said_older != (older > 0):
            self._said_older = older > 0
            self._logger.info("allowances_within_precision", shard=self.index, older_nodes=older)

    def _breaker_changed(self, state: BreakerState, reason: str) -> None:
        self.session.available = state is BreakerState.CLOSED
        self._say_breaker(state, reason)
        if state is BreakerState.OPEN:
            # Nobody waits for a shard that does not answer.
            hand_on(self.session.drop_questions(self._monotonic()))
            self._wake.set()  # the cooldown is waited for, whether or not there is work

    def _say_breaker(self, state: BreakerState, reason: str) -> None:
        """Log it once when it opens and once when it is closed again, however many probes failed in between."""
        now_s = self._monotonic()
        if state is BreakerState.HALF_OPEN:
            self._probes += 1
        elif state is BreakerState.OPEN and self._open_since_s is None:
            self._open_since_s, self._probes = now_s, 0
            self._logger.warning("breaker_changed", shard=self.index, state=state.value, reason=reason)
        elif state is BreakerState.CLOSED and self._open_since_s is not None:
            open_s, self._open_since_s = now_s - self._open_since_s, None
            self._logger.info(
                "breaker_changed",
                shard=self.index,
                state=state.value,
                reason=reason,
                open_s=round(open_s, 3),
                probes=self._probes,
            )

    # Events of the session

    def clock_set(self, by_ms: int) -> None:
        """Log that the shard's clock was set."""
        self._logger.warning("shard_clock_set", shard=self.index, by_ms=by_ms)

    def memory_lost(self, reason: str, *, again: bool) -> None:
        """Log that the shard lost its memory, once per refill, and tell the node."""
        if not again:
            self._logger.warning("shard_lost_memory", shard=self.index, reason=reason)
        self._owner.lost_memory(self.index)

    def record_unreadable(self, key: bytes, now_s: float) -> None:
        """Log that a record can't be read, now and then."""
        if now_s >= self._say_unreadable_s:
            self._say_unreadable_s = now_s + UNREADABLE_EVERY_S
            so_far = self.stats.unreadable
            self._logger.warning("record_unreadable", shard=self.index, key=key[:KEY_BYTES_LOGGED], so_far=so_far)


def hand_on(decided: list[Decided]) -> None:
    """Tell every caller its decision."""
    for on_decided, decision in decided:
        on_decided(decision)
