"""Deciding calls where they are received: which are answered, pending or refused, and which events are left."""

from typing import Any

import structlog
from headgate.errors import BadRequest, NotReady, TooLarge
from headgate.pending import PendingAnswer
from headgate.transport.batches import HELD_S, BatchDecider, KeptBack
from headgate.transport.call_order import TURN_US
from headgate.transport.calls import Calls
from headgate.transport.guard.refusals import Refusal, Refusals
from headgate.transport.interface import Serving, TransportLimits, TransportStats
from headgate.transport.shared_loop import LoopLock

RATE_LIMIT, SERVICE, HEALTH = range(3)
SERVICE_METHOD = "/headgate.v1.Limits/Reserve"
PEER = "127.0.0.1:1"
FLOOD = "127.0.0.2:1"
CALLERS = {PEER: "127.0.0.1", FLOOD: "127.0.0.2"}
TURN_S = TURN_US / 1e6
LIMITS = TransportLimits(max_message_bytes=50, max_pending_calls=4, max_pending_bytes=200)


class Handler:
    """Answers `now` at once, `wait` when a test says so; `slow` takes 50 ms, `dear` a whole turn; else it raises, or
    errs."""

    def __init__(self, lock: LoopLock) -> None:
        self.lock = lock
        self.now_s = 1_000.0
        self.waiting: list[PendingAnswer] = []
        self.callers: list[str] = []

    def answer(self, payload: bytes, caller: str = "") -> Any:
        assert not self.lock._held.acquire(False), "decided without the lock"
        self.callers.append(caller)
        if payload.startswith(b"bad"):
            raise BadRequest("no domain")
        if payload == b"wrong":
            return "text"
        if payload == b"slow":
            self.now_s += 0.05
        if payload == b"dear":
            self.now_s += TURN_S
        if payload.startswith(b"wait"):
            self.waiting.append(PendingAnswer())
            return self.waiting[-1]
        return b"answer"


class Rig:
    """A decider of batches with everything around it noted."""

    def __init__(self, limits: TransportLimits = LIMITS, refusals: Refusals | None = None) -> None:
        self.stats = TransportStats()
        self.lock = LoopLock()
        self.handler = Handler(self.lock)
        self.answers: dict[int, Any] = {}
        self.tidied_after: list[int] = []
        services = {SERVICE_METHOD: lambda payload, caller: self.handler.answer(payload, f"service of {caller}")}
        serving = Serving("", self.handler, limits, structlog.get_logger(), services=services)
        self.calls = Calls(serving, self.stats)
        self.decider = BatchDecider(
            tuple(self.calls.methods.values()),
            self.respond,
            self,
            self.lock,
            self.stats,
            KeptBack(refusals, limits, self.stats),
            CALLERS,
            limits,
            self.tidy,
            monotonic=lambda: self.handler.now_s,
        )

    def take(self, events: list[Any]) -> list[Any]:
        return self.decider.take(self.handler.now_s, events)

    def take_all(self, events: list[Any]) -> None:
        """As the receiving thread does."""
        self.take(events)
        while self.decider.has_waiting:
            self.take([])

    def tidy(self) -> None:
        assert not self.lock._held.acquire(False), "tidied without the lock"
        self.tidied_after.append(len(self.handler.callers))

    def respond(self, call_id: int, answer: bytes) -> None:
        self.answers[call_id] = answer

    def fail(self, call_id: int, error: Exception) -> None:
        self.answers[call_id] = type(error)

    def mark_pending(self, call_id: int, size: int, received_at: float, answer: PendingAnswer) -> None:
        self.answers[call_id] = answer, size

    def is_free(self) -> bool:
        """Whether somebody else could have the lock now."""
        return not self.lock._held.locked()


def call(call_id: int, payload: bytes | None, *, method: int = RATE_LIMIT, timeout: str | bytes = PEER) -> Any:
    return (1, call_id, method, payload, timeout)


def test_each_call_is_answered_or_pending_or_fails_by_itself() -> None:
    rig = Rig()
    assert rig.take([call(1, b"now"), call(2, b"bad"), call(3, b"now too"), call(4, b"wait")]) == []
    assert rig.answers == {1: b"answer", 2: BadRequest, 3: b"answer", 4: (rig.handler.waiting[0], 4)}
    assert (rig.stats.calls, rig.stats.pending_calls, rig.stats.pending_bytes) == (4, 1, 4)
    assert sum(rig.stats.durations.counts) == 2, "what failed has no duration, and what is pending none yet"
    rig.calls.complete(1, 4)
    assert (rig.stats.pending_calls, rig.stats.pending_bytes) == (0, 0)
    assert rig.is_free()


