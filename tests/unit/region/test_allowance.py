"""An allowance admits what the plain rule would, and leaves the counter as the plain rule would."""

from dataclasses import dataclass
from typing import Any

import pytest
from headgate.limiter.decision import Charge, Decision
from headgate.limiter.limit import Algorithm, Limit, Unit
from headgate.origin.protocol import PLENTY, Count, WindowAnswer
from headgate.region.counters import SharedCounter
from headgate.region.engine import RegionalEngine
from headgate.region.flush_queues import FlushQueues
from headgate.region.shard import Shard
from headgate.region.shard_clock import ShardClock
from headgate.region.urgency import Urgency
from headgate.region.waiting import Question
from headgate.region.window_counter import SharedWindow
from hypothesis import given
from hypothesis import strategies as st

from tests.support.clock import ManualClock
from tests.unit.region.support import handed_on

KEY = b"k"
UNIX_MS = 1_700_000_000_000


class QueueingShard(Shard[SharedCounter]):
    """A shard whose time is known within some bounds, and which keeps what is to be flushed, as a session does."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(0, ShardClock(clock))
        self._clock = clock
        self.queues = FlushQueues()

    def heard(self, took_ms: int, ahead_ms: int) -> None:
        """An answer that took so long, of a clock that is so far ahead."""
        now_s = self._clock.monotonic()
        self.time.learn(self._clock.now_ms() + ahead_ms - took_ms // 2, now_s - took_ms / 1000, now_s)

    def new_component(self) -> bytes:
        return b"anew"

    def remembers(self, now_s: float) -> bool:
        return True

    def flush(self, counter: SharedCounter, urgency: Urgency) -> None:
        self.queues.add(counter, urgency, self._clock.monotonic())

    def report_at(self, counter: SharedCounter, due_s: float) -> None:
        self.queues.add_at(counter, due_s)


class OneShard:
    """A region of one shard."""

    run = b"run"
    live_nodes = 1

    def __init__(self, clock: ManualClock) -> None:
        self.shard = QueueingShard(clock)
        self._clock = clock

    def shard_of(self, key: bytes) -> Shard[SharedCounter]:
        return self.shard

    def earliest_ms(self) -> int:
        return self.shard.now_ms()

    def ask(self, question: Question) -> None:
        """Nobody answers here: the policy decides."""
        handed_on(question.unanswered(self._clock.monotonic()))

    def missed_deadline(self, shard: Shard[SharedCounter]) -> None:
        raise AssertionError("nobody waits here")


class Node:
    """A node with one warm key, and with allowances or without."""

    def __init__(self, limit: Limit, clock: ManualClock, *, allowances: bool) -> None:
        self.region = OneShard(clock)
        self.engine = RegionalEngine(self.region, monotonic=clock.monotonic, max_cells=10)
        self.limit, self.clock, self.allowances = limit, clock, allowances
        self.through = 0
        self.region.shard.heard(2, 0)
        self.ask(1)
        self.answered(Said(more=limit.precision))

    @property
    def counter(self) -> SharedWindow:
        counter = self.engine.counters.find(KEY)
        assert isinstance(counter, SharedWindow)
        return counter

    def ask(self, cost: int) -> tuple[Any, ...] | None:
        """What the request is told: admitted, and a verdict; None if it would wait."""
        before = self.allowance
        charge = Charge(KEY, self.limit, cost)
        if not self.allowances:
            charge.plain = False  # then no allowance is asked
        decision = self.engine.decide((charge,))
        self.through += self.allowances and self.allowance != before
        return (decision.admitted, decision.verdicts[0]) if isinstance(decision, Decision) else None

    @property
    def allowance(self) -> int:
        counter = self.engine.counters.find(KEY)
        return 0 if counter is None else counter.allowance

    def answered(self, said: "Said") -> None:
        """A report goes out, and this comes back."""
        counter, now_s = self.counter, self.clock.monotonic()
        counter.advance(self.region.shard.now_ms())
        counter.sent(1, 0, False, now_s)
        cell = counter.current_cell
        current = Count(cell.total + said.credit, cell.total + said.credit + said.others, 0)
        previous = counter.previous_cell
        before = Count(previous.total, previous.total, 0)
        answer = WindowAnswer(counter.sequence, current, before, said.more, said.left)
        counter.answered(answer, counter.limit, now_s + said.fresh_s, now_s)
        report = counter.report(1, 0, 5, False, now_s)
        counter.conclude(report, answer, counter.limit, 0, now_s, lambda: 0.5)

    def state(self) -> tuple[Any, ...]:
        """All that a decision may change."""
        counter = self.counter
        cells = [(cell.sequence, cell.total, cell.reserved, cell.known) for cell in counter.cells]
        kept = counter.flush_due_s, counter.deny_until_ms, counter.deny_cost
        return cells, counter.current, counter.previous, counter.allowance, counter.asked, *kept


@dataclass(frozen=True)
class Ask:
    cost: int


@dataclass(frozen=True)
class Pass:
    ms: int


@dataclass(frozen=True)
class Said:
    more: int = 0
    others: int = 0
    credit: int = 0
    left: int = PLENTY
    fresh_s: float = 5.0


@dataclass(frozen=True)
class Heard:
    took_ms: int
    ahead_ms: int


Step = Ask | Pass | Said | Heard
STEPS = st.lists(
    st.one_of(
        st.builds(Ask, st.sampled_from([1, 1, 1, 1, 2, 7, 0, 50, 400])),
        st.builds(Ask, st.just(1)),
        st.builds(Pass, st.sampled_from([0, 1, 20, 400, 900, 5_100])),
        st.builds(
            Said,
            st.sampled_from([0, 10, 60, 500]),
            st.sampled_from([0, 0, 30, 900]),
            st.sampled_from([0, 0, 3]),
            st.sampled_from([PLENTY, PLENTY, 0, 2]),
        ),
        st.builds(Heard, st.sampled_from([1, 5, 40]), st.sampled_from([0, 0, 3, -200, 300, 2_500, -2_500])),
    ),
    max_size=60,
)


def play(node: Node, step: Step) -> Any:
    match step:
        case Ask(cost):
            return node.ask(cost)
        case Said():
            return node.answered(step)
        case Heard(took_ms, ahead_ms):
            return node.region.shard.heard(took_ms, ahead_ms)


@given(
    steps=STEPS,
    algorithm=st.sampled_from([Algorithm.SLIDING_WINDOW, Algorithm.FIXED_WINDOW]),
    limit=st.sampled_from([100, 1_000, 20_000]),
    unit=st.sampled_from([Unit.SECOND, Unit.MINUTE]),
)
def test_an_allowance_and_the_plain_rule_decide_alike(
    steps: list[Step], algorithm: Algorithm, limit: int, unit: Unit
) -> None:
    limited = Limit(limit, unit, algorithm=algorithm)
    clock = ManualClock(UNIX_MS)
    with_allowances, without = (Node(limited, clock, allowances=allowances) for allowances in (True, False))
    for step in steps:
        if isinstance(step, Pass):
            clock.advance(step.ms)
            continue
        assert play(with_allowances, step) == play(without, step), step
        assert with_allowances.state() == without.state(), step
    assert without.through == 0


@pytest.mark.parametrize("algorithm", [Algorithm.SLIDING_WINDOW, Algorithm.FIXED_WINDOW])
def test_a_key_in_use_is_decided_out_of_its_allowance(algorithm: Algorithm) -> None:
    node = Node(Limit(1_000, Unit.MINUTE, algorithm=algorithm), ManualClock(UNIX_MS), allowances=True)
    for _ in range(50):
        admitted, _ = node.ask(1) or (False, None)
        assert admitted
    assert (node.through, node.allowance) == (50, 0)
    assert node.ask(1) is None, "the shard is asked"


def test_a_report_is_due_soon_when_half_of_the_allowance_is_spent() -> None:
    clock = ManualClock(UNIX_MS)
    node = Node(Limit(20_000, Unit.MINUTE), clock, allowances=True)
    node.ask(1)
    calm_s = node.counter.flush_due_s
    for _ in range(499):
        node.ask(1)
    assert node.counter.flush_due_s == pytest.approx(clock.monotonic() + 0.25)
    assert node.counter.flush_due_s < calm_s
    node.ask(1)
    assert node.counter.flush_due_s == pytest.approx(clock.monotonic() + 0.025)


def test_a_counter_that_went_admits_nothing() -> None:
    node = Node(Limit(20_000, Unit.MINUTE), ManualClock(UNIX_MS), allowances=True)
    for _ in range(3):
        node.ask(1)
    assert node.allowance > 0
    node.engine.counters.drop(KEY)
    node.ask(1)
    assert node.allowance == 0


def test_several_charges_are_admitted_together_or_not_at_all() -> None:
    clock = ManualClock(UNIX_MS)
    node = Node(Limit(20_000, Unit.MINUTE), clock, allowances=True)
    for _ in range(3):
        node.ask(1)
    charge, now_s = Charge(KEY, node.limit, 1), clock.monotonic()
    left, state = node.allowance, node.state()
    for others in ((Charge(b"new", node.limit, 1),), (Charge(KEY, node.limit, left - 1), charge)):
        assert node.engine._from_memory((charge, *others), now_s) is None
        assert (node.allowance, node.state()) == (left, state)
    decision = node.engine._from_memory((charge, charge), now_s)
    assert decision is not None
    assert decision.verdicts[0][1] - decision.verdicts[1][1] == 1
    assert node.allowance == left - 2


def test_while_the_bounds_of_the_shards_time_lie_in_two_windows_there_is_no_allowance() -> None:
    """The shard may be in the next window already: then only it can say in which a cost counts."""
    clock = ManualClock(UNIX_MS // 60_000 * 60_000)
    node = Node(Limit(20_000, Unit.MINUTE), clock, allowances=True)
    node.region.shard.heard(40, 0)
    clock.advance(57_000)
    node.answered(Said(more=500))
    for _ in range(3):
        node.ask(1)
    clock.advance(2_940)  # 60 ms before the end, more than the 2 ms that an answer once took
    assert node.ask(1) is not None
    clock.advance(59)
    assert node.ask(1) is None, "it must ask"
