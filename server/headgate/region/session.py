"""A node's session with one shard, without I/O: which call comes next, and what follows from its reply.

A call carries what requests wait for first, callers taking turns (question_order.py), then what is due to be flushed,
then what a shard that lost its memory must be told again, in chunks. Nothing is ever dropped: a counter stays due until
its total is acknowledged, so what waits here is bounded by the live counters and by the requests under way. One call is
under way at a time: what comes meanwhile goes with the next one.
(docs/convergence.md, sections 3, 4 and 6.)

The driver (shard_link.py) asks for `next_call`, sends it, and tells what came of it: `received` or `failed`. Both
return the decisions that follow, with whom they are for. Time is passed in.
"""

import math
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

from headgate.clock import Clock
from headgate.origin.operation import Operation
from headgate.origin.operations.call import Call, Reply
from headgate.origin.operations.heartbeat import Pulse
from headgate.origin.protocol import SEALED, UNREADABLE
from headgate.region.counters import SharedCounter
from headgate.region.flush_queues import FlushQueues
from headgate.region.question_order import QuestionOrder
from headgate.region.refunds import REFILL_S
from headgate.region.session_owner import Chances, SessionEvents, SessionOwner
from headgate.region.shard import Shard
from headgate.region.shard_clock import ShardClock
from headgate.region.stats import SessionStats
from headgate.region.under_way import CallUnderWay
from headgate.region.urgency import Urgency
from headgate.region.waiting import Decided, Question

USABLE_S: Final = 5.0
"""The time, from sending, for which an answer keeps a key fresh, and its allowance at most: half a generation."""
LOOK_USABLE_S: Final = 0.5
"""That time where costs come late: others charge them without asking, so what decides a look must be new. With the time
that a late cost takes to be told every node knows of it within a second. Shorter asks more often for each key."""
USABLE_JITTER: Final = 0.1
"""Downwards, so that what was read together does not grow stale together."""
MAX_REPORTS: Final = 64
"""Reports per call: at 10 to 15 µs each under a millisecond of the shard's time, so nobody waits long behind one."""
MAX_QUESTIONS: Final = 256
"""Questions per call, as they are cheaper than reports."""
REFILL_STEPS: Final = 1_000
"""Counters looked at per call for a refill; most belong to other shards."""
LOWER_TOTAL: Final = "a total is lower than it was"
"""The reason why a shard is taken to have lost its memory, where an answer says so: until it is refilled many may."""


