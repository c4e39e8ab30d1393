"""A node's link to one shard: what waits for the shard, in one call at a time.

Calls carry what requests wait for first, then what is due to be flushed, then what a
shard that lost its memory must be told again, in chunks. Nothing is ever dropped: a counter
stays due until its total is acknowledged, so what waits here is bounded by the live counters
and by the requests under way. There is no timer in the way of a request: what comes
while a call is under way goes with the next one. (docs/convergence.md, sections 3, 4 and 6.)
"""

import asyncio
import contextlib
import math
import random
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from structlog.typing import FilteringBoundLogger

from headgate.clock import Clock
from headgate.limiter.limit import Limit
from headgate.origin.interface import Origin, OriginError
from headgate.origin.operations.call import Call, Reply
from headgate.origin.protocol import NO_GRANT, UNBOUND, UNREADABLE, Answer, Prefetch
from headgate.origin.quota.call import QuotaCall
from headgate.origin.quota.protocol import QuotaReport, QuotaShare
from headgate.region.alone import Alone
from headgate.region.breaker import Breaker, BreakerSettings, BreakerState
from headgate.region.counters import SharedCounter
from headgate.region.flush_queues import FlushQueues
from headgate.region.refunds import REFILL_S
from headgate.region.shard_clock import ShardClock
from headgate.region.slices import Slices
from headgate.region.turns import begin_turn, requests_ahead, room_at
from headgate.region.waiting import Handed, Question

USABLE_S: Final = 5.0
"""For how long, from sending, an answer keeps a key fresh and its grant usable; half a generation of grants."""
MAX_REPORTS: Final = 64
"""Per call: at 10 to 15 µs each under a millisecond of the shard's time, so nobody waits long behind one."""
MAX_WANTS: Final = 256
"""Per call, as they are cheaper than reports."""
CALL_TIMEOUT_S: Final = 0.5
"""After which a call is given up. Requests have long gone by their own deadline; what this bounds is
how long a stalled connection keeps the shard's totals from being reported another way."""
STALLED_S: Final = 0.05
"""A call that takes longer seems stalled, if requests have missed their deadlines for it: ten times the usual deadline.
Shorter blames a shard for a busy machine; longer lets more requests wait in vain before the breaker opens."""
MOST_STALLED_S: Final = 0.2
"""However long requests may wait: a call that takes longer is no accident of a busy machine."""
PROBE_CALLS: Final = 3
"""Of one probe: one to connect, one to be timed, and one for an accident. A shard that is slow is late in all."""
USABLE_JITTER: Final = 0.1
"""Downwards, so that what was read together does not grow stale together."""
FAULT_PAUSE_S: Final = 0.1
"""After a fault of our own: long enough that it can't fill the log, short enough that nobody misses a flush."""
REPLAY_PER_S: Final = 20_000
"""Reports that nobody waits for: what piled up during an outage comes back spread out, at about a
quarter of a shard's time. Requests go in between."""
UNREADABLE_EVERY_S: Final = 10.0
"""How often a shard's unreadable records are logged; every one is counted."""
KEY_BYTES_LOGGED: Final = 64
"""Of a limit key: enough to find it, little enough for a log."""
CALL_BOUNDS_S: Final = (0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5)
"""By which answered calls are counted: fine below the usual deadline, up to when a call is given up."""
LOWER_TOTAL: Final = "a total is lower than it was"
"""Why a shard is taken to have lost its memory, where an answer says so: until it is refilled many may."""
REFILL_STEPS: Final = 1_000
"""Counters looked at per call for a refill; most belong to other shards."""