def test_an_answer_of_another_kind_is_an_error() -> None:
    rig = Rig()
    rig.take([call(1, b"wrong")])
    assert rig.answers == {1: TypeError}


def test_what_is_not_a_rate_limit_call_is_left_and_not_counted() -> None:
    left = [call(1, b"", method=HEALTH), call(2, None)]
    rig = Rig()
    assert rig.take([*left, call(5, b"now")]) == left
    assert rig.answers == {5: b"answer"}
    assert rig.stats.calls == 1


def test_what_is_too_large_or_was_kept_back_by_the_guard_is_refused() -> None:
    refusals = Refusals()
    kept_back = refusals.encode(Refusal.TOO_LARGE, 100)
    unfinished = refusals.encode(Refusal.UNFINISHED, 100)
    as_long = b"now" + b"x" * (len(kept_back) - 3)
    rig = Rig(TransportLimits(max_message_bytes=50), refusals)
    rig.take([call(1, b"now" + b"x" * 48), call(2, kept_back), call(3, unfinished), call(4, as_long)])
    assert rig.answers == {1: TooLarge, 2: TooLarge, 3: NotReady, 4: b"answer"}
    assert (rig.stats.calls, rig.stats.refused_too_large, rig.stats.refused_unfinished) == (4, 2, 1)


def test_calls_are_refused_while_too_much_is_pending() -> None:
    rig = Rig()
    rig.take([call(number, b"wait" + b"x" * 46) for number in range(3)])
    assert rig.take([call(3, b"now" + b"x" * 47), call(4, b"wait" + b"x" * 46), call(5, b"n")]) == []
    assert [rig.answers[number] for number in (3, 5)] == [b"answer", NotReady], "its bytes are one too many"
    rig.calls.complete(1, 50)
    rig.take([call(6, b"n"), call(7, b"wait"), call(8, b"n")])
    assert [rig.answers[number] for number in (6, 8)] == [b"answer", NotReady], "four calls are pending"
    assert rig.stats.refused_overload == 2


def test_who_stops_refuses_every_call() -> None:
    rig = Rig()
    rig.calls.stop()
    rig.take([call(1, b"now")])
    assert rig.answers == {1: NotReady}


def test_who_has_no_time_left_gets_no_decision() -> None:
    rig = Rig()
    assert rig.take([call(1, b"now", timeout=b"0m"), call(2, b"now", timeout=b"1H")]) == []
    assert rig.answers == {2: b"answer"}
    assert (rig.stats.calls, rig.stats.dropped_expired, rig.stats.pending_calls) == (2, 1, 0)


def test_deadlines_are_looked_at_again_for_each_call() -> None:
    """Received together, and expired while one of them was handled."""
    rig = Rig()
    rig.take_all([call(1, b"slow", timeout=b"20m"), call(2, b"now", timeout=b"20m"), call(3, b"now")])
    assert rig.answers == {1: b"answer", 3: b"answer"}


def test_the_handler_hears_who_is_behind_the_connection() -> None:
    rig = Rig()
    rig.take([call(1, b"now", timeout=PEER), call(2, b"now", timeout="unix:9"), call(3, b"now", timeout=b"1H")])
    assert rig.handler.callers == ["127.0.0.1", "", ""]


def test_every_method_is_decided_here_with_the_same_bounds() -> None:
    rig = Rig()
    events = [call(1, b"now"), call(2, b"now", method=SERVICE), call(3, b"wait", method=SERVICE)]
    events += [call(4, b"x" * 51, method=SERVICE), call(5, b"wrong", method=SERVICE)]
    assert rig.take(events) == []
    assert rig.answers == {1: b"answer", 2: b"answer", 3: (rig.handler.waiting[0], 4), 4: TooLarge, 5: TypeError}
    assert rig.handler.callers == ["127.0.0.1", *["service of 127.0.0.1"] * 3]
    assert (rig.stats.calls, rig.stats.pending_calls, rig.stats.refused_too_large) == (5, 1, 1)
    rig.calls.stop()
    rig.take([call(6, b"now", method=SERVICE)])
    assert rig.answers[6] is NotReady