class ShardSession(Shard[SharedCounter]):
    """One node's dealings with one shard."""

    def __init__(self, index: int, owner: SessionOwner, events: SessionEvents, clock: Clock, chances: Chances) -> None:
        super().__init__(index, ShardClock(clock))
        self.leaving = False
        """The node drains: everything is reported, and allowances are given back."""
        self.beside_older = True
        """There are nodes of a version that leaves no room for allowances beyond `P`, or may be."""
        self.stats = SessionStats()
        self.reports_sent = 0
        """Reports in the last call."""
        self._monotonic = clock.monotonic
        self._chances = chances
        self._owner = owner
        self._events = events
        self.beat_ms = 0
        """Time of the last answered heartbeat, by the shard; 0: none was."""
        self._epoch = b""
        self._memory = b""
        """Name of the shard's memory; none before the first heartbeat."""
        self._questions = QuestionOrder()
        self._flushes = FlushQueues()
        self._refill: deque[SharedCounter] = deque()
        self._under_way: CallUnderWay | None = None
        self._clock_set_s = -math.inf
        """The time at which the shard's clock was last found to have been set: answers to earlier calls don't count."""
        self._behind_since_s = math.inf
        """The time at which the first call was sent that failed since the last answer; never, if none did."""
        self._refilled_s = -math.inf
        """The time by which all nodes have told the shard again what it was last found to have lost."""

    # What counters and requests call

    def ask(self, question: Question) -> None:
        """Put the question into the next call."""
        self._questions.add(question)
        self._events.work_waits()

    def flush(self, counter: SharedCounter, urgency: Urgency) -> None:
        """Have the counter reported with the delay of its urgency."""
        due_s = self._flushes.add(counter, urgency, self._monotonic())
        if due_s is not None:
            self._events.flush_due(due_s)

    def report_at(self, counter: SharedCounter, due_s: float) -> None:
        """Have the counter reported at that time, or sooner."""
        if self._flushes.add_at(counter, due_s):
            self._events.flush_due(due_s)

    def keep_within(self, within: bool) -> None:
        """Have allowances stay within `P`, or no longer; in the first case what is held is given back."""
        came, self.beside_older = within and not self.beside_older, within
        if came:
            for counter in self._owner.live_counters():
                if counter.shard is self:
                    counter.void()
            # Also of keys that nobody asks for: an older node can't read their records until all is given back.
            self._tell_again()

    def remembers(self, now_s: float) -> bool:
        """Return whether it knows what there is to give back. A shard that did not answer may come back empty."""
        return now_s >= self._refilled_s and self._behind_since_s == math.inf

    def new_component(self) -> bytes:
        """Return the name of a component that this run has never used."""
        return self._owner.new_component()

    # What there is to do

    @property
    def queued_flushes(self) -> int:
        """Counters that wait to be reported, and entries that were overtaken."""
        return len(self._flushes)

    @property
    def queued_questions(self) -> int:
        """Questions that wait for the next call."""
        return len(self._questions)

    @property
    def has_answered(self) -> bool:
        """True once the shard has answered: a heartbeat or a call."""
        return self.time.known

    def behind_s(self, now_s: float) -> float:
        """Return for how long the shard has not acknowledged what it is told; 0 while it does."""
        return max(0.0, now_s - self._behind_since_s)

    def unfinished(self) -> Iterator[SharedCounter]:
        """Yield the counters that the shard is to hear of, those among them that the node has let go of meanwhile."""
        yield from self._flushes.counters()
        yield from self._refill

    def busy(self) -> bool:
        """Return whether there is anything left to tell the shard."""
        return bool(self._questions.turns or self._flushes or self._refill)

    def due_s(self) -> float:
        """Return when the next call is due: at once where a question or a refill waits, never if nothing does."""
        if self._questions.turns or self._refill:
            return -math.inf
        return min(self._flushes.next_due_s(), default=math.inf)

    # The next call

    def next_call(self, now_s: float, *, empty: bool = False) -> Operation[Any] | None:
        """Return the next call as an operation, which is under way from now on; None if there is nothing to say.

        `empty`: a call without anything to say will do, to try whether the shard answers.
        """
        if not empty and not self.leaving and self.due_s() > now_s:
            return None
        wanted: dict[SharedCounter, int] = {}
        questions = self._take_questions(wanted)
        for counter in self._flushes.take(MAX_REPORTS - len(wanted), now_s, everything=self.leaving):
            wanted.setdefault(counter, 0)
        for counter in self._refills(MAX_REPORTS - len(wanted)):
            wanted.setdefault(counter, 0)
        # A node that leaves may be the last of its version: what stays behind is for older ones to read.
        self.within = self.beside_older or self.leaving or now_s < self._refilled_s
        now_ms, numbers, reports = self.time.at_ms(now_s), self._owner.numbers, []
        for counter, asking in wanted.items():
            counter.advance(now_ms)
            reports.append(counter.sent(next(numbers), asking, self.leaving, now_s))
        counters = list(wanted)
        positions = dict(zip(counters, range(len(counters)), strict=True))
        requests = tuple([question.charge_requests(positions) for question in questions])
        self.reports_sent = len(reports)
        self.stats.reports += len(reports)
        self.stats.wants += len(requests)
        call = Call(tuple(reports), requests, self._owner.list_number, self._owner.leaving(self.index, counters))
        extended = self._owner.extension.extend(call, counters, now_s, self._owner.came_by)
        self._under_way = CallUnderWay(call, extended, counters, questions, positions, now_s)
        return call if extended is None else extended.operation

    def _take_questions(self, wanted: dict[SharedCounter, int]) -> list[Question]:
        order, taken = self._questions, list[Question]()
        while len(taken) < MAX_QUESTIONS:
            question = order.first()
            if question is None:
                break
            if not question.request.decided:
                if not question.join(wanted, MAX_REPORTS):
                    break
                taken.append(question)
            order.take(len(question.asked))
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

    # What came of a call

    def late_questions(self) -> int:
        """Return how many questions of the call under way were given up, their requests' deadlines having passed."""
        return self._under_way.late_questions() if self._under_way is not None else 0

    def received(self, result: Any, now_s: float) -> list[Decided]:
        """Take in the result of the call under way; return the decisions that follow."""
        under_way = self._end_call()
        reply = under_way.reply_of(result)
        self._behind_since_s = math.inf
        if not self.heard(reply.time_ms, reply.epoch, under_way.sent_s, now_s):
            # It means nothing, the shard's clock having been set: what the call carried goes with the next.
            self._requeue(under_way, now_s)
            self._questions.put_back(under_way.questions)
            return []
        if under_way.extended is not None:
            under_way.extended.learn(result, under_way.sent_s)
        remembers = self._learn(under_way, reply, now_s)
        decided = self._answer(under_way, reply, now_s)
        for counter in under_way.counters:
            if not counter.flush_due_s and (counter.refill or counter.unreported):
                # The shard is not in that window yet, or lacks something in it; or it is too early to demand it back.
                counter.flush_rest(now_s)
        if not remembers:
            self.lost_memory(LOWER_TOTAL, now_s)
        return decided

    def failed(self, now_s: float) -> list[Decided]:
        """Take in that the call under way brought nothing: what it carried is due again, and nobody waits for it."""
        under_way = self._end_call()
        self._behind_since_s = min(self._behind_since_s, under_way.sent_s)
        self._requeue(under_way, now_s)
        return _without_answer(under_way.questions, now_s)

    def drop_questions(self, now_s: float) -> list[Decided]:
        """Let failure policies decide whatever waits for the next call: the shard is not asked any more."""
        return _without_answer(self._questions.take_all(), now_s)

    def _end_call(self) -> CallUnderWay:
        under_way, self._under_way = self._under_way, None
        assert under_way is not None  # noqa: S101 - the driver has just sent it
        return under_way

    def _requeue(self, under_way: CallUnderWay, now_s: float) -> None:
        if under_way.extended is not None:
            under_way.extended.failed()
        for counter in under_way.counters:
            counter.failed()
            if counter.refill:
                self._refill.append(counter)
            if counter.unreported:
                counter.flush_rest(now_s)

    def _learn(self, under_way: CallUnderWay, reply: Reply, now_s: float) -> bool:
        """Have every counter take in its answer; return whether the shard remembers all that it once knew."""
        sent_s = under_way.sent_s
        fresh = 1 - self._chances.usable.random() * USABLE_JITTER
        usable_until_s, look_until_s = sent_s + USABLE_S * fresh, sent_s + LOOK_USABLE_S * fresh
        remembers = True
        answers = reply.answers
        for position, counter in enumerate(under_way.counters):
            answer = answers[position]
            unreadable = answer.more == UNREADABLE
            if unreadable:
                under_way.unreadable.add(position)
            if answer.more < UNREADABLE:
                under_way.moved.add(position)
                counter.failed()
                self._owner.not_here(counter, sealed=answer.more == SEALED)
            elif under_way.components[position] is not counter.component:
                counter.failed()  # the counter has begun anew since
            elif unreadable:
                self._unreadable(counter, now_s)
            else:
                limit = under_way.limits[position]
                until_s = look_until_s if counter.limit.overdraft else usable_until_s
                remembers = counter.answered(answer, limit, until_s, sent_s) and remembers
                if counter.is_over_limit:
                    self.stats.over_limit += 1
            if answer.reset:
                under_way.note_reset(position, answer.reset)
                self._owner.heard_reset(counter, answer.reset)
        return remembers

    def _unreadable(self, counter: SharedCounter, now_s: float) -> None:
        """Give up one key's record: its requests go by policy, and the next one tries again."""
        counter.unreadable()
        if counter.unreported:
            self.flush(counter, Urgency.LATER)
        self.stats.unreadable += 1
        self._events.record_unreadable(counter.key, now_s)

    def _answer(self, under_way: CallUnderWay, reply: Reply, now_s: float) -> list[Decided]:
        """Decide the requests that waited for the call, and those that came meanwhile for its keys."""
        stale, unreadable, moved = under_way.stale, under_way.unreadable, under_way.moved
        refused = under_way.refused(reply)
        decided: list[Decided] = []
        for index, question in enumerate(under_way.questions):
            ended: Decided | None = None
            if moved and not moved.isdisjoint(question.places):
                ended = question.request.ask_again(question, now_s)  # nothing of it was charged
            elif stale and not stale.isdisjoint(question.places):
                self._questions.add(question)  # nothing of it was looked at; the counter knows of the reset now
            elif unreadable and not unreadable.isdisjoint(question.places):
                ended = question.unanswered(now_s)
            else:
                ended = question.answered(reply.charged[index], reply.answers, now_s)
            if ended is not None:
                decided.append(ended)
        under_way.conclude(reply, refused, self._chances.pauses.random)
        if self._questions.turns:
            self._try_again(under_way, now_s, decided)
        return decided

    def _try_again(self, under_way: CallUnderWay, now_s: float, decided: list[Decided]) -> None:
        """Decide what came for a key while a call for it was under way: it may not have to be asked any more."""
        elsewhere: list[Question] = []
        for line in self._questions.turns:
            came, line.waiting = line.waiting, deque()
            for question in came:
                if question.request.decided:
                    continue
                must_ask, ended = question.try_again(now_s) if question.meets(under_way.positions) else (True, None)
                if must_ask and under_way.moved and question.lies_elsewhere:
                    elsewhere.append(question)
                elif must_ask:
                    line.waiting.append(question)
                elif ended is not None:
                    decided.append(ended)
        self._questions.drop_empty()
        for question in elsewhere:
            ended = question.request.ask_again(question, now_s)
            if ended is not None:
                decided.append(ended)

    # The shard's clock and memory

    def beaten(self, pulse: Pulse, sent_s: float, now_s: float) -> None:
        """Take in a heartbeat: a memory of another name has lost something, and one of the same name has not."""
        self.heard(pulse.time_ms, pulse.epoch, sent_s, now_s)
        self.beat_ms = pulse.time_ms
        memory, self._memory = self._memory, pulse.memory
        if memory and memory != pulse.memory:
            self.lost_memory("its memory is another one", now_s)
        elif not memory and self.stats.calls:
            # What was told before may have been told to another one: this node started while the shard was away.
            self._tell_again()

    def heard(self, time_ms: int, epoch: bytes, sent_s: float, now_s: float) -> bool:
        """Take in the time and the epoch that every answer tells, a heartbeat's too.

        False: the answer is to a call from before it was noticed that the shard's clock had been set.
        """
        if sent_s < self._clock_set_s:
            return False
        set_ms = self.time.learn(time_ms, sent_s, now_s)
        if set_ms:
            self._clock_set_s = now_s
            self.stats.clock_steps += 1
            self._events.clock_set(set_ms)
            # Records that lay ahead have begun anew, and what they had counted before went with them.
            self._tell_again()
        if self._epoch and epoch != self._epoch:
            self.lost_memory("it is another run of the server", now_s)
        self._epoch = epoch
        return not set_ms

    def lost_memory(self, reason: str, now_s: float) -> None:
        """Tell the shard again what every live counter of this node contains."""
        if now_s >= self._refilled_s + REFILL_S:
            # Not again at once: a shard that loses something all the time would never be asked to give back.
            self._refilled_s = now_s + REFILL_S
        if self._refill:
            # Under way already; what it is told is the newest anyway. But what is told once per loss, resets, may
            # have been told to the memory that is gone.
            if reason != LOWER_TOTAL:
                self._events.memory_lost(reason, again=True)
            return
        self.stats.refills += 1
        self._events.memory_lost(reason, again=False)
        self._tell_again()

    def _tell_again(self) -> None:
        self.tell_all()
        self._events.work_waits()

    def tell_all(self) -> None:
        """Report every live counter with the next calls, acknowledged or not."""
        self._refill.extend(self._owner.live_counters())


def _without_answer(questions: Iterable[Question], now_s: float) -> list[Decided]:
    ended = [question.unanswered(now_s) for question in questions]
    return [decided for decided in ended if decided is not None]