@dataclass(slots=True)
class LinkStats:
    """Plain counters, read by whoever exports them."""

    calls: int = 0
    failures: int = 0
    reports: int = 0
    wants: int = 0
    refills: int = 0
    clock_steps: int = 0
    """Times that the shard's clock was found to have been set."""
    unreadable: int = 0
    """Reports of keys whose records the shard could not read."""
    over_limit: int = 0
    """Answers that showed more admitted in a window than the limit and its precision allow."""
    durations: list[int] = field(default_factory=lambda: [0] * (len(CALL_BOUNDS_S) + 1))
    """Answered calls by how long they took: up to each bound, and longer."""
    durations_sum_s: float = 0.0


@dataclass(slots=True)
class CallBatch:
    """A call under way, and whom its answers are for."""

    call: Call
    quotas: tuple[QuotaReport, ...]
    """Keys of the call whose limit is a quota."""
    counters: list[SharedCounter]
    """Those that report, in the order of the reports."""
    questions: list[Question | Alone]
    positions: dict[SharedCounter, int]
    """Of each counter's report. By counter: a key that went and came back may be in one call twice."""
    hopes: list["Hope"]
    """Of the counters that requests wait for and that are, or were, at their limits."""
    limits: list[Limit]
    """Under which the counters were reported, in the order of the reports."""
    components: list[bytes]
    """As which they were."""


