"""A request that waits for shards: what becomes of it for everything that its questions may come to, in every order.

A request is written as its legs. A leg's first letter names its shard, `a` or `b`; `l` is on shard `a` too,
and may be admitted without asking. Of the rest, `s` makes it a shadow rule, `q` a quota, and `c` one that
denies while its shard can't be asked.

A history is written as what happens: `a+` charges the question whose first leg is `a`, `a-` denies it because its
keys are full, `a~` because its first key is, `a?` denies it although no key is full by now, `a!` fails it, `late`
is the request's deadline.
"""

import gc
import itertools
from typing import Any

import pytest
from headgate.limiter.decision import Charge, Decision
from headgate.limiter.limit import Limit, OnError, Unit
from headgate.origin.protocol import Answer, Count, WindowAnswer
from headgate.region.counters import SharedCounter
from headgate.region.engine import RegionalEngine
from headgate.region.waiting import Question, WaitingRequest
from headgate.region.window_counter import SharedWindow

from tests.unit.region.support import NOTHING, SEQUENCE, QuietShard, QuietShards, case, handed_on

LIMIT = 10
CHARGED, FULL = Count(1, 1, 0), Count(0, LIMIT, 0)
ANSWERS = {"+": (CHARGED, CHARGED), "-": (FULL, FULL), "~": (FULL, NOTHING), "?": (NOTHING, NOTHING)}
"""What the shard says of a question's first key, and of its others."""
EXACT, DEGRADED, CLOSED = "origin", "degraded_local", "degraded_closed"


class TwoShards(QuietShards):
    """Implements the engine's `Region`."""

    run = b"run"
    live_nodes = 1

    def __init__(self) -> None:
        self.shards = {"a": QuietShard(0), "b": QuietShard(1)}

    def shard_of(self, key: bytes) -> QuietShard:
        return self.shards["b" if key.startswith(b"b") else "a"]

    def earliest_ms(self) -> int:
        return self.shards["a"].time_ms


def charge_of(leg: str) -> Charge:
    on_error = OnError.CLOSED if "c" in leg else OnError.LOCAL
    limit = Limit(LIMIT, Unit.MINUTE, precision_millionths=500_000, on_error=on_error, quota="q" in leg)
    return Charge(leg.encode(), limit, 1, shadow="s" in leg)


class Request:
    """A request of these legs, its questions by their first legs, and the decisions that it was told."""

    def __init__(self, legs: str, *, unavailable: str = "") -> None:
        self.region = TwoShards()
        for shard in unavailable:
            self.region.shards[shard].available = False
        self.engine = RegionalEngine(self.region, monotonic=lambda: 0.0, max_cells=100)
        charges = tuple(map(charge_of, legs.split()))
        for charge in charges:
            if charge.key.startswith(b"l"):
                self._make_local(charge)
        decided = self.engine.decide(charges)
        asked = [question for shard in self.region.shards.values() for question in shard.questions]
        self.questions: dict[str, Question] = {q.asked[0].charge.key.decode(): q for q in asked}
        self.asked = {key: tuple(question.asked) for key, question in self.questions.items()}
        """Legs by question, as a call that is under way knows their counters."""
        self.decisions: list[Decision] = []
        self.waiting: WaitingRequest | None = None
        if isinstance(decided, Decision):
            self.decisions.append(decided)
        else:
            self.waiting = decided
            decided.on_decided = self.decisions.append

    @property
    def counters(self) -> dict[str, SharedCounter]:
        return {counter.key.decode(): counter for counter in self.engine.counters}

    def happens(self, event: str) -> None:
        assert self.waiting is not None
        if event == "late":
            if not self.waiting.decided:  # as deadlines look at it
                handed_on(self.waiting.time_is_up(0.0, own_fault=False))
            return
        question = self.questions[event[:-1]]
        if event.endswith("!"):
            handed_on(question.unanswered(0.0))
            return
        counts = ANSWERS[event[-1]]
        asked = self.asked[event[:-1]]
        answers = [self._learn(leg.counter, counts[index > 0]) for index, leg in enumerate(asked)]
        question.places = list(range(len(asked)))
        handed_on(question.answered(event.endswith("+"), answers, 0.0))

    def _learn(self, counter: Any, count: Count) -> Answer:
        told = WindowAnswer(SEQUENCE, count, NOTHING, 0)
        counter.learn(told)
        return told

    def _make_local(self, charge: Charge) -> None:
        """A counter that is fresh, and whose allowance covers the cost."""
        shard = self.region.shard_of(charge.shard_key)
        counter = SharedWindow(charge.key, charge.key, b"run.0", shard, charge.limit, shard.now_ms())
        counter.has_answer, counter.usable_until_s = True, 5.0
        counter.allowance, counter.allowance_until_s = 5, 5.0
        self.engine.counters.add(counter, shard.now_ms())


