"""One shard's exchange: what waits for it, in one call at a time.

Calls carry what requests wait for first, then what is due to be flushed, then what a
shard that lost its memory must be told again, in chunks. Nothing is ever dropped: a cell
stays due until its total is acknowledged, so what waits here is bounded by the live cells
and by the requests under way. There is no timer in the way of a request: what comes
while a call is under way goes with the next one.
"""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from structlog.typing import FilteringBoundLogger

from headgate.clock import Clock
from headgate.origin.interface import Origin, OriginError
from headgate.origin.protocol import Call, Reply, Report, Want
from headgate.region.breaker import Breaker, BreakerSettings, BreakerState
from headgate.region.counters import SharedCounter
from headgate.region.engine import Question
from headgate.region.shard_clock import ShardClock

FLUSH_SOON_S: Final = 0.025
"""Near a limit: how long others may not know of an admission. Shorter costs the shard calls."""
FLUSH_LATER_S: Final = 0.250
"""Far from it: a third of the calls. Also the most that a node killed outright takes with it."""
USABLE_S: Final = 5.0
"""For how long, from sending, an answer keeps a key fresh and its grant usable; half a generation of grants."""
MAX_REPORTS: Final = 64
"""Per call: at 10 to 15 µs each under a millisecond of the shard's time, so nobody waits long behind one."""
MAX_WANTS: Final = 256
"""Per call, as they are cheaper than reports."""
CALL_TIMEOUT_S: Final = 0.5
"""After which a call is given up. Requests have long gone by their own deadline; what this bounds is
how long a stalled connection keeps the shard's totals from being reported another way."""
PROBE_CALLS: Final = 3
"""Of one probe: one to connect, one to be timed, and one for an accident. A shard that is slow is late in all."""
USABLE_JITTER: Final = 0.1
"""Downwards, so that what was read together does not grow stale together."""
FAULT_PAUSE_S: Final = 0.1
"""After a fault of our own: long enough that it can't fill the log, short enough that nobody misses a flush."""
REPLAY_PER_S: Final = 20_000
"""Reports that nobody waits for: what piled up during an outage comes back spread out, at about a
quarter of a shard's time. Requests go in between."""
REFILL_STEPS: Final = 1_000
"""Cells looked at per call for a refill; most belong to other shards."""


@dataclass(slots=True)
class ReplayStats:
    """Plain counters, read by whoever exports them."""

    calls: int = 0
    failures: int = 0
    reports: int = 0
    wants: int = 0
    refills: int = 0


@dataclass(slots=True)
class Batch:
    """A call under way, and whom its answers are for."""

    call: Call
    cells: list[SharedCounter]
    questions: list[Question]
    positions: dict[SharedCounter, int]
    """Of each cell's report. By cell: a key that went and came back may be in one call twice."""