class Hope(NamedTuple):
    """What a call asked ahead for, on one key."""

    counter: SharedCounter
    limit: Limit
    requests: int
    cost: int


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
        live_counters: Callable[[], Iterable[SharedCounter]],
        new_component: Callable[[], bytes],
        slices: Slices,
        on_reset: Callable[[SharedCounter, int], None],
        on_lost_memory: Callable[[int], None],
        deadline_s: float,
        breaker: BreakerSettings,
        turn_random: random.Random | None = None,
    ) -> None:
        self.index = index
        self.breaker = Breaker(breaker, monotonic=clock.monotonic, random=random, on_change=self._breaker_changed)
        self.stats = LinkStats()
        self.last_error = ""
        self._origin = origin
        self._clock = clock
        self.available = True
        """False while its breaker is not closed."""
        self.time = ShardClock(clock)
        self.own_time: ShardClock | None = self.time
        """The shard's clock while it has no answer to go by; None afterwards."""
        self.clock_steps = 0
        """How often the shard's clock was found to have been set."""
        self.now_ms = self.time.now_ms
        self.certain = self.time.certain
        self.new_component = new_component
        self._slices = slices
        self._clock_set_s = -math.inf
        """When it was last noticed that the shard's clock had been set: answers to earlier calls mean nothing."""
        self._random = random
        self._turn_random = turn_random or random
        self._logger = logger
        self._numbers = numbers
        self._live_counters = live_counters
        self._on_reset = on_reset
        self._on_lost_memory = on_lost_memory
        self._epoch = b""
        self._leaving = False
        self._questions: deque[Question | Alone] = deque()
        self._flushes = FlushQueues()
        self._refill: deque[SharedCounter] = deque()
        self._wake = asyncio.Event()
        self._stirred = False
        """Whether the loop has been told already that somebody asks."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_s = math.inf
        """When the timer rings; never, while there is none."""
        self._loop: asyncio.AbstractEventLoop
        self._deadline_s = deadline_s
        self._stalled_s = max(STALLED_S, min(2 * deadline_s, MOST_STALLED_S))
        self._sent_s = math.inf
        """When the call under way was sent; never, while there is none."""
        self._missed = False
        """Whether a request has missed its deadline while that call was under way."""
        self._say_unreadable_s = -math.inf
        self._behind_since_s = math.inf
        """When the first of the calls was sent that failed since the last answer; never, if none did."""
        self._refilled_s = -math.inf
        """When all nodes have told it again what it was last found to have lost."""
        self._open_since_s: float | None = None
        """Since when the breaker has not been closed; None while it is."""
        self._probes = 0

    # What the engine calls

    def late(self) -> None:
        """A request's deadline passed before its question was answered."""
        # One late answer says little: a shard that answers late but steadily is still asked, up to each request's
        # deadline. What counts is a call that has been under way for so long that it seems stalled.
        self._missed = True
        if self._clock.monotonic() - self._sent_s > self._stalled_s:
            self.breaker.record(False, "a request's deadline passed, and the shard seems stalled")

    def ask(self, question: Question | Alone) -> None:
        """Put the question into the next call."""
        self._questions.append(question)
        # While a call is under way there is nothing to stir: what waits is looked at when it is over.
        if not self._stirred and self._sent_s == math.inf:
            self._stirred = True
            self._on_loop(self._stir)

    def _stir(self) -> None:
        self._stirred = False
        self._wake.set()

    def remembers(self, now_s: float) -> bool:
        """Whether it knows what there is to give back. A shard that did not answer may come back with nothing."""
        return now_s >= self._refilled_s and self._behind_since_s == math.inf

    def flush(self, counter: SharedCounter, *, soon: bool, calm: bool = False, back: bool = False) -> None:
        """Have the counter reported within 25 ms, if `soon`, within 2 s if `calm`, else within 250 ms; in half a second
        what is demanded `back`."""
        due_s = self._flushes.add(counter, soon=soon, calm=calm, back=back, now_s=self._clock.monotonic())
        if due_s is not None:
            self._arm(due_s)

    # What the node calls

    @property
    def queued_flushes(self) -> int:
        """Counters that wait to be reported, and entries that were overtaken."""
        return len(self._flushes)

    @property
    def queued_questions(self) -> int:
        """Questions that wait for the next call."""
        return len(self._questions)

    @property
    def behind_s(self) -> float:
        """For how long the shard has not acknowledged what it is told; 0 while it does."""
        return max(0.0, self._clock.monotonic() - self._behind_since_s)

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
        sent_s = self._sent_s = self._clock.monotonic()
        self._missed = False
        self.stats.calls += 1
        reply: Reply | None = None
        shares: tuple[QuotaShare, ...] = ()
        try:
            if batch.quotas:
                quota_call = QuotaCall(batch.call, batch.quotas)
                reply, shares = await self._origin.run(self.index, quota_call, CALL_TIMEOUT_S)
            else:
                reply = await self._origin.run(self.index, batch.call, CALL_TIMEOUT_S)
        except OriginError as error:
            self._failed(batch, error)
        except Exception as error:
            # Nobody foresaw it: a reply of another kind, say. No reason never to ask again.
            self._logger.error("exchange_failed", shard=self.index, exc_info=error)
            self._failed(batch, OriginError(f"{type(error).__name__}: {error}"))
        except BaseException:
            self._give_back(batch)
            raise
        finally:
            self._sent_s = math.inf
        if reply is None:
            self._behind_since_s = min(self._behind_since_s, sent_s)
        else:
            took_s = self._clock.monotonic() - sent_s
            self._behind_since_s = math.inf
            self.stats.durations[bisect_left(CALL_BOUNDS_S, took_s)] += 1
            self.stats.durations_sum_s += took_s
            self._succeeded(took_s, decisive=decisive)
            if self.heard(reply.time_ms, reply.epoch, sent_s):
                self._slices.learn(batch.quotas, batch.counters, shares, reply.time_ms, sent_s)
                self._apply(batch, reply, sent_s)
            else:
                self._ask_again(batch)
        return len(batch.counters)

    @property
    def has_answered(self) -> bool:
        """Whether it ever answered: a heartbeat or a call."""
        return self.time.known

    def heard(self, time_ms: int, epoch: bytes, sent_s: float) -> bool:
        """Every answer tells the time, and whether the shard is the one that it was.

        False: the answer is to a call from before it was noticed that the shard's clock had been set.
        """
        if sent_s < self._clock_set_s:
            return False
        now_s = self._clock.monotonic()
        set_ms = self.time.learn(time_ms, sent_s, now_s)
        self.own_time = None if self.time.known else self.time
        self.clock_steps = self.time.steps
        if set_ms:
            self._clock_set_s = now_s
            self.stats.clock_steps += 1
            self._logger.warning("shard_clock_set", shard=self.index, by_ms=set_ms)
            # Records that lay ahead have begun anew, and what they had counted before went with them.
            self._tell_again()
        if self._epoch and epoch != self._epoch:
            self.lost_memory("it is another run of the server")
        self._epoch = epoch
        return not set_ms

    def lost_memory(self, reason: str) -> None:
        """Tell it again what every live counter of this node contained."""
        now_s = self._clock.monotonic()
        if now_s >= self._refilled_s + REFILL_S:
            # Not again at once: a shard that loses something all the time would never be asked to give back.
            self._refilled_s = now_s + REFILL_S
        if self._refill:
            # Under way already; what it is told is the newest anyway. But what is told once per loss, resets, may
            # have been told to the memory that is gone.
            if reason != LOWER_TOTAL:
                self._on_lost_memory(self.index)
            return
        self.stats.refills += 1
        self._logger.warning("shard_lost_memory", shard=self.index, reason=reason)
        self._on_lost_memory(self.index)
        self._tell_again()

    def _tell_again(self) -> None:
        self._refill.extend(self._live_counters())
        self._wake.set()

    def busy(self) -> bool:
        """Whether there is anything left to tell the shard."""
        return bool(self._questions or self._flushes or self._refill)

    async def leave(self, timeout_s: float) -> None:
        """Report everything, and give all grants back."""
        self._leaving = True
        deadline_s = self._clock.monotonic() + timeout_s
        self._refill.extend(self._live_counters())
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
        for due_s in self._flushes.next_due_s():
            if due_s <= now_s:
                return True
            self._arm(due_s)
        return False

    def _arm(self, due_s: float) -> None:
        if self._timer_at_s <= due_s:
            return
        self._timer_at_s = due_s
        self._on_loop(self._set_timer)

    def _on_loop(self, callback: Callable[[], None]) -> None:
        """At once, or, on the thread that receives calls, which has the loop's turn, as soon as the loop runs."""
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self._loop.call_soon_threadsafe(callback)
        else:
            callback()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay_s = max(0.0, self._timer_at_s - self._clock.monotonic())
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._timer_at_s = math.inf
        self._wake.set()

    # Building a call

    def _batch(self) -> CallBatch:
        wanted: dict[SharedCounter, int] = {}
        questions = self._take_questions(wanted)
        now_s = self._clock.monotonic()
        hopes = self._hopes(wanted, now_s)
        for counter in self._flushes.take(MAX_REPORTS - len(wanted), now_s, everything=self._leaving):
            wanted.setdefault(counter, 0)
        for counter in self._refills(MAX_REPORTS - len(wanted)):
            wanted.setdefault(counter, 0)
        counters = list(wanted)
        now_ms, numbers, leaving = self.now_ms(), self._numbers, self._leaving
        reports = []
        for counter, asking in wanted.items():
            counter.advance(now_ms)
            reports.append(counter.sent(next(numbers), asking, leaving, now_s))
        positions = dict(zip(counters, range(len(counters)), strict=True))
        requests = tuple([question.wants(positions) for question in questions])
        ahead = tuple([Prefetch(positions[hope.counter], hope.requests, hope.cost) for hope in hopes if hope.requests])
        self.stats.reports += len(reports)
        self.stats.wants += len(requests)
        quotas = self._slices.report(counters, now_s)
        limits = [counter.limit for counter in counters]
        components = [counter.component for counter in counters]
        call = Call(tuple(reports), requests, ahead)
        return CallBatch(call, quotas, counters, questions, positions, hopes, limits, components)

    def _hopes(self, wanted: dict[SharedCounter, int], now_s: float) -> list[Hope]:
        """What to ask ahead for, of what is wanted; it is added to that."""
        hopes: list[Hope] = []
        for counter, asking in wanted.items():
            if counter.turns is None:
                continue
            requests, cost = requests_ahead(counter, asking, now_s)
            if self._leaving or not asking:
                requests = 0  # nobody would spend it; or somebody only looks
            wanted[counter] += requests * cost
            hopes.append(Hope(counter, counter.limit, requests, cost))
        return hopes

    def _take_questions(self, wanted: dict[SharedCounter, int]) -> list[Question | Alone]:
        questions, taken = self._questions, list[Question | Alone]()
        while questions and len(taken) < MAX_WANTS:
            question = questions[0]
            if not question.decided:
                if not question.join(wanted, MAX_REPORTS):
                    break
                taken.append(question)
            questions.popleft()
        return taken

    def _refills(self, room: int) -> Iterator[SharedCounter]:
        for _ in range(REFILL_STEPS):
            if not self._refill or room <= 0:
                return
            counter = self._refill.popleft()
            if counter.shard is self and counter.has_answer:
                counter.shard_forgot()
                room -= 1
                yield counter

    # Taking in what came of it

    def _succeeded(self, took_s: float, *, decisive: bool) -> None:
        """Only an answered call counts: heartbeats may pass where calls do not.

        A late answer is an answer, unless the call seemed stalled and requests missed their deadlines
        meanwhile. And a probe stands for the requests that would wait if it succeeded, so it must be in time.
        """
        if self.breaker.closed:
            in_time = took_s <= self._stalled_s or not self._missed
        else:
            in_time = took_s <= self._deadline_s
            if not in_time and not decisive:
                return
        self.breaker.record(in_time, f"a call took {took_s * 1000:.1f} ms")
        if in_time:
            self.last_error = ""

    def _breaker_changed(self, state: BreakerState, reason: str) -> None:
        self.available = state is BreakerState.CLOSED
        self._say_breaker(state, reason)
        if state is BreakerState.OPEN:
            # Nobody waits for a shard that does not answer.
            while self._questions:
                self._questions.popleft().fail()
            self._wake.set()  # the cooldown is waited for, whether or not there is work

    def _say_breaker(self, state: BreakerState, reason: str) -> None:
        """Once when it opens and once when it is closed again, however many probes failed in between."""
        now_s = self._clock.monotonic()
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

    def _apply(self, batch: CallBatch, reply: Reply, sent_s: float) -> None:
        usable_until_s = sent_s + USABLE_S * (1 - self._random.random() * USABLE_JITTER)
        remembers, was_reset, unreadable = True, False, False
        for counter, component, answer in zip(batch.counters, batch.components, reply.answers, strict=True):
            if component is not counter.component:
                counter.failed()  # the counter has begun anew since
            elif answer.grant == UNREADABLE:
                self._unreadable(counter)
                unreadable = True
            else:
                remembers &= counter.answered(answer, usable_until_s)
                if counter.refunds is not None:
                    counter.refunds.asked_s = sent_s
                if counter.is_over_limit:
                    self.stats.over_limit += 1
            if answer.reset:
                was_reset = True
        stale = self._stale(batch, reply) if was_reset else set()
        answers, now_s = reply.answers, self._clock.monotonic()
        now = now_s, self.time.at_ms(now_s)
        decided: list[Handed] = []
        for question, charged in zip(batch.questions, reply.charged, strict=True):
            if stale and not stale.isdisjoint(question.places):
                self._questions.append(question)  # nothing of it was looked at; the counter knows of the reset now
            elif unreadable:
                self._answer(question, charged, [answers[place] for place in question.places])
            else:
                question.told(charged, answers, now, decided)
        for on_decided, decision in decided:
            on_decided(decision)
        if batch.hopes or not all(reply.charged):
            self._begin_turns(batch, reply, sent_s, stale)
        if self._questions:
            self._look_again(batch)
        for counter in batch.counters:
            if not counter.flush_due_s and (counter.refill or counter.unreported):
                # The shard is not in that window yet, or lacks something in it; or it is too early to demand it back.
                self.flush(counter, soon=counter.pressing(now_s))
        if not remembers:
            self.lost_memory(LOWER_TOTAL)

    def _begin_turns(self, batch: CallBatch, reply: Reply, sent_s: float, stale: set[int]) -> None:
        """Keys of which a call brought less than it asked for are not asked for again until their turn."""
        refused: Counter[SharedCounter] = Counter()
        for question, charged in zip(batch.questions, reply.charged, strict=True):
            for leg in () if charged else question.legs:
                refused[leg.counter] = max(refused[leg.counter], leg.charge.cost)
        hoped = {hope.counter for hope in batch.hopes}
        without = [
            Hope(counter, batch.limits[batch.positions[counter]], 0, 0) for counter in refused if counter not in hoped
        ]
        for counter, limit, requests, cost in (*batch.hopes, *without):
            position = batch.positions[counter]
            anew = batch.components[position] is not counter.component
            if anew or position in stale or reply.answers[position].grant in (NO_GRANT, UNREADABLE):
                continue
            room = room_at(counter, limit, reply.time_ms)
            if room is None:
                continue
            if counter.credit < requests * cost or counter.missing(refused[counter]) > room:
                begin_turn(counter, limit, room, sent_s, self._turn_random.random())

    def _look_again(self, batch: CallBatch) -> None:
        """What came for a key while a call for it was under way may not have to be asked any more."""
        came, self._questions = self._questions, deque()
        positions = batch.positions
        for question in came:
            if not question.decided and (not question.meets(positions) or question.look_again()):
                self._questions.append(question)

    def _stale(self, batch: CallBatch, reply: Reply) -> set[int]:
        """Reports that came from before a reset of their keys, by position; notes what was heard of resets."""
        stale: set[int] = set()
        for position, (report, answer) in enumerate(zip(batch.call.reports, reply.answers, strict=True)):
            if answer.reset:
                self._on_reset(batch.counters[position], answer.reset)
                if UNBOUND < report.reset < answer.reset:
                    stale.add(position)
        return stale

    def _answer(self, question: Question | Alone, charged: bool, answers: list[Answer]) -> None:
        for answer in answers:
            if answer.grant == UNREADABLE:
                question.fail()
                return
        question.answer(charged, answers)

    def _unreadable(self, counter: SharedCounter) -> None:
        """One key's record concerns one key: its requests go by policy, and the next one tries again."""
        counter.unreadable()
        if counter.unreported:
            self.flush(counter, soon=False)
        self.stats.unreadable += 1
        now_s = self._clock.monotonic()
        if now_s >= self._say_unreadable_s:
            self._say_unreadable_s = now_s + UNREADABLE_EVERY_S
            self._logger.warning(
                "record_unreadable", shard=self.index, key=counter.key[:KEY_BYTES_LOGGED], so_far=self.stats.unreadable
            )

    def _ask_again(self, batch: CallBatch) -> None:
        """The answer means nothing, the shard's clock having been set: what the call carried goes with the next."""
        self._give_back_reports(batch)
        self._questions.extendleft(reversed(batch.questions))

    def _failed(self, batch: CallBatch, error: OriginError) -> None:
        self.stats.failures += 1
        self.last_error = str(error)
        self._give_back(batch)
        self.breaker.record(False, str(error))

    def _give_back(self, batch: CallBatch) -> None:
        """The call brought nothing: what it carried is due again, and nobody waits for it any longer."""
        self._give_back_reports(batch)
        for question in batch.questions:
            question.fail()

    def _give_back_reports(self, batch: CallBatch) -> None:
        now_s = self._clock.monotonic()
        self._slices.failed(batch.quotas, batch.counters)
        for counter in batch.counters:
            counter.failed()
            if counter.refill:
                self._refill.append(counter)
            if counter.unreported:
                self.flush(counter, soon=counter.pressing(now_s))