def totals(request: Request) -> str:
    """The legs that were committed."""
    return " ".join(key for key, counter in request.counters.items() if counter.own_admitted)


def left_as_credit(request: Request) -> str:
    """The legs that the shard charged in vain: this node may spend that on other requests."""
    return " ".join(key for key, counter in request.counters.items() if counter.credit)


def ended(request: Request) -> Decision:
    """The one decision; and nothing is held any more."""
    (decision,) = request.decisions
    for key, counter in request.counters.items():
        assert (counter.reserved, counter.pins) == (0, 0), key
    return decision


HISTORIES = [
    # Legs; what happens; admitted, and by which path; what is committed; what is left as credit.
    case("a b", "a+ b+", True, EXACT, "a b", "", id="both shards charge"),
    case("a b", "a+ b-", False, EXACT, "", "a", id="one denies: what the other charged is credit"),
    case("a b", "a- b-", False, EXACT, "", "", id="both deny"),
    case("a b", "a+ b!", True, DEGRADED, "a b", "", id="one fails: its rule decides"),
    case("a b", "a- b!", False, DEGRADED, "", "", id="one denies, one fails"),
    case("a b", "a! b!", True, DEGRADED, "a b", "", id="both fail"),
    case("a bc", "a+ bc!", False, CLOSED, "", "a", id="one fails, and its rule is closed"),
    case("a", "a+", True, EXACT, "a", "", id="one leg, charged"),
    case("a", "a-", False, EXACT, "", "", id="one leg, denied"),
    case("a", "a!", True, DEGRADED, "a", "", id="one leg, failed"),
    case("ac", "ac!", False, CLOSED, "", "", id="one leg, failed, closed"),
    case("a a1", "a+", True, EXACT, "a a1", "", id="two legs of one shard are one question, charged"),
    case("a a1", "a-", False, EXACT, "", "", id="two legs of one shard are one question, denied"),
    case("a a1 b", "a+ b-", False, EXACT, "", "a a1", id="three legs on two shards"),
    case("a as", "a+ as+", True, EXACT, "a as", "", id="a shadow has room"),
    case("a as", "a+ as-", True, EXACT, "a", "", id="a shadow is over: admitted, and not charged"),
    case("a as", "a- as+", False, EXACT, "", "as", id="a shadow's room does not help"),
    case("a as", "a+ as!", True, DEGRADED, "a as", "", id="a shadow's shard fails"),
    case("as bs", "as- bs-", True, EXACT, "", "", id="nothing but shadows, all over"),
    case("a bsc", "a+ bsc!", True, CLOSED, "a", "", id="a closed shadow denies nothing"),
    case("aq bq", "aq+ bq+", True, EXACT, "aq bq", "", id="two quotas have room"),
    case("aq bq", "aq- bq+", True, EXACT, "bq", "", id="one quota has room: that is enough"),
    case("aq bq", "aq- bq-", False, EXACT, "", "", id="all quotas are over"),
    case("aq bq", "aq- bq!", True, DEGRADED, "bq", "", id="a quota's shard fails"),
    case("a bq", "a- bq+", False, EXACT, "", "bq", id="a quota's room does not outweigh a limit"),
    case("a bq", "a+ bq-", False, EXACT, "", "a", id="the only quota is over"),
    case("aq aq1", "aq- aq1+", True, EXACT, "aq1", "", id="two quotas of one shard are two questions"),
    case("a b", "a+ b?", False, EXACT, "", "a", id="a denial stands, although there is room by now"),
    case("a a1", "a~", False, EXACT, "", "", id="one key of a question is full: none is charged"),
    case("l b", "b+", True, EXACT, "l b", "", id="a leg that needed nobody, and one that is charged"),
    case("l b", "b-", False, EXACT, "", "", id="a leg that needed nobody is released with the rest"),
    case("l bs", "bs-", True, EXACT, "l", "", id="a leg that needed nobody, and a shadow that is over"),
]  # fmt: skip


@pytest.mark.parametrize(("legs", "history", "admitted", "path", "committed", "credit"), HISTORIES)
def test_it_is_committed_or_released_as_a_whole_in_whatever_order_answers_come(
    legs: str, history: str, admitted: bool, path: str, committed: str, credit: str
) -> None:
    for events in itertools.permutations(history.split()):
        request = Request(legs)
        assert len(request.questions) == len(events)
        for event in events:
            assert request.decisions == [], "not before the last one"
            request.happens(event)
        decision = ended(request)
        assert (decision.admitted, decision.path.value) == (admitted, path), events
        assert (totals(request), left_as_credit(request)) == (committed, credit), events


