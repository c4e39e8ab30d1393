"""The decision engine of a node whose region counts together. No I/O: it asks through `Region`.

A denial that follows from what is known needs nobody. An admission is decided here while
the view is fresh, the remainder is above `P` and the grant covers it; else the shard
decides. A request that waits reserves: what it may take here at once, the rest as the
answers come. All is committed together or released; there is no second wait.

It relies on being called from one thread, the loop's, and on `Region` to answer or fail
every question, or to leave it to the deadline.
"""

import asyncio
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

from headgate.limiter.algorithm import OVER
from headgate.limiter.counters import CounterTable
from headgate.limiter.decision import (
    Charge,
    Decision,
    DecisionPath,
    Verdict,
    denied_before,
    denies,
    only_shadow_over,
    remember_denial,
)
from headgate.limiter.limit import OnError
from headgate.origin.protocol import Answer
from headgate.region import policy
from headgate.region.counters import Hold, Link, ShardTime, SharedCounter, new_shared_counter

ASK_COLD: Final = -2
"""The view is not fresh enough to admit."""
ASK_NEAR: Final = -3
"""The limit is near, or the grant is used up: the shard decides."""
UNDECIDED: Final = -2
"""Outcomes at or below this one wait for an answer."""
LOOP_LATE_S: Final = 0.001
"""A timer that comes so much later than it was set for was kept from running by the loop."""
ANSWER_TURNS: Final = 4
"""Turns of the loop from the bytes of an answer to the requests that wait for it: read, parsed, handed on."""
WAIT_BOUNDS_S: Final = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""By which waits are counted: fine around the deadlines that people set (5 ms, up to a second)."""


class Shard(Protocol):
    """What the engine needs of a shard."""

    index: int

    @property
    def available(self) -> bool:
        """False while asking would only wait for nothing: then the failure policies decide at once."""
        ...

    def late(self) -> None:
        """A question was not answered by its request's deadline."""
        ...

    def now_ms(self) -> int:
        """The shard's time: at least this."""
        ...

    @property
    def own_time(self) -> ShardTime | None:
        """While the time is this node's own, because there was no answer yet: what will say that there was one."""
        ...

    def certain(self, window_ms: int) -> bool:
        """Whether the bounds of the shard's time lie in one window."""
        ...

    def ask(self, question: "Question") -> None:
        """Have it answered or failed, later."""
        ...

    def flush(self, cell: SharedCounter, *, soon: bool) -> None:
        """The cell has something unacknowledged."""
        ...


class Region(Protocol):
    run: bytes
    live_nodes: int

    def shard_of(self, key: bytes) -> Shard: ...

    def shard(self, index: int) -> Shard: ...

    def earliest_ms(self) -> int:
        """The earliest of all shards' times: what has expired by it has expired by its own shard's."""
        ...


@dataclass(slots=True)
class RegionalStats:
    """Plain counters, read by whoever exports them."""

    asked: int = 0
    deadline_missed: int = 0
    unplaced: int = 0
    """Requests on new keys for which the full table had no room: every cell was unacknowledged."""
    degraded: Counter[int] = field(default_factory=Counter)
    """Per shard: costs that a policy decided, because the shard could not be asked or did not answer."""
    waits: list[int] = field(default_factory=lambda: [0] * (len(WAIT_BOUNDS_S) + 1))
    """Waits by how long they took, from the question to the decision: up to each bound, and longer."""
    waits_sum_s: float = 0.0
    """What these waits took together."""


class Question:
    """What one request asks of one shard: costs on some of its keys, all or none."""

    __slots__ = ("_waiting", "indexes", "parts")

    def __init__(self, waiting: "Waiting", indexes: list[int]) -> None:
        self._waiting = waiting
        self.indexes = indexes
        self.parts = [(waiting.cells[index], waiting.charges[index].cost) for index in indexes]

    @property
    def open(self) -> bool:
        """False: the request has been decided without an answer."""
        return not self._waiting.decided

    def answer(self, charged: bool, answers: list[Answer]) -> None:
        """The cells have learnt from these answers already."""
        if self.open:
            self._waiting.answered(self, charged, answers)

    def fail(self) -> None:
        if self.open:
            self._waiting.unanswered(self)