class ShardLink:
    """Implements the engine's `Shard`."""

    def __init__(
        self,
        index: int,
        origin: Origin,
        *,
        clock: Clock,
        random: random.Random,
        logger: FilteringBoundLogger,
        numbers: Iterator[int],
        live_cells: Callable[[], Iterable[SharedCounter]],
        deadline_s: float,
        breaker: BreakerSettings,
    ) -> None:
        self.index = index
        self.breaker = Breaker(breaker, monotonic=clock.monotonic, random=random, on_change=self._breaker_changed)
        self.stats = ReplayStats()
        self.last_error = ""
        self._origin = origin
        self._clock = clock
        self._time = ShardClock(clock)
        self.now_ms = self._time.now_ms
        self.certain = self._time.certain
        self._random = random
        self._logger = logger
        self._numbers = numbers
        self._live_cells = live_cells
        self._epoch = b""
        self._leaving = False
        self._questions: deque[Question] = deque()
        self._soon: deque[tuple[float, SharedCounter]] = deque()
        self._later: deque[tuple[float, SharedCounter]] = deque()
        self._refill: deque[SharedCounter] = deque()
        self._wake = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = 0.0
        self._deadline_s = deadline_s

    # What the engine calls

    @property
    def available(self) -> bool:
        return self.breaker.closed

    @property
    def own_time(self) -> ShardClock | None:
        return None if self._time.known else self._time

    def late(self) -> None:
        """A request's deadline passed while it waited for this shard."""
        self.breaker.record(False, "a request's deadline passed")

    def ask(self, question: Question) -> None:
        self._questions.append(question)
        self._wake.set()

    def flush(self, cell: SharedCounter, *, soon: bool) -> None:
        link = cell.link
        if link.flush_at_s and not soon:
            return
        due_s = self._clock.monotonic() + (FLUSH_SOON_S if soon else FLUSH_LATER_S)
        if link.flush_at_s and link.flush_at_s <= due_s:
            return
        link.flush_at_s = due_s
        # Each queue has one delay, and so is in order by itself.
        (self._soon if soon else self._later).append((due_s, cell))
        self._arm(due_s)

    # What the node calls

    async def run(self) -> None:
        """Exchange, until cancelled."""
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
                await asyncio.sleep(FAULT_PAUSE_S)

    async def _probe(self) -> None:
        """After the cooldown: calls in a row, until one is answered in time or fails.

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

    async def exchange(self, *, decisive: bool = True) -> int:
        """One call with what is there, and what follows from its answer; how many reports it carried.

        One that is not decisive may be late without the shard being blamed for it.
        """
        batch = self._batch()
        sent_s = self._clock.monotonic()
        self.stats.calls += 1
        try:
            reply = await self._origin.call(self.index, batch.call, CALL_TIMEOUT_S)
        except OriginError as error:
            self._failed(batch, error)
        except Exception as error:
            # Nobody foresaw it: a reply of another kind, say. No reason never to ask again.
            self._logger.error("exchange_failed", shard=self.index, exc_info=error)
            self._failed(batch, OriginError(f"{type(error).__name__}: {error}"))
        except BaseException:
            self._give_back(batch)
            raise
        else:
            self._succeeded(self._clock.monotonic() - sent_s, decisive=decisive)
            self.heard(reply.time_ms, reply.epoch, sent_s)
            self._apply(batch, reply, sent_s + USABLE_S * (1 - self._random.random() * USABLE_JITTER))
        return len(batch.cells)

    @property
    def has_answered(self) -> bool:
        """Whether it ever did: a heartbeat or a call."""
        return self._time.known

    def heard(self, time_ms: int, epoch: bytes, sent_s: float) -> None:
        """Every answer tells the time, and whether the shard is the one that it was."""
        self._time.learn(time_ms, sent_s, self._clock.monotonic())
        if self._epoch and epoch != self._epoch:
            self.lost_memory("it is another run of the server")
        self._epoch = epoch

    def lost_memory(self, reason: str) -> None:
        """Tell it again what every live cell of this node contained."""
        if self._refill:
            return  # under way already; what it is told is the newest anyway
        self.stats.refills += 1
        self._logger.warning("shard_lost_memory", shard=self.index, reason=reason)
        self._refill.extend(self._live_cells())
        self._wake.set()

    def busy(self) -> bool:
        return bool(self._questions or self._soon or self._later or self._refill)

    async def leave(self, timeout_s: float) -> None:
        """Report everything, and give all grants back."""
        self._leaving = True
        deadline_s = self._clock.monotonic() + timeout_s
        self._refill.extend(self._live_cells())
        while self.busy() and self.available and self._clock.monotonic() < deadline_s:
            await self.exchange()

    # Waiting for work

    async def _work(self) -> None:
        """Return when there is something to say; at once while the shard is being tried again."""
        while self.available and not (self._questions or self._refill or self._is_due()):
            self._wake.clear()
            await self._wake.wait()

    async def _pace(self, reports: int) -> None:
        """After a full call that nobody waited for: leave the shard some time."""
        if reports < MAX_REPORTS:
            return
        resume_s = self._clock.monotonic() + reports / REPLAY_PER_S
        while not self._questions and (left_s := resume_s - self._clock.monotonic()) > 0:
            self._wake.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._wake.wait()

    def _is_due(self) -> bool:
        now_s = self._clock.monotonic()
        for queue in (self._soon, self._later):
            while queue and queue[0][1].link.flush_at_s != queue[0][0]:
                queue.popleft()  # flushed meanwhile, or to be flushed earlier
            if queue:
                if queue[0][0] <= now_s:
                    return True
                self._arm(queue[0][0])
        return False

    def _arm(self, due_s: float) -> None:
        if self._timer is not None and self._timer_at_s <= due_s:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_s = due_s
        delay_s = max(0.0, due_s - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._wake.set()

    # Building a call

    def _batch(self) -> Batch:
        wanted: dict[SharedCounter, int] = {}
        questions = self._take_questions(wanted)
        for cell in self._flushes(MAX_REPORTS - len(wanted)):
            wanted.setdefault(cell, 0)
        for cell in self._refills(MAX_REPORTS - len(wanted)):
            wanted.setdefault(cell, 0)
        cells = list(wanted)
        reports = tuple([self._report(cell, wanted[cell]) for cell in cells])
        positions = {cell: position for position, cell in enumerate(cells)}
        requests = tuple(
            [tuple([Want(positions[cell], cost) for cell, cost in question.parts]) for question in questions]
        )
        self.stats.reports += len(reports)
        self.stats.wants += len(requests)
        return Batch(Call(reports, requests), cells, questions, positions)

    def _take_questions(self, wanted: dict[SharedCounter, int]) -> list[Question]:
        taken: list[Question] = []
        while self._questions and len(taken) < MAX_WANTS:
            question = self._questions[0]
            if question.open:
                new = sum(cell not in wanted for cell, _ in question.parts)
                if wanted and len(wanted) + new > MAX_REPORTS:
                    break
                for cell, cost in question.parts:
                    wanted[cell] = wanted.get(cell, 0) + cost
                taken.append(question)
            self._questions.popleft()
        return taken

    def _flushes(self, room: int) -> Iterator[SharedCounter]:
        now_s = self._clock.monotonic()
        for queue in (self._soon, self._later):
            while queue and room > 0 and (queue[0][0] <= now_s or self._leaving):
                due_s, cell = queue.popleft()
                if cell.link.flush_at_s == due_s:
                    room -= 1
                    yield cell

    def _refills(self, room: int) -> Iterator[SharedCounter]:
        for _ in range(REFILL_STEPS):
            if not self._refill or room <= 0:
                return
            cell = self._refill.popleft()
            if cell.link.shard == self.index and cell.link.answered:
                cell.link.refill = True
                room -= 1
                yield cell

    def _report(self, cell: SharedCounter, wanted: int) -> Report:
        now_s = self._clock.monotonic()
        cell.advance(self.now_ms())
        report = cell.report(next(self._numbers), wanted, leaving=self._leaving, now_s=now_s)
        link = cell.link
        # From here on an admission is one that this call does not carry.
        link.flush_at_s = 0.0
        link.in_call += 1
        return report

    # Taking in what came of it

    def _succeeded(self, took_s: float, *, decisive: bool) -> None:
        """Only an answered call counts: heartbeats may pass where calls do not.

        A late answer is an answer, and requests count their own deadlines. But a probe stands
        for the requests that would wait if it succeeded, so it must be in time.
        """
        in_time = self.breaker.closed or took_s <= self._deadline_s
        if not in_time and not decisive:
            return
        self.breaker.record(in_time, f"the probe took {took_s * 1000:.1f} ms")
        if in_time:
            self.last_error = ""

    def _breaker_changed(self, state: BreakerState, reason: str) -> None:
        log = self._logger.info if state is BreakerState.CLOSED else self._logger.warning
        log("breaker", shard=self.index, state=state.value, reason=reason)
        if state is BreakerState.OPEN:
            # Nobody waits for a shard that does not answer.
            while self._questions:
                self._questions.popleft().fail()
            self._wake.set()  # the cooldown is waited for, whether or not there is work

    def _apply(self, batch: Batch, reply: Reply, usable_until_s: float) -> None:
        remembers = True
        for cell, answer in zip(batch.cells, reply.answers, strict=True):
            link = cell.link
            remembers &= cell.learn(answer) or link.refill
            link.renew(answer.grant, usable_until_s)
            link.refill = cell.lacks(answer)
            link.credit_offered = 0
            link.in_call -= 1
        for question, charged in zip(batch.questions, reply.charged, strict=True):
            question.answer(charged, [reply.answers[batch.positions[cell]] for cell, _ in question.parts])
        for cell in batch.cells:
            if (cell.unacked or cell.link.refill) and not cell.link.flush_at_s:
                self.flush(cell, soon=True)  # the shard is not in that window yet, or lacks something in it
        if not remembers:
            self.lost_memory("a total is lower than it was")

    def _failed(self, batch: Batch, error: OriginError) -> None:
        self.stats.failures += 1
        self.last_error = str(error)
        self._give_back(batch)
        self.breaker.record(False, str(error))

    def _give_back(self, batch: Batch) -> None:
        for cell in batch.cells:
            link = cell.link
            link.credit_offered = 0
            link.in_call -= 1
            if link.refill:
                self._refill.append(cell)
            if cell.unacked:
                self.flush(cell, soon=True)
        for question in batch.questions:
            question.fail()