@pytest.mark.parametrize(
    ("legs", "history", "admitted", "path", "committed", "credit", "late"),
    [
        case("a b", "late", True, DEGRADED, "a b", "", (1, 1), id="no answer: the rules decide"),
        case("a b", "a+ late", True, DEGRADED, "a b", "", (0, 1), id="one was charged in time"),
        case("a b", "b+ late", True, DEGRADED, "a b", "", (1, 0), id="the other was"),
        case("a b", "a- late", False, DEGRADED, "", "", (0, 1), id="one was denied in time"),
        case("a bc", "a+ late", False, CLOSED, "", "a", (0, 1), id="the late one's rule is closed"),
        case("a b", "a! late", True, DEGRADED, "a b", "", (0, 1), id="one failed in time"),
        case("a b", "late a- b-", True, DEGRADED, "a b", "", (1, 1), id="denials after the deadline change nothing"),
        case("a b", "late a! b!", True, DEGRADED, "a b", "", (1, 1), id="nor do failures"),
        case("a bc", "late bc+", False, CLOSED, "", "bc", (1, 1), id="what is charged after a denial is credit"),
        case("a as", "a+ late", True, DEGRADED, "a as", "", (1, 0), id="a shadow is late"),
    ],
)  # fmt: skip
def test_the_deadline_decides_what_no_shard_has(
    legs: str, history: str, admitted: bool, path: str, committed: str, credit: str, late: tuple[int, int]
) -> None:
    request = Request(legs)
    for event in history.split():
        request.happens(event)
    decision = ended(request)
    assert (decision.admitted, decision.path.value) == (admitted, path)
    assert (totals(request), left_as_credit(request)) == (committed, credit)
    assert tuple(shard.late_questions for shard in request.region.shards.values()) == late


@pytest.mark.parametrize(
    ("legs", "unavailable", "history", "admitted", "path", "committed"),
    [
        case("a b", "ab", "", True, DEGRADED, "a b", id="nobody can be asked: decided at once"),
        case("a bc", "ab", "", False, CLOSED, "", id="nobody can be asked, and one rule is closed"),
        case("a b", "b", "a+", True, DEGRADED, "a b", id="one is asked"),
        case("a b", "b", "a-", False, DEGRADED, "", id="one is asked, and denies"),
        case("l b", "b", "", True, DEGRADED, "l b", id="a leg that needed nobody"),
    ],
)
def test_a_shard_that_is_not_available_is_not_waited_for(
    legs: str, unavailable: str, history: str, admitted: bool, path: str, committed: str
) -> None:
    request = Request(legs, unavailable=unavailable)
    assert len(request.questions) == len(history.split())
    for event in history.split():
        request.happens(event)
    decision = ended(request)
    assert (decision.admitted, decision.path.value) == (admitted, path)
    assert totals(request) == committed


@pytest.mark.parametrize(
    ("legs", "history", "over"),
    [
        case("a b", "a+ b+", "", id="admitted"),
        case("a b", "a+ b-", "b", id="the leg that was denied"),
        case("a a1", "a-", "a a1", id="all legs of a question that was denied"),
        case("a a1", "a~", "a", id="only the one that is full"),
        case("a a1", "a?", "a a1", id="all, if none is full any more: the shard said no"),
        case("a bs", "a+ bs-", "bs", id="a shadow, although the request is admitted"),
        case("l b", "b-", "b", id="not the one that was released"),
    ],
)
def test_the_verdicts_name_the_legs_that_are_over(legs: str, history: str, over: str) -> None:
    request = Request(legs)
    for event in history.split():
        request.happens(event)
    verdicts = zip(legs.split(), ended(request).verdicts, strict=True)
    assert " ".join(leg for leg, (is_over, _, _) in verdicts if is_over) == over


@pytest.mark.parametrize(("legs", "events"), [("a", "a+"), ("a", "a-"), ("a", "a!"), ("a", "late"), ("a b", "a+ b+")])
def test_a_request_that_was_decided_leaves_nothing_to_the_garbage_collector(legs: str, events: str) -> None:
    """Which looks at few of them: what it would have to free stays for good."""

    def kept() -> int:
        return sum(isinstance(found, Question) for found in gc.get_objects())

    gc.collect()
    gc.disable()
    try:
        before = kept()
        request = Request(legs)
        for event in events.split():
            request.happens(event)
        assert len(request.decisions) == 1
        request.waiting = None
        request.questions.clear()
        request.asked.clear()
        for shard in request.region.shards.values():
            shard.questions.clear()
        assert kept() == before
    finally:
        gc.enable()