class Waiting:
    """A request between its questions and its decision."""

    __slots__ = (
        "_began_s",
        "_engine",
        "_pending",
        "_timer",
        "_turns",
        "cells",
        "charges",
        "decided",
        "future",
        "holds",
        "outcomes",
        "path",
    )

    def __init__(
        self, engine: "RegionalEngine", charges: tuple[Charge, ...], cells: list[SharedCounter], outcomes: list[int]
    ) -> None:
        self._engine = engine
        self.charges = charges
        self.cells = cells
        self.outcomes = outcomes
        self.holds: dict[int, Hold] = {}
        self.decided = False
        self.path = DecisionPath.EXACT if ASK_NEAR in outcomes else DecisionPath.ORIGIN
        self.future: asyncio.Future[Decision] | None = None
        self._pending: list[Question] = []
        self._timer: asyncio.Handle | None = None
        self._turns = ANSWER_TURNS
        self._began_s = engine.monotonic()

    def begin(self) -> "Decision | asyncio.Future[Decision]":
        self._reserve_local()
        for question in self._questions():
            shard = self._engine.region.shard(question.parts[0][0].link.shard)
            if shard.available:
                self._pending.append(question)
                shard.ask(question)
            else:
                self._by_policy(question.indexes)
        if not self._pending:
            return self._decide()
        self._engine.stats.asked += 1
        loop = asyncio.get_running_loop()
        self.future = loop.create_future()
        self._timer = loop.call_later(self._engine.deadline_s, self._time_is_up)
        return self.future

    def _reserve_local(self) -> None:
        for index, (charge, cell) in enumerate(zip(self.charges, self.cells, strict=True)):
            cell.link.in_call += 1
            if self.outcomes[index] >= 0:
                cell.unspend(charge.cost)
                self.holds[index] = cell.hold(charge.cost, self._engine.now_ms(cell))

    def _questions(self) -> list[Question]:
        """Enforced charges of one shard stand or fall together; a shadow or a quota fails alone."""
        together: dict[int, list[int]] = {}
        alone: list[Question] = []
        for index, (charge, outcome) in enumerate(zip(self.charges, self.outcomes, strict=True)):
            if outcome > UNDECIDED:
                continue
            if charge.shadow or charge.quota:
                alone.append(Question(self, [index]))
            else:
                together.setdefault(self.cells[index].link.shard, []).append(index)
        return [Question(self, indexes) for indexes in together.values()] + alone

    def answered(self, question: Question, charged: bool, answers: list[Answer]) -> None:
        for index, (cell, cost), answer in zip(question.indexes, question.parts, answers, strict=True):
            if charged:
                self.outcomes[index] = 0
                self.holds[index] = cell.hold(cost, self._engine.now_ms(cell), answer)
            else:
                self.outcomes[index] = self._known_outcome(cell, self.charges[index])
        if not charged and all(self.outcomes[index] >= 0 for index in question.indexes):
            # What the shard saw at that instant has passed since, but it said no.
            for index in question.indexes:
                self.outcomes[index] = OVER
        self._close(question)

    def unanswered(self, question: Question) -> None:
        self._by_policy(question.indexes)
        self._close(question)

    def _close(self, question: Question) -> None:
        self._pending.remove(question)
        if not self._pending:
            self._finish()

    def _time_is_up(self) -> None:
        """At the deadline. When the loop comes late to it, what has arrived meanwhile is read first.

        Else every stall of this process would be held against all of its shards.
        """
        waited_s = self._engine.monotonic() - self._began_s
        if self._turns and waited_s > self._engine.deadline_s + LOOP_LATE_S:
            self._turns -= 1
            self._timer = asyncio.get_running_loop().call_soon(self._time_is_up)
        else:
            self._too_late()

    def _too_late(self) -> None:
        self._engine.stats.deadline_missed += 1
        late, self._pending = self._pending, []
        for question in late:
            self._by_policy(question.indexes)
        self._finish()
        for question in late:
            self._engine.region.shard(question.parts[0][0].link.shard).late()

    def _by_policy(self, indexes: list[int]) -> None:
        region = self._engine.region
        for index in indexes:
            charge, cell = self.charges[index], self.cells[index]
            limit, cost = charge.limit, charge.cost
            now_ms = cell.advance(self._engine.now_ms(cell))
            self._engine.stats.degraded[cell.link.shard] += 1
            self.path = policy.PATHS[limit.on_error]
            if policy.admits(cell, limit, cost, now_ms, region.live_nodes):
                self.outcomes[index] = 0
                self.holds[index] = cell.hold(cost, now_ms)
            else:
                self.outcomes[index] = OVER

    def _known_outcome(self, cell: SharedCounter, charge: Charge) -> int:
        """Whether the cost would fit by all that is known now; nothing is taken."""
        now_ms = cell.advance(self._engine.now_ms(cell))
        missing = cell.missing(charge.cost)
        remaining = charge.algorithm.take(cell, charge.limit, now_ms, missing)
        if remaining >= 0:
            charge.algorithm.release(cell, charge.limit, missing)
        return remaining

    def _finish(self) -> None:
        decision = self._decide()
        waited_s = self._engine.monotonic() - self._began_s
        self._engine.stats.waits[bisect_left(WAIT_BOUNDS_S, waited_s)] += 1
        self._engine.stats.waits_sum_s += waited_s
        if self._timer is not None:
            self._timer.cancel()
        if self.future is not None and not self.future.done():
            self.future.set_result(decision)

    def _decide(self) -> Decision:
        """Commit all that is held, or release it."""
        self.decided = True
        admitted = not denies(self.charges, self.outcomes)
        for hold in self.holds.values():
            hold.cell.settle(hold, commit=admitted)
            if admitted:
                self._engine.flush(hold.cell, 0)  # it had to ask, so its limit is near or it was cold
        for cell in self.cells:
            cell.link.in_call -= 1
        decision = self._engine.decision(self.charges, self.cells, self.outcomes, admitted, self.path)
        for index, hold in self.holds.items():
            if admitted and hold.closed:
                over, remaining, _ = decision.verdicts[index]
                decision.verdicts[index] = (over, remaining, 0)  # its window has just ended
        return decision