# Turns


def test_who_comes_behind_a_flood_of_another_method_is_decided_after_one_turn_of_it() -> None:
    rig = Rig(TransportLimits())
    rig.take([call(number, b"dear", method=SERVICE, timeout=FLOOD) for number in range(100)])
    decided = len(rig.handler.callers)
    rig.take([call(100, b"now")])
    rig.take_all([])
    assert rig.handler.callers.index("127.0.0.1") - decided <= 1
    assert rig.handler.callers.count("service of 127.0.0.2") == 100


def test_the_loop_has_its_turn_after_a_moment_whatever_is_left() -> None:
    rig = Rig(TransportLimits())
    rig.take([call(number, b"dear", timeout=FLOOD) for number in range(100)])
    assert rig.handler.now_s - 1_000 <= HELD_S + TURN_S
    assert rig.is_free()
    assert rig.decider.has_waiting
    began_s = rig.handler.now_s
    rig.take([])
    assert 0 < rig.handler.now_s - began_s <= HELD_S + TURN_S
    rig.take_all([])
    assert rig.answers == dict.fromkeys(range(100), b"answer"), "nothing is lost, and nothing decided twice"
    assert len(rig.handler.callers) == sum(rig.stats.durations.counts) == rig.stats.calls == 100


def test_who_comes_behind_a_flood_is_decided_after_one_turn_of_it() -> None:
    rig = Rig(TransportLimits())
    rig.take([call(number, b"dear", timeout=FLOOD) for number in range(100)])
    decided = len(rig.handler.callers)
    rig.take([call(number, b"dear", timeout=FLOOD) for number in range(100, 200)] + [call(200, b"now")])
    rig.take_all([])
    assert rig.handler.callers.index("127.0.0.1") - decided <= 1
    assert len(rig.answers) == 201


def test_callers_share_time_and_not_calls() -> None:
    """One whose calls cost nothing gets as many decided as come, beside one whose calls take a turn each."""
    rig = Rig(TransportLimits())
    flood = [call(number, b"dear", timeout=FLOOD) for number in range(50)]
    rig.take([*flood, *[call(number, b"now") for number in range(100, 150)]])
    while not all(number in rig.answers for number in range(100, 150)):
        rig.take([])
    assert sum(number < 100 for number in rig.answers) <= 5
    rig.take_all([])


def test_what_waits_is_bounded_and_who_has_most_of_it_is_refused() -> None:
    rig = Rig(TransportLimits(max_pending_calls=10, max_pending_bytes=10_000))
    rig.take([call(0, b"slow", timeout=FLOOD), *[call(number, b"dear", timeout=FLOOD) for number in range(1, 31)]])
    refused = [number for number, answer in rig.answers.items() if answer is NotReady]
    assert refused == list(range(11, 31))
    assert rig.stats.refused_overload == 20
    rig.take([call(31, b"dear", timeout=FLOOD), call(32, b"now"), call(33, b"dear", timeout=FLOOD)])
    rig.take_all([])
    assert rig.answers[32] == b"answer", "it had nothing that waited"
    assert rig.stats.refused_overload == 21, "one had been decided meanwhile"


def test_what_waits_is_bounded_in_bytes() -> None:
    rig = Rig(TransportLimits(max_message_bytes=1_000, max_pending_bytes=2_000))
    large = [call(number, b"x" * 900, timeout=FLOOD) for number in range(1, 5)]
    rig.take([call(0, b"slow", timeout=FLOOD), *large, call(5, b"now")])
    rig.take_all([])
    assert [number for number, answer in rig.answers.items() if answer is NotReady] == [3, 4]


def test_health_does_not_wait_behind_calls() -> None:
    rig = Rig(TransportLimits())
    health = call(1_000, b"", method=HEALTH)
    assert rig.take([*[call(number, b"dear", timeout=FLOOD) for number in range(100)], health]) == [health]
    rig.take_all([])


def test_each_moment_of_deciding_is_tidied_up_after() -> None:
    """Whatever has been made meanwhile: the loop might come late."""
    rig = Rig()
    rig.take_all([call(number, b"dear") for number in range(3)])
    assert rig.tidied_after == [2, 3]