class RegionalEngine:
    def __init__(self, region: Region, *, monotonic: Callable[[], float], max_cells: int, deadline_s: float) -> None:
        self.cells: CounterTable[SharedCounter] = CounterTable(max_cells, _evictable)
        self.region = region
        self.deadline_s = deadline_s
        self.stats = RegionalStats()
        self.monotonic = monotonic

    def sweep(self, max_steps: int) -> bool:
        """Drop expired cells, in a bounded slice; True while more are due."""
        return self.cells.sweep(self.region.earliest_ms(), max_steps)

    def now_ms(self, cell: SharedCounter) -> int:
        return self.region.shard(cell.link.shard).now_ms()

    def flush(self, cell: SharedCounter, remaining: int) -> None:
        """Have it reported: soon where the limit or the end of the grant is near."""
        unacked = cell.unacked
        if unacked:
            link = cell.link
            soon = unacked * 2 >= link.grant or remaining <= 2 * link.limit.precision
            self.region.shard(link.shard).flush(cell, soon=soon)

    def decide(self, charges: tuple[Charge, ...]) -> "Decision | asyncio.Future[Decision]":
        now_s = self.monotonic()
        cells: list[SharedCounter] = []
        outcomes: list[int] = []
        local = True
        for charge in charges:
            cell = self._cell(charge)
            if cell is None:
                return self._unplaced(charges, cells, outcomes)
            outcome = self._try(cell, charge, now_s)
            local &= outcome >= 0
            cells.append(cell)
            outcomes.append(outcome)
        if local:
            verdicts: list[Verdict] = []
            for charge, cell, remaining in zip(charges, cells, outcomes, strict=True):
                self.flush(cell, remaining)
                verdicts.append((False, remaining, charge.algorithm.reset_ms(cell, charge.limit, self.now_ms(cell))))
            return Decision(True, DecisionPath.LOCAL, verdicts)
        return self._not_local(charges, cells, outcomes)

    def decision(
        self,
        charges: tuple[Charge, ...],
        cells: list[SharedCounter],
        outcomes: list[int],
        admitted: bool,
        path: DecisionPath,
    ) -> Decision:
        verdicts = [
            self._verdict(charge, cell, outcome < 0, path)
            for charge, cell, outcome in zip(charges, cells, outcomes, strict=True)
        ]
        if admitted and path is DecisionPath.LOCAL and any(outcome < 0 for outcome in outcomes):
            path = DecisionPath.SHADOW if only_shadow_over(charges, outcomes) else path
        return Decision(admitted, path, verdicts)

    def _not_local(
        self, charges: tuple[Charge, ...], cells: list[SharedCounter], outcomes: list[int]
    ) -> "Decision | asyncio.Future[Decision]":
        """Something is over, or must be asked for."""
        known = [OVER if outcome == OVER else 0 for outcome in outcomes]
        if denies(charges, known):
            cached = any(
                outcome == OVER and self._denied_from_memory(charge, cell)
                for charge, cell, outcome in zip(charges, cells, outcomes, strict=True)
            )
            for charge, cell, outcome in zip(charges, cells, outcomes, strict=True):
                if outcome >= 0:
                    cell.unspend(charge.cost)
            return self.decision(
                charges, cells, known, False, DecisionPath.DENY_CACHE if cached else DecisionPath.LOCAL
            )
        if min(outcomes) > UNDECIDED:
            for cell, outcome in zip(cells, outcomes, strict=True):
                if outcome >= 0:
                    self.flush(cell, outcome)
            return self.decision(charges, cells, outcomes, True, DecisionPath.LOCAL)
        return Waiting(self, charges, cells, outcomes).begin()

    def _try(self, cell: SharedCounter, charge: Charge, now_s: float) -> int:
        """Admit here if that is allowed: what remains, OVER, or why the shard must be asked."""
        link, limit = cell.link, charge.limit
        link.limit = limit
        shard = self.region.shard(link.shard)
        now_ms = cell.advance(shard.now_ms())
        if now_ms < cell.deny_until_ms and denied_before(cell, charge):
            return OVER
        missing = cell.missing(charge.cost)
        remaining = charge.algorithm.take(cell, limit, now_ms, missing)
        if remaining < 0:
            return OVER
        why = self._must_ask(cell, charge, missing, remaining, now_s)
        if why:
            charge.algorithm.release(cell, limit, missing)
            return why
        cell.spend(charge.cost, now_ms)
        return remaining

    def _must_ask(self, cell: SharedCounter, charge: Charge, missing: int, remaining: int, now_s: float) -> int:
        link, limit = cell.link, charge.limit
        if now_s >= link.usable_until_s or not self.region.shard(link.shard).certain(limit.window_ms):
            return ASK_COLD
        if link.credit_offered:
            return ASK_NEAR
        if not missing:
            return 0
        if remaining + missing <= limit.precision or cell.unacked + missing > link.held(now_s):
            return ASK_NEAR
        return 0

    def _denied_from_memory(self, charge: Charge, cell: SharedCounter) -> bool:
        return self.now_ms(cell) < cell.deny_until_ms and denied_before(cell, charge)

    def _verdict(self, charge: Charge, cell: SharedCounter, over: bool, path: DecisionPath) -> Verdict:
        limit, algorithm = charge.limit, charge.algorithm
        now_ms = cell.advance(self.now_ms(cell))
        if not over:
            return False, algorithm.remaining(cell, limit, now_ms), algorithm.reset_ms(cell, limit, now_ms)
        if now_ms < cell.deny_until_ms and denied_before(cell, charge) and cell.deny_cost == charge.cost:
            return True, 0, cell.deny_until_ms - now_ms
        retry_ms = self._retry_ms(charge, cell, now_ms)
        if not retry_ms or path in policy.PATHS.values():
            # Not by what is known: the policy said no, or the moment has passed.
            return True, 0, max(retry_ms, policy.DEGRADED_RETRY_MS if path in policy.PATHS.values() else 1)
        if not cell.reserved:  # a reservation may be released again, and the denial with it
            remember_denial(cell, charge, now_ms + retry_ms)
        return True, 0, retry_ms

    def _retry_ms(self, charge: Charge, cell: SharedCounter, now_ms: int) -> int:
        """How long until it fits by all that is known; 0 when it does, because credit has come back since."""
        algorithm, missing = charge.algorithm, cell.missing(charge.cost)
        if algorithm.take(cell, charge.limit, now_ms, missing) >= 0:
            algorithm.release(cell, charge.limit, missing)
            return 0
        return algorithm.retry_ms(cell, charge.limit, now_ms, missing)

    def _cell(self, charge: Charge) -> SharedCounter | None:
        cell = self.cells.find(charge.key)
        if cell is not None:
            self.cells.touch(charge.key)
            return cell
        shard = self.region.shard_of(charge.shard_key)
        # A key that went and comes back owns a new component: it can't start at 0 in the old one.
        component = b"%s.%d" % (self.region.run, self.cells.stats.gone)
        now_ms = shard.now_ms()
        cell = new_shared_counter(charge.key, Link(component, shard.index, charge.limit, shard.own_time), now_ms)
        return cell if self.cells.add(cell, self.region.earliest_ms()) else None

    def _unplaced(self, charges: tuple[Charge, ...], cells: list[SharedCounter], outcomes: list[int]) -> Decision:
        """No room for a new key while every cell holds something unacknowledged: the policies decide."""
        self.stats.unplaced += 1
        for charge, cell, outcome in zip(charges, cells, outcomes, strict=False):
            if outcome >= 0:
                cell.unspend(charge.cost)
        closed = any(charge.limit.on_error is OnError.CLOSED and not charge.shadow for charge in charges)
        path = DecisionPath.DEGRADED_CLOSED if closed else DecisionPath.DEGRADED_OPEN
        verdict = (closed, 0, policy.DEGRADED_RETRY_MS)
        return Decision(not closed, path, [verdict] * len(charges))


def _evictable(cell: SharedCounter) -> bool:
    return not cell.unacked and not cell.link.in_call
